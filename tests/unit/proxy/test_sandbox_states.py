"""The states of a connection to a sandbox: what may follow each, and that a wrong step is an assertion."""

from __future__ import annotations

import pytest

from router.proxy.sandbox_states import NEXT, State
from tests.unit.proxy.stage import Stage


def test_each_state_has_its_row_and_can_be_closed() -> None:
    assert len(NEXT) == len(State)
    assert all(State.CLOSED in following for following in NEXT)


def test_nothing_but_a_close_follows_a_tunnel_or_the_close() -> None:
    assert NEXT[State.TUNNEL] == NEXT[State.CLOSED] == (State.CLOSED,)


def test_a_request_can_be_sent_only_on_an_idle_connection() -> None:
    assert [state for state in State if State.AWAITING in NEXT[state]] == [State.IDLE]


def test_a_wrong_step_is_an_assertion() -> None:
    _, sandbox = Stage().talk()
    sandbox.upstream.close()
    with pytest.raises(AssertionError):
        sandbox.upstream.release()
