"""What passes through a staged worker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench import heads
from bench.heads import ITEM_BODY, Caller
from bench.plane_cases import PLANE_CASES, PlaneCase
from bench.plane_stage import Stage, Wire, perform
from bench.plane_traffic import (
    Body,
    Messages,
    NotThroughError,
    Requests,
    answer_with_many_headers,
    chunked_answer,
)
from bench.sandbox import ITEM_ANSWER

SMALL = [case for case in PLANE_CASES if case.sandboxes == 1]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_what_is_timed_comes_through_whole(case: PlaneCase) -> None:
    async def act(stage: Stage) -> float:
        traffic = case.make(stage)
        await traffic.prepare()
        traffic.run()
        traffic.check()
        return traffic.units

    quiet = {**case.settings, "access-log": "false"}
    assert perform(act, quiet) > 0


def test_sandboxes_in_turn_are_each_dialled_before_anything_is_timed() -> None:
    async def act(stage: Stage) -> None:
        callers = [Caller(f"box-{n}", stage.token) for n in range(40)]
        requests = heads.gets_in_turn(callers)
        traffic = Requests(stage, requests, answer=ITEM_ANSWER, connections=8, warm_up=40)
        await traffic.prepare()
        traffic.run()
        traffic.check()

    perform(act, sandboxes=40)


def test_requests_that_are_not_answered_at_once_are_an_error() -> None:
    async def act(stage: Stage) -> None:
        requests = heads.gets_in_turn([Caller(f"box-{n}", stage.token) for n in range(8)])
        traffic = Requests(stage, requests, answer=ITEM_ANSWER, connections=4)
        traffic.run()

    with pytest.raises(NotThroughError, match="not answered at once"):
        perform(act, sandboxes=8)


def test_an_answer_that_is_not_the_sandboxes_own_is_an_error() -> None:
    async def act(stage: Stage) -> None:
        requests = heads.different_gets(Caller("box-0", "wrong"), 8)
        await Requests(stage, requests, answer=ITEM_ANSWER, connections=4).prepare()

    with pytest.raises(NotThroughError):
        perform(act)


class Altered(Wire):
    """Loses the first byte of what is written."""

    def write(self, data: bytes | list[bytes]) -> None:
        super().write((b"".join(data) if isinstance(data, list) else data)[1:])

    writelines = write


@pytest.mark.parametrize(
    "make",
    [
        lambda stage, caller: Messages(stage, caller, size=64, connections=2),
        lambda stage, caller: Body(stage, caller, up=False, chunked=True),
    ],
    ids=["messages", "body"],
)
def test_bytes_that_were_changed_on_the_way_are_an_error(
    make: Callable[[Stage, Caller], Messages | Body], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(stage: Stage) -> None:
        traffic = make(stage, Caller("box-0", stage.token))
        await traffic.prepare()
        monkeypatch.setattr(Wire, "write", Altered.write)
        monkeypatch.setattr(Wire, "writelines", Altered.write)
        traffic.check()

    with pytest.raises((NotThroughError, TypeError)):
        perform(act)


def test_ready_answers_are_whole() -> None:
    chunked, many = chunked_answer(ITEM_BODY), answer_with_many_headers(ITEM_BODY, 3)

    assert chunked.endswith(b"\r\n0\r\n\r\n")
    assert many.count(b"X-App-Header-") == 3
    assert many.endswith(b"\r\n\r\n" + ITEM_BODY)


def test_the_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in PLANE_CASES}) == len(PLANE_CASES)
