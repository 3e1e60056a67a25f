"""The schedule of a fixed rate."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from bench.pacing import Pacer


@pytest.mark.alone
async def test_slots_come_at_their_rate_and_in_order() -> None:
    moments: list[int] = []
    pacer = Pacer(1_000, moments.append)

    pacer.start()
    await asyncio.sleep(0.3)
    pacer.stop()

    assert 250 <= len(moments) <= 310
    assert {b - a for a, b in itertools.pairwise(moments)} == {1_000_000}


async def test_a_loop_that_was_held_up_gets_the_slots_it_missed() -> None:
    moments: list[int] = []
    pacer = Pacer(1_000, moments.append)

    pacer.start()
    time.sleep(0.1)
    await asyncio.sleep(0.01)
    pacer.stop()

    assert len(moments) >= 95


async def test_after_the_stop_no_slot_comes() -> None:
    moments: list[int] = []
    pacer = Pacer(1_000, moments.append)
    pacer.start()
    await asyncio.sleep(0.02)
    pacer.stop()
    pacer.stop()
    seen = len(moments)

    await asyncio.sleep(0.05)

    assert len(moments) == seen
