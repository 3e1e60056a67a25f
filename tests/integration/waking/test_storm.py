"""A storm: thousands of requests for hundreds of suspended sandboxes within a second, and an API server that takes few calls at a time.

Ten times as fast as the case that bench/storm.py measures, so that it takes seconds: 20 ms a call instead of 200, ten times the rates.
"""

from __future__ import annotations

import asyncio
import random
import resource
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.storm import (
    CALLS_AT_ONCE,
    NAMES,
    REQUESTS,
    SANDBOXES,
    SlowApi,
    asked,
)
from tests.integration.waking.door import Door, door

CALL_S = 0.02
NAMED = {"sandbox_waking", "wake_limited", "wake_unavailable", "sandbox_not_ready"}


@pytest.mark.alone
async def test_a_storm_costs_one_call_for_each_sandbox_and_everyone_is_answered(
    tmp_path: Path,
) -> None:
    flags = {
        "wake": "all",
        "wake_rate": "200",
        "wake_rate_per_namespace": "50",
        "waiting_room": "4000",
        "waiting_room_per_namespace": "400",
    }
    api = FakeKubernetes()
    slow = SlowApi(api, call_s=CALL_S)
    async with door(tmp_path, api=api, pace={"starts_s": 0.3}, **flags) as the:
        for name, namespace in NAMES:
            the.cluster.add(name, namespace=namespace)
        await the.until_seen(f"box-{SANDBOXES - 1}", "suspended")
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        answers = await asyncio.gather(*(_one(the, *NAMES[n % SANDBOXES]) for n in range(REQUESTS)))

        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
        codes = Counter(answers)
        assert codes.keys() <= {"200"} | NAMED, codes
        assert codes["200"] >= REQUESTS * 0.99, codes
        assert set(slow.patched.values()) == {1}, slow.patched.most_common(3)
        assert len(slow.patched) == SANDBOXES
        assert (slow.most <= CALLS_AT_ONCE, slow.refused) == (True, 0)
        for begin in slow.times:
            within = sum(begin <= at < begin + 1.0 for at in slow.times)
            assert within <= 2 * 200 + 200
        assert grown_kb < 200_000
        assert len(the.worker.gateway._connector.wakes or ()) == 0  # type: ignore[arg-type]


async def _one(the: Door, name: str, namespace: str) -> str:
    await asyncio.sleep(random.uniform(0.0, 1.0))
    async with asyncio.timeout(60):
        return await asked(*the.address, name, namespace)
