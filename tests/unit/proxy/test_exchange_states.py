"""The states of an exchange: what may follow each, and that a wrong step is an assertion."""

from __future__ import annotations

import pytest

from router.proxy.exchange_states import RECEIVING_NEXT, SENDING_NEXT, Receiving, Sending
from tests.unit.proxy.stage import Stage


def test_each_state_has_its_row() -> None:
    assert len(SENDING_NEXT) == len(Sending)
    assert len(RECEIVING_NEXT) == len(Receiving)


def test_every_response_can_end_and_nothing_follows_its_end() -> None:
    assert all(Receiving.ENDED in RECEIVING_NEXT[s] for s in Receiving if s is not Receiving.ENDED)
    assert RECEIVING_NEXT[Receiving.ENDED] == ()


def test_a_request_is_sent_again_only_from_the_state_before_its_response() -> None:
    assert Sending.HELD in SENDING_NEXT[Sending.SENT]
    assert Receiving.AWAITED not in RECEIVING_NEXT[Receiving.BODY]


def test_a_wrong_step_is_an_assertion() -> None:
    client, _ = Stage().talk()
    with pytest.raises(AssertionError):
        client.exchange._receiving_becomes(Receiving.AWAITED)
    with pytest.raises(AssertionError):
        client.exchange._sending_becomes(Sending.BODY)
