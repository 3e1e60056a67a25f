"""Every scrape asks a worker's parts for their numbers."""

from __future__ import annotations

import contextlib
from pathlib import Path

from router.app.access import build_access
from router.app.proxy_options import build_pool
from router.app.sandboxes import build_sandboxes
from router.app.shown import show_readings
from router.proxy.budget import Budget
from router.routing.names import AddressesOnly
from router.telemetry.metrics import Metrics
from tests.unit.app.conftest import MakeSettings


async def test_what_the_parts_count_is_on_the_page(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: []")
    settings = make_settings(policy_file=policy)
    metrics = Metrics(version="1")
    with contextlib.closing(
        build_pool(
            settings,
            own_listeners=lambda: (),
            resolver=AddressesOnly(),
            budget=Budget(limit_bytes=2**20),
        )
    ) as pool:
        sandboxes = build_sandboxes(settings, api=None, on_retired=pool.retire)
        access = build_access(settings, reviewer=None, current=sandboxes.current)

        show_readings(metrics, pool, Budget(limit_bytes=2**20), sandboxes, access)

        policy.write_text("revoked: [x]")
        await access.files["policy"].reload()
        page = metrics.snapshot()
    assert dict(page["sandbox_router_index_sandboxes"])[("ready",)] == [1]
    assert dict(page["sandbox_router_pool_connections"])[("idle",)] == [0]
    reloads = dict(page["sandbox_router_config_reloads_total"])
    assert reloads[("sandboxes-file", "success")] == [1]
    assert reloads[("policy-file", "success")] == [1]
