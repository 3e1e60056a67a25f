"""What the operating system counts for this process: CPU time, memory, file descriptors."""

from __future__ import annotations

import asyncio

from prometheus_client.process_collector import ProcessCollector

from router.telemetry.metric_catalogue import BY_NAME
from router.telemetry.metrics import Metrics
from router.telemetry.snapshot import Snapshot, merge

_collector = ProcessCollector(registry=None)


def process_snapshot() -> Snapshot:
    """Returns the process_* families; empty where there is no /proc. Slow with many open files: call it in a thread."""
    return {
        sample.name: [((), [sample.value])]
        for metric in _collector.collect()
        for sample in metric.samples
        if sample.name in BY_NAME
    }


async def full_snapshot(metrics: Metrics) -> Snapshot:
    """Returns everything that there is to tell about this process."""
    of_process = await asyncio.to_thread(process_snapshot)
    return merge((metrics.snapshot(), of_process))
