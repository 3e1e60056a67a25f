"""What becomes of requests for a suspended sandbox, in the order of the questions: who, may they know, may they wake."""

from __future__ import annotations

import time
from typing import Any

import pytest

from router.errors import (
    Forbidden,
    RouterError,
    SandboxFinished,
    SandboxReplaced,
    SandboxSuspended,
    SandboxWaking,
    Unauthenticated,
)
from router.proxy.absence import Absence, no_table_yet
from router.proxy.options import NEVER, ProxyOptions
from router.proxy.request import AwaitSandbox, AwaitWake, AwaitWakeRight
from router.routing.endpoint import Endpoint, State
from tests.fakes.deciders import DecidesEachTime
from tests.unit.proxy.test_admission import REF, Door, token

WAKE = [{"namespace": "team-a", "name": "box", "wake": True}]
NAVIGATES = {"Sec_Fetch_Mode": "navigate"}


def asleep(**facts: Any) -> Endpoint:
    return Endpoint(REF, "", State.SUSPENDED, sandbox_uid="s-1", reason="Slept", **facts)


def door(endpoint: Endpoint | None = None, **options: Any) -> Door:
    opened = Door(**{"wakes": "all", "wake_timeout_s": 60.0, **options})
    opened.index.upsert(endpoint or asleep())
    return opened


def refusal(opened: Door, token: str, **how: str) -> RouterError:
    with pytest.raises(RouterError) as told:
        opened.ask(token, **how)
    return told.value


def test_who_has_the_right_wakes_and_waits_as_long_as_the_operator_lets_them() -> None:
    pending = door().ask(token(sandboxes=WAKE))
    assert isinstance(pending, AwaitWake)
    assert pending.endpoint.sandbox_uid == "s-1"
    assert pending.until == pending.wanted_until
    assert 59.0 < pending.until - time.monotonic() <= 60.0


def test_a_requests_own_time_bounds_its_wait() -> None:
    pending = door().ask(token(sandboxes=WAKE), X_Sandbox_Timeout="5")
    assert isinstance(pending, AwaitWake)
    assert 4.0 < pending.wanted_until - time.monotonic() <= 5.0


def test_reading_does_not_imply_waking() -> None:
    told = refusal(door(), token())
    assert isinstance(told, SandboxSuspended)
    assert told.detail == SandboxSuspended.default_detail, "the client learns no more than before"
    assert told.reason == "Slept; the caller has no right to wake it (`wake: true`)"


def test_who_may_not_see_it_learns_nothing_and_wakes_nothing() -> None:
    assert isinstance(refusal(door(), token(sandboxes=[])), Forbidden)
    other = [{"namespace": "team-b", "name": "*", "wake": True}]
    assert isinstance(refusal(door(), token(sandboxes=other)), Forbidden)
    with pytest.raises(Unauthenticated):
        door().ask(None)


def test_a_right_to_wake_counts_for_the_calls_that_its_grant_covers() -> None:
    grants = [
        {"namespace": "team-a", "name": "box", "methods": ["GET"]},
        {"namespace": "team-a", "name": "box", "methods": ["POST"], "wake": True},
    ]
    opened = door()
    assert isinstance(refusal(opened, token(sandboxes=grants)), SandboxSuspended)
    posted = opened.ask(token(sandboxes=grants), line="POST / HTTP/1.1")
    assert isinstance(posted, AwaitWake)


def test_a_right_to_another_sandbox_of_that_name_wakes_nothing() -> None:
    def grant(uid: str) -> list[dict[str, Any]]:
        return [{"namespace": "team-a", "name": "box", "uid": uid, "wake": True}]

    assert isinstance(refusal(door(), token(sandboxes=grant("s-0"))), SandboxSuspended)
    assert isinstance(door().ask(token(sandboxes=grant("s-1"))), AwaitWake)


def test_a_token_older_than_the_sandbox_allows_wakes_nothing() -> None:
    opened = door(asleep(tokens_not_before=time.time() + 60))
    assert isinstance(refusal(opened, token(sandboxes=WAKE)), Unauthenticated)


def test_a_precondition_comes_first() -> None:
    told = refusal(door(), token(sandboxes=WAKE), X_Sandbox_UID="s-0")
    assert isinstance(told, SandboxReplaced)


@pytest.mark.parametrize("wakes", ["", "annotated"])
def test_a_sandbox_that_is_not_to_be_woken_is_suspended_as_ever(wakes: str) -> None:
    told = refusal(door(wakes=wakes), token(sandboxes=WAKE))
    assert isinstance(told, SandboxSuspended)
    assert told.reason == "Slept" or "annotated" in told.reason


