"""Who gets a place when the house is full, and who gives way."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from router.proxy.closing_connection import State as State
from router.proxy.door import Door
from router.proxy.options import ProxyOptions
from router.proxy.places import Places
from tests.unit.proxy.stage import GET, Client, Records, Stage, Wire, later
from tests.unit.proxy.test_places import two

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
REFUSED = b"POST / HTTP/1.1\r\nHost: a\r\nX-Sandbox-ID: no id\r\nContent-Length: 9\r\n\r\n"
LIMITS = ProxyOptions(header_timeout_s=10.0, keepalive_timeout_s=600.0)


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def full(*, places: int = 1) -> tuple[Stage, list[Client]]:
    """Returns a house in which everyone is busy."""
    stage = Stage(max_connections=places)
    clients = [stage.client() for _ in range(places)]
    for client in clients:
        client.send(GET)
    return stage, clients


def refusals(stage: Stage) -> int:
    return stage.records.events.count("connection_refused")


# --- outside --------------------------------------------------------------------------------


def test_when_all_are_busy_a_newcomer_is_told_so_in_a_moment_and_closed() -> None:
    stage, _ = full()
    refused = stage.client()
    assert refused.connection.deadline_at <= later(0.25)
    assert refusals(stage) == 0, "it may still be a check"
    refused.connection.on_deadline(0.0)
    answer = refused.received()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"X-Sandbox-Router-Error: overloaded\r\n" in answer
    assert b"Connection: close\r\n" in answer
    assert refused.is_closed
    assert refusals(stage) == 1


def test_a_newcomer_that_only_begins_to_ask_is_told_the_same() -> None:
    stage, _ = full()
    refused = stage.client()
    refused.send(b"G")
    assert refused.connection.deadline_at <= later(0.25), "a byte buys no time"
    refused.connection.on_deadline(0.0)
    assert refused.received().startswith(b"HTTP/1.1 503 ")


def test_when_all_are_busy_the_load_balancers_check_is_answered_and_counts_as_no_refusal() -> None:
    stage, _ = full()
    check = stage.client()
    check.send(HEALTH)
    assert check.received().startswith(b"HTTP/1.1 200 ")
    assert refusals(stage) == 0


def test_when_all_are_busy_nothing_else_is_answered() -> None:
    stage, _ = full()
    other = stage.client()
    other.send(GET)
    assert b"overloaded" in other.received()
    assert other.is_closed
    assert len(stage.shelf.opened) == 1
    assert refusals(stage) == 1


def test_who_asks_outside_is_let_in_when_a_place_became_free_meanwhile() -> None:
    stage, (busy,) = full()
    waiting = stage.client()
    assert waiting.connection.is_extra
    busy.leave()
    waiting.send(GET)
    assert waiting.connection.state is State.RELAYING
    assert not waiting.connection.is_extra
    assert stage.client().connection.is_extra, "it has the place"
    assert refusals(stage) == 0


def test_silent_ones_outside_give_way_to_newer_ones_the_oldest_first() -> None:
    stage, _ = full()
    extra = [stage.client() for _ in range(70)]
    assert [client.is_closed for client in extra] == [True] * 6 + [False] * 64
    assert extra[0].received().startswith(b"HTTP/1.1 503 ")
    assert refusals(stage) == 6
    check = stage.client()
    check.send(HEALTH)
    assert check.received().startswith(b"HTTP/1.1 200 ")


def test_checks_that_were_answered_outside_give_way_without_another_word() -> None:
    stage, _ = full()
    checks = [stage.client() for _ in range(64)]
    for check in checks:
        check.send(HEALTH)
        check.received()
    stage.client()
    assert [check.is_closed for check in checks] == [True] + [False] * 63
    assert checks[0].received() == b""


def test_who_is_about_to_speak_outside_stays_while_another_is_silent() -> None:
    stage, _ = full()
    near, far = socket.socketpair()
    with near, far:
        speaking = Client(stage.gateway, wire_on(near))
        far.send(HEALTH)
        silent = [stage.client() for _ in range(64)]
        assert (speaking.is_closed, silent[0].is_closed) == (False, True)


def test_when_all_outside_are_about_to_speak_the_oldest_goes_nevertheless() -> None:
    stage, _ = full()
    near, far = socket.socketpair()
    with near, far:
        far.send(HEALTH)
        extra = [Client(stage.gateway, wire_on(near)) for _ in range(65)]
        assert [client.is_closed for client in extra] == [True] + [False] * 64


def test_a_flood_that_leaves_nothing_behind_is_not_even_told() -> None:
    stage, _ = full()
    extra = [stage.client() for _ in range(1100)]
    assert len([client for client in extra if client.wire.is_aborted]) == 1100 - 1024
    for client in extra:
        client.leave()
    assert len(stage.clients) == 1
    assert not stage.client().wire.is_aborted


# --- who gives way --------------------------------------------------------------------------


def test_a_full_house_gives_up_who_never_asked_then_who_was_idle_longest() -> None:
    stage = Stage(max_connections=3)
    idle, silent, busy = stage.client(), stage.client(), stage.client()
    idle.send(HEALTH)
    busy.send(GET)
    assert not stage.client().connection.is_extra
    assert [client.is_closed for client in (idle, silent, busy)] == [False, True, False]
    newcomer = stage.client()
    newcomer.send(HEALTH)
    assert not newcomer.connection.is_extra


def test_who_never_asked_goes_in_the_order_of_coming() -> None:
    stage = Stage(max_connections=4)
    silent = [stage.client() for _ in range(4)]
    for gone in range(1, 4):
        stage.client()
        assert [client.is_closed for client in silent] == [True] * gone + [False] * (4 - gone)


def test_one_byte_of_a_head_keeps_no_place_before_who_is_idle_after_a_request() -> None:
    stage = Stage(max_connections=2)
    idle, trickling = stage.client(), stage.client()
    idle.send(HEALTH)
    trickling.send(b"G")
    newcomer = stage.client()
    assert not newcomer.connection.is_extra
    assert (idle.is_closed, trickling.is_closed) == (False, True)


def test_a_house_full_of_begun_heads_lets_newcomers_in() -> None:
    stage = Stage(max_connections=5)
    trickling = [stage.client() for _ in range(5)]
    for client in trickling:
        client.send(b"GET / HTTP/1.1\r\nHo")
    newcomer = stage.client()
    newcomer.send(GET)
    assert newcomer.connection.state is State.RELAYING


@pytest.mark.parametrize("first", [HEALTH, REFUSED + b"a body..."])
@pytest.mark.parametrize("then", [b"G", REFUSED + b"a"], ids=["a head", "a refused body"])
def test_who_takes_long_over_a_later_request_gives_way_last(
    clock: Clock, first: bytes, then: bytes
) -> None:
    stage = Stage(max_connections=2, limits=LIMITS)
    slow, busy = stage.client(), stage.client()
    busy.send(GET)
    slow.send(first)
    slow.received()
    slow.send(then)
    assert slow.connection.state in (State.HEAD, State.DISCARDING)
    assert stage.client().connection.is_extra, "it has only just begun"
    clock.passes(1.5)
    assert not stage.client().connection.is_extra
    assert (slow.is_closed, busy.is_closed) == (True, False)


def test_who_came_just_now_is_given_a_moment_to_ask_while_others_are_idle(clock: Clock) -> None:
    stage = Stage(max_connections=16)
    idle = [stage.client() for _ in range(15)]
    for client in idle:
        client.send(HEALTH)
        clock.passes(0.01)
    stage.clients.notice_who_left(1e9)
    fresh = stage.client()
    stage.client()
    assert (fresh.is_closed, idle[0].is_closed) == (False, True)
    clock.passes(1)
    stage.client()
    assert fresh.is_closed


def test_a_crowd_of_fresh_silent_ones_gives_way_before_anyone_idle(clock: Clock) -> None:
    stage = Stage(max_connections=16)
    idle = [stage.client() for _ in range(13)]
    for client in idle:
        client.send(HEALTH)
    crowd = [stage.client() for _ in range(103)]
    assert not any(client.is_closed for client in idle[3:])
    assert sum(client.is_closed for client in crowd) >= 97


def test_each_newcomer_closes_one_connection_whenever_that_one_really_ends() -> None:
    stage = Stage(max_connections=3)
    silent = [stage.client() for _ in range(3)]
    stage.client()
    silent[2].leave()
    stage.client()
    assert [client.is_closed for client in silent[:2]] == [True, False]


def test_who_was_idle_when_that_was_looked_at_and_is_no_more_keeps_its_place(clock: Clock) -> None:
    stage = Stage(max_connections=3)
    clients = [stage.client() for _ in range(3)]
    for client in clients:
        client.send(HEALTH)
        clock.passes(1)
    stage.client().send(GET)
    assert clients[0].is_closed
    clients[1].send(HEALTH)
    clock.passes(1)
    stage.client().send(GET)
    assert [client.is_closed for client in clients] == [True, False, True]


def test_who_became_idle_after_the_last_look_is_found_in_a_moment(clock: Clock) -> None:
    stage, (busy, other) = full(places=2)
    stage.client()
    stage.sandbox().send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert other.connection.state is State.IDLE
    assert stage.client().connection.is_extra, "everyone was looked at just now"
    clock.passes(0.06)
    assert not stage.client().connection.is_extra
    assert (busy.is_closed, other.is_closed) == (False, True)


def test_a_flood_of_newcomers_looks_at_everyone_only_now_and_then(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    search = Door._search

    def counted(door: Door, now: float) -> None:
        nonlocal looks
        looks += 1
        search(door, now)

    monkeypatch.setattr(Door, "_search", counted)
    stage, _ = full(places=2)
    for _ in range(100):
        stage.client()
        clock.passes(0.001)
    assert looks == 2


def wire_on(sock: socket.socket) -> Wire:
    class Real(Wire):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return sock if name == "socket" else super().get_extra_info(name, default)

    return Real()


def test_the_kernel_is_asked_whether_a_silent_ones_request_is_on_its_way() -> None:
    stage = Stage(max_connections=2)
    near, far = socket.socketpair()
    with near, far:
        speaking = Client(stage.gateway, wire_on(near))
        silent = stage.client()
        far.send(b"GET / HT")
        assert not stage.client().connection.is_extra
        assert (speaking.is_closed, silent.is_closed) == (False, True)


def test_a_refused_connection_gives_up_no_place_when_it_ends() -> None:
    stage, (first,) = full()
    stage.client().leave()
    assert len(stage.clients) == 1
    first.leave()
    assert not stage.client().connection.is_extra, "the place is free again"


def test_no_limit_is_no_limit() -> None:
    stage = Stage(max_connections=0)
    assert not any(stage.client().is_closed for _ in range(50))


# --- handshakes -----------------------------------------------------------------------------


class Handshake:
    """A TLS client, as its door sees it."""

    def __init__(self, stage: Stage) -> None:
        self.deadline_at = 0.0
        self.has_place = self.is_extra = self.has_asked = self.is_ended = False
        self._stage = stage
        stage.clients.handshake_begins(self)

    def is_silent(self) -> bool:
        return not self.has_asked

    def give_way(self) -> bool:
        if not self.has_asked:
            self.abort()
        return self.is_ended

    def turn_away(self) -> None:
        self._stage.clients.turned_away(self)
        self.abort()

    def abort(self) -> None:
        self.is_ended = True

    def on_deadline(self, now: float) -> None:
        self.abort()

    def greet(self) -> None:
        self.has_asked = True
        self._stage.clients.greeted(self)

    def leave(self) -> None:
        self._stage.clients.handshake_ends(self)


@pytest.fixture
def house() -> Stage:
    return Stage(max_connections=2, limits=LIMITS)


def test_handshakes_take_places_from_the_accept_on_and_give_them_back(house: Stage) -> None:
    handshakes = [Handshake(house) for _ in range(2)]
    assert len(house.clients) == 2
    assert later(9) < handshakes[0].deadline_at <= later(10)
    for handshake in handshakes:
        handshake.greet()
    assert house.client().connection.is_extra
    for handshake in handshakes:
        handshake.leave()
        handshake.leave()
    assert len(house.clients) == 1
    assert not house.client().connection.is_extra
    assert house.records.events.count("connection_opened") == 4
    assert house.records.events.count("connection_closed") == 2


def test_silent_handshakes_and_silent_connections_give_way_in_the_order_of_coming(
    house: Stage,
) -> None:
    handshake, plain = Handshake(house), house.client()
    house.client()
    assert (handshake.is_ended, plain.is_closed) == (True, False)
    Handshake(house)
    assert plain.is_closed


def test_a_handshake_that_goes_on_for_a_second_gives_way_before_anyone_idle(
    house: Stage, clock: Clock
) -> None:
    handshake, idle = Handshake(house), house.client()
    handshake.greet()
    idle.send(HEALTH)
    clock.passes(0.9)
    waiting = house.client()
    assert (handshake.is_ended, idle.is_closed) == (False, True)
    waiting.send(GET)
    clock.passes(0.2)
    house.client()
    assert handshake.is_ended


def test_a_handshake_that_finds_no_place_has_a_second_to_become_a_check() -> None:
    stage, _ = full()
    handshake = Handshake(stage)
    assert handshake.is_extra
    assert later(0.5) < handshake.deadline_at <= later(1)
    handshake.greet()
    handshake.leave()
    check = stage.client(is_tls=True)
    check.send(HEALTH)
    assert check.received().startswith(b"HTTP/1.1 200 ")


def test_silent_handshakes_outside_give_way_as_others_do() -> None:
    stage, _ = full()
    handshakes = [Handshake(stage) for _ in range(65)]
    assert [handshake.is_ended for handshake in handshakes] == [True] + [False] * 64
    assert refusals(stage) == 1


def test_draining_ends_silent_handshakes_and_waits_for_the_others(house: Stage) -> None:
    silent, speaking = Handshake(house), Handshake(house)
    speaking.greet()
    assert house.clients.drain() == 1
    assert (silent.is_ended, speaking.is_ended) == (True, False)
    house.clients.end_now()
    assert speaking.is_ended


# --- workers --------------------------------------------------------------------------------


def test_the_limit_is_the_pods_and_a_worker_may_take_what_another_leaves() -> None:
    here, there = (Stage(places=places) for places in two(4))
    clients = [here.client() for _ in range(3)]
    for client in clients:
        client.send(GET)
    there.client().send(GET)
    assert here.client().connection.is_extra
    assert there.client().connection.is_extra


def test_a_worker_that_finds_only_others_idle_takes_their_place_and_they_give_it_up() -> None:
    here, there = (Stage(places=places) for places in two(4))
    idle = [here.client() for _ in range(3)]
    for client in idle:
        client.send(HEALTH)
    there.client().send(GET)
    here.clients.notice_who_left(1e9)
    newcomer = there.client()
    assert not newcomer.connection.is_extra
    newcomer.send(GET)
    here.deadlines.check()
    assert [client.is_closed for client in idle] == [True, False, False]
    here.deadlines.check()
    assert not idle[1].is_closed, "one was taken, and one was given up"


def test_its_repr_says_how_full_it_is() -> None:
    door = Door(
        places=Places(limit=2),
        inside=(),
        first_request_s=1.0,
        telemetry=Records(),  # type: ignore[arg-type]
    )
    assert repr(door) == "<Door <Places taken=0 limit=2> outside=0>"
