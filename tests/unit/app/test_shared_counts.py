"""Counts that all workers of a pod share, over real memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from router.app import shared_counts as module
from router.app.shared_counts import REQUESTS, TUNNELS, WAITING, Share, SharedCounts
from router.errors import SandboxNotReady, TooManyRequests
from router.proxy.slots import Slots
from router.routing.elsewhere import Elsewhere
from router.routing.endpoint import SandboxRef
from router.routing.waiting import WaitingRoom

SECRET = b"0123456789abcdef"


@pytest.fixture
def counts() -> Iterator[SharedCounts]:
    counts = SharedCounts.create(workers=3)
    yield counts
    counts.close()


def view(counts: SharedCounts, number: int, kind: str = REQUESTS) -> Elsewhere:
    return counts.of(kind, counts.share(number, SECRET))


def test_each_worker_sees_what_the_others_hold_and_not_its_own(counts: SharedCounts) -> None:
    first, second, third = (view(counts, number) for number in range(3))
    first.add("box", 2)
    second.add("box", 3)
    assert [each.others("box") for each in (first, second, third)] == [3, 2, 5]
    second.add("box", -3)
    assert first.others("box") == 0


def test_keys_and_kinds_are_counted_apart(counts: SharedCounts) -> None:
    view(counts, 0, REQUESTS).add("box", 1)
    assert view(counts, 1, REQUESTS).others("other") == 0
    assert view(counts, 1, TUNNELS).others("box") == 0
    assert view(counts, 1, WAITING).others("box") == 0


def test_what_a_dead_worker_held_is_gone_when_its_region_is_emptied(counts: SharedCounts) -> None:
    view(counts, 0).add("box", 5)
    view(counts, 1).add("box", 1)
    counts.clear(0)
    assert view(counts, 2).others("box") == 1


def test_no_count_is_ever_too_low_and_few_are_too_high(counts: SharedCounts) -> None:
    """A key counts too high only where it shares both of its cells."""
    holder, reader = view(counts, 0), view(counts, 1)
    for number in range(1000):
        holder.add(f"box-{number}", 1)
    assert all(reader.others(f"box-{number}") >= 1 for number in range(1000))
    wrong = sum(reader.others(f"idle-{number}") > 0 for number in range(10_000))
    assert wrong < 50


def test_nobody_can_work_out_whose_cells_a_name_shares(counts: SharedCounts) -> None:
    one = counts.of(REQUESTS, Share(-1, 0, 3, b"one"))
    other = counts.of(REQUESTS, Share(-1, 0, 3, b"other"))
    assert one._places("box") != other._places("box")
    assert module.new_secret() != module.new_secret()


def test_another_process_sees_it_too(counts: SharedCounts) -> None:
    share = counts.share(1, SECRET)
    program = (
        "from router.app.shared_counts import Share, join;"
        f"counts = join(Share({share.fd}, 1, 3, {SECRET!r}));"
        "counts.requests.add('box', 4); counts.waiting.add('team', 1);"
        "print(counts.requests.others('box'))"
    )
    view(counts, 0).add("box", 2)
    os.set_inheritable(share.fd, True)
    shown = subprocess.run(
        [sys.executable, "-c", program], pass_fds=(share.fd,), capture_output=True, text=True
    )
    assert shown.stdout == "2\n", shown.stderr
    assert view(counts, 0).others("box") == 4
    assert view(counts, 0, WAITING).others("team") == 1


def test_a_limit_of_requests_holds_for_all_workers_together(counts: SharedCounts) -> None:
    first, second = (
        Slots(limit=3, refusal="full", elsewhere=view(counts, number)) for number in range(2)
    )
    places = [first.take("box"), first.take("box"), second.take("box")]
    for slots in (first, second):
        with pytest.raises(TooManyRequests):
            slots.take("box")
    assert second.take("other") is not None
    assert places[0] is not None
    places[0].give_back()
    assert second.take("box") is not None


def test_the_waiting_room_is_one_for_all_workers(counts: SharedCounts) -> None:
    first, second = (
        WaitingRoom(places=3, places_per_namespace=2, elsewhere=view(counts, number, WAITING))
        for number in range(2)
    )
    box, foreign = SandboxRef("team-a", "box"), SandboxRef("team-b", "box")
    first.enter(box, _nobody)
    second.enter(box, _nobody)
    with pytest.raises(SandboxNotReady) as caught:
        first.enter(box, _nobody)
    assert "namespace" in caught.value.reason
    second.enter(foreign, _nobody)
    with pytest.raises(SandboxNotReady) as caught:
        first.enter(SandboxRef("team-c", "box"), _nobody)
    assert caught.value.reason == "the waiting room is full"
    second.wake([box])
    first.enter(SandboxRef("team-c", "box"), _nobody).cancel()
    first.enter(SandboxRef("team-c", "box"), _nobody)


def _nobody() -> None:
    """Is woken by nobody."""
