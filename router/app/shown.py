"""Shows what a worker's parts count: where sandboxes live, who may call, the pool, the logs."""

from __future__ import annotations

from router.app.access import Access
from router.app.sandboxes import Sandboxes
from router.proxy.budget import Budget
from router.proxy.pool import Pool
from router.telemetry import logs, readings
from router.telemetry.metrics import Metrics


def show_readings(
    metrics: Metrics, pool: Pool, budget: Budget, sandboxes: Sandboxes, access: Access
) -> None:
    """Has each scrape ask these parts for their numbers."""
    readings.read_pool(metrics, pool)
    readings.read_budget(metrics, budget)
    if sandboxes.index is not None:
        readings.read_index(metrics, sandboxes.index)
    if sandboxes.file is not None:
        readings.read_file(metrics, "sandboxes", sandboxes.file)
        readings.read_reloads(metrics, "sandboxes", sandboxes.file)
    for name, watched in access.files.items():
        readings.read_file(metrics, name, watched)
    for name, source in access.sources().items():
        readings.read_reloads(metrics, name, source)
    readings.read_auth_failures(metrics, access.failures)
    readings.read_watch_restarts(metrics, sandboxes.watch_restarts)
    readings.read_watches_refused(metrics, sandboxes.refused)
    readings.read_log(metrics, logs.lost)
