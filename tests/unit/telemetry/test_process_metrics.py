import os
import time

from router.telemetry.metric_catalogue import FAMILIES
from router.telemetry.metric_family import Source
from router.telemetry.metrics import Metrics
from router.telemetry.process_metrics import full_snapshot, process_snapshot


def number(snapshot, name):
    [(labels, [value])] = snapshot[name]
    assert labels == ()
    return value


def test_every_process_family_of_the_catalogue_is_found():
    expected = {family.name for family in FAMILIES if family.source is Source.PROCESS}

    assert set(process_snapshot()) == expected


def test_the_numbers_are_those_of_this_process():
    snapshot = process_snapshot()

    assert number(snapshot, "process_open_fds") == len(os.listdir("/proc/self/fd"))
    assert number(snapshot, "process_resident_memory_bytes") > 1_000_000
    assert number(snapshot, "process_start_time_seconds") <= time.time()


async def test_a_full_snapshot_has_both_kinds():
    snapshot = await full_snapshot(Metrics(version="1"))

    assert "process_open_fds" in snapshot
    assert "sandbox_router_requests_total" not in snapshot
    assert "sandbox_router_inflight_requests" in snapshot
