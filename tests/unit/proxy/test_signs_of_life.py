"""What was seen of a pod when it was dialled."""

from __future__ import annotations

import socket

import pytest

from router.proxy import signs_of_life
from router.proxy.signs_of_life import Dialled, SignsOfLife

WEB, OTHER = ("pod-1", ("10.0.0.1",), 80), ("pod-1", ("10.0.0.1",), 81)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_port_that_answered_lately_is_life_and_silence_on_another_is_not_its_end() -> None:
    seen = SignsOfLife(clock=Clock())
    assert not seen.is_alive("pod-1")
    seen.answered(WEB)
    seen.silent(OTHER)
    assert seen.is_alive("pod-1")
    seen.silent(WEB)
    assert not seen.is_alive("pod-1")


def test_an_answer_of_long_ago_says_nothing() -> None:
    clock = Clock()
    seen = SignsOfLife(clock=clock)
    seen.answered(WEB)
    clock.now += 31.0
    assert not seen.is_alive("pod-1")


def test_a_quiet_pod_is_asked_on_the_other_port_that_answered_last() -> None:
    clock = Clock()
    seen = SignsOfLife(clock=clock)
    assert seen.port_to_ask(WEB) is None, "nothing is known of it"
    seen.answered(WEB)
    seen.answered(OTHER)
    clock.now += 1.0
    seen.answered(("pod-1", ("10.0.0.1",), 82))
    assert seen.port_to_ask(WEB) is None, "it answered lately"
    clock.now += 3600.0
    assert seen.port_to_ask(WEB) == 82
    seen.silent(("pod-1", ("10.0.0.1",), 82))
    assert seen.port_to_ask(WEB) == OTHER[2]
    seen.silent(OTHER)
    assert seen.port_to_ask(WEB) is None, "its own answer of then says nothing now"


def test_the_address_that_answered_is_remembered_until_the_pod_leaves() -> None:
    seen = SignsOfLife()
    seen.answered(WEB, "10.0.0.1")
    seen.answered(OTHER)
    assert seen.address_of("pod-1") == "10.0.0.1"
    seen.forget("pod-1")
    assert (seen.address_of("pod-1"), seen.is_alive("pod-1")) == ("", False)


def test_strangers_cannot_make_it_grow() -> None:
    seen = SignsOfLife()
    for port in range(1000):
        seen.answered(("pod-1", (), port))
    assert len(seen._ports["pod-1"]) == 64
    for number in range(20_000):
        seen.answered((f"pod-{number}", (), 80))
    assert len(seen._ports) == 16_384


def test_what_the_last_dial_of_each_port_came_to_is_remembered() -> None:
    clock = Clock()
    seen = SignsOfLife(clock=clock)
    seen.dialled(WEB)
    seen.dialled(WEB, "connect_refused")
    clock.now += 3.0
    assert seen.last_seen(WEB) == Dialled(3.0, "connect_refused")
    assert seen.last_seen(OTHER) is None
    assert not seen.is_alive("pod-1"), "a note for people is no evidence"


def test_of_many_dials_the_oldest_is_forgotten_first() -> None:
    seen = SignsOfLife(clock=Clock())
    for number in range(4097):
        seen.dialled((f"pod-{number}", (), 80))
        seen.dialled(("pod-0", (), 80))
    assert seen.last_seen(("pod-0", (), 80)) is not None
    assert seen.last_seen(("pod-1", (), 80)) is None
    assert seen.last_seen(("pod-4096", (), 80)) is not None


async def test_a_port_that_is_asked_is_alive_when_it_accepts_or_refuses() -> None:
    seen = SignsOfLife(clock=Clock())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        key = ("pod-1", ("127.0.0.1",), listening.getsockname()[1])
        await seen.ask(key, "127.0.0.1", 0.02)
        assert seen.is_alive("pod-1")
    seen.silent(key)
    await seen.ask(key, "127.0.0.1", 0.02)
    assert seen.is_alive("pod-1")


async def test_a_port_that_cannot_be_reached_is_silent() -> None:
    seen = SignsOfLife(clock=Clock())
    seen.answered(WEB)
    await seen.ask(WEB, "255.255.255.255", 0.02)
    assert not seen.is_alive("pod-1")


async def test_without_descriptors_nothing_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = SignsOfLife(clock=Clock())
    seen.answered(WEB)

    def none_left(family: int) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(signs_of_life.socket, "socket", none_left)
    await seen.ask(WEB, "10.0.0.1", 0.0)
    assert seen.is_alive("pod-1")