def test_a_request_that_never_wakes_asks_nobody_about_it() -> None:
    told = refusal(door(), token(sandboxes=WAKE), line="OPTIONS / HTTP/1.1")
    assert isinstance(told, SandboxSuspended)
    assert told.reason == "Slept; OPTIONS never wakes"


def test_what_is_past_its_end_is_finished_without_a_call() -> None:
    past = door(asleep(shutdown_at=time.time() - 1))
    assert isinstance(refusal(past, token(sandboxes=WAKE)), SandboxFinished)
    assert isinstance(refusal(past, token()), SandboxFinished)
    soon = door(asleep(shutdown_at=time.time() + 60))
    assert isinstance(soon.ask(token(sandboxes=WAKE)), AwaitWake)
    off = door(asleep(shutdown_at=time.time() - 1), wakes="")
    assert isinstance(refusal(off, token(sandboxes=WAKE)), SandboxSuspended), "off: as ever"


def test_all_waits_of_a_request_together_are_bounded() -> None:
    opened = door()
    request = opened.request(token(sandboxes=WAKE))
    assert isinstance(opened.admission.step(request), AwaitWake)
    assert request.waits_since is not None
    request.waits_since -= 60.0
    with pytest.raises(SandboxWaking) as told:
        opened.admission.step(request)
    assert told.value.page_about == "", "a program gets JSON"


def test_a_browser_gets_a_page_after_two_seconds_while_its_wake_goes_on() -> None:
    opened = door()
    request = opened.request(token(sandboxes=WAKE), **NAVIGATES)
    pending = opened.admission.step(request)
    assert isinstance(pending, AwaitWake)
    assert 1.0 < pending.until - time.monotonic() <= 2.0
    assert pending.wanted_until - pending.until > 50.0
    assert request.waits_since is not None
    request.waits_since -= 2.0
    with pytest.raises(SandboxWaking) as told:
        opened.admission.step(request)
    assert told.value.page_about == "team-a/box"


def test_a_browser_that_sends_a_form_just_waits() -> None:
    pending = door().ask(
        token(sandboxes=WAKE), line="POST / HTTP/1.1", Content_Length="0", **NAVIGATES
    )
    assert isinstance(pending, AwaitWake)
    assert pending.until == pending.wanted_until


def test_a_sandbox_on_its_way_back_is_waited_for_as_long_as_a_suspended_one() -> None:
    starting = Endpoint(REF, "", State.STARTING, resumed_at=time.monotonic())
    pending = door(starting, wait_for_ready_s=1.0).ask(token())
    assert isinstance(pending, AwaitSandbox)
    assert pending.until - time.monotonic() > 50.0


def test_a_sandbox_that_starts_for_the_first_time_is_waited_for_as_ever() -> None:
    pending = door(Endpoint(REF, "", State.STARTING), wait_for_ready_s=1.0).ask(token())
    assert isinstance(pending, AwaitSandbox)
    assert pending.until - time.monotonic() <= 1.0


class Asks(DecidesEachTime):
    """An Authorizer that has to ask whether the caller may wake."""

    def admit(self, *about: Any) -> None:
        return None

    def may_wake(self, *about: Any) -> Any:
        async def answer() -> bool:
            return self.says

        return answer()

    says = True


@pytest.mark.parametrize("says", [True, False])
async def test_a_right_that_is_asked_for_elsewhere_is_awaited(says: bool) -> None:
    opened = door()
    opened.authorizer = Asks()
    opened.authorizer.says = says
    opened.admission = opened._admission("", ProxyOptions(wakes="all", wake_timeout_s=60.0))
    request = opened.request(token())
    pending = opened.admission.step(request)
    assert isinstance(pending, AwaitWakeRight)
    answer = await pending.answer
    if says:
        opened.admission.wake_right(request, pending, answer)
        assert isinstance(opened.admission.step(request), AwaitWake)
    else:
        with pytest.raises(SandboxSuspended):
            opened.admission.wake_right(request, pending, answer)


def test_before_the_first_table_nothing_is_final() -> None:
    assert no_table_yet().retryable


def test_it_says_what_it_is() -> None:
    opened = door()
    absence = Absence(
        source=opened.admission._source,
        authorizer=opened.authorizer,
        options=ProxyOptions(wakes="all", wake_timeout_s=NEVER),
    )
    assert "all=True" in repr(absence)


def test_who_waited_for_a_wake_is_told_of_it_however_late_the_end_is_noticed() -> None:
    opened = door(Endpoint(REF, "", State.STARTING, resumed_at=time.monotonic() - 61.0))
    request = opened.request(token())
    request.outcome.woke = True
    request.waits_since = time.monotonic() - 61.0
    with pytest.raises(SandboxWaking):
        opened.admission.step(request)
