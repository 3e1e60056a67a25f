"""Lists against a real API server: that they come as streams, and that a restored store leads to a new one."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import orjson
import pytest

from router.discovery.pace import Pace
from router.discovery.reflector import Phase
from router.discovery.watch_events import without_managed_fields
from router.routing.endpoint import State
from tests.cluster.admin import SANDBOXES, Admin
from tests.cluster.conftest import Cluster
from tests.cluster.test_discovery_on_a_cluster import PACE, launch, watching
from tests.fakes.running_discovery import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]

SERIES = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
RESOURCES = ("pods", "sandboxes", "sandboxclaims")


async def requests(admin: Admin, verb: str) -> dict[str, float]:
    """Returns how many requests of that verb the API server has counted, by resource."""
    counts = dict.fromkeys(RESOURCES, 0.0)
    for labels, count in SERIES.findall(await admin.text("/metrics")):
        for resource in RESOURCES:
            if f'resource="{resource}"' in labels and f'verb="{verb}"' in labels:
                counts[resource] += float(count)
    return counts


async def test_the_first_lists_come_as_streams(cluster: Cluster) -> None:
    cluster.ours()
    admin, ns = cluster.admin, await cluster.namespace()
    for number in range(3):
        await launch(admin, ns, f"box-{number}", f"10.11.0.{number}")
    listed = await requests(admin, "LIST")

    async with watching(cluster.access, ns) as running:
        await running.until_ready()
        assert running.index.ready_count() == 3
        assert await requests(admin, "LIST") == listed
        # The same watch goes on with what comes after its list.
        await launch(admin, ns, "later", "10.11.0.9")
        await until(lambda: running.state("later", ns) is State.READY)
        assert [(each.lists, each.watches) for each in running.discovery.reflectors()] == [
            (1, 1)
        ] * 3
    assert min((await requests(admin, "WATCH")).values()) >= 1


async def test_managed_fields_are_where_they_are_looked_for(cluster: Cluster) -> None:
    admin, ns = cluster.admin, await cluster.namespace()
    await launch(admin, ns, "box", "10.14.0.1")
    for path in (f"/api/v1/namespaces/{ns}/pods", f"{SANDBOXES}/namespaces/{ns}/sandboxes"):
        text = await admin.text(f"{path}?watch=true&timeoutSeconds=1")
        lines = text.encode().splitlines()
        assert lines
        for line in lines:
            whole, left = orjson.loads(line), orjson.loads(without_managed_fields(line))
            assert whole["object"]["metadata"].pop("managedFields")
            assert left == whole


async def test_a_store_that_was_restored_is_listed_again_though_the_server_keeps_silent(
    cluster: Cluster,
) -> None:
    local = cluster.ours()
    admin, ns = cluster.admin, await cluster.namespace()
    await launch(admin, ns, "kept", "10.12.0.1")
    data, backup = local.folder / "etcd", local.folder / "etcd.backup"
    await local.restart(while_down=lambda: shutil.copytree(data, backup))
    pace: Pace = replace(PACE, history_check_s=1.0, watch_timeout_s=600.0)

    async with watching(cluster.access, ns, pace=pace) as running:
        await running.until_ready()
        for number in range(20):
            await launch(admin, ns, f"lost-{number}", f"10.12.1.{number}")
        await until(lambda: running.index.ready_count() == 21)

        def restore() -> None:
            shutil.rmtree(data)
            backup.rename(data)

        await local.restart(while_down=restore)

        await until(lambda: len(list(running.index)) == 1, timeout_s=60)
        assert running.state("kept", ns) is State.READY
        reflectors = running.discovery.reflectors()
        await until(lambda: all(each.phase is Phase.WATCHING for each in reflectors), timeout_s=20)
        assert running.discovery.watch_restarts["pods", "expired"] >= 1
        await launch(admin, ns, "next", "10.12.0.2")
        await until(lambda: running.state("next", ns) is State.READY, timeout_s=20)
