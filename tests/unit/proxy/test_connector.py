"""The slow way to an upstream: waiting, authorising later, dialling, and again when the pod changes under way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from router.auth.anonymous import ANONYMOUS
from router.auth.authenticator import Authenticated, Credentials
from router.auth.authorizer import Permit
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.policy import CurrentPolicy
from router.auth.principal import Grant, Principal
from router.discovery.dns import DnsSource
from router.errors import AuthUnavailable, Forbidden, Unauthenticated
from router.proxy.options import ProxyOptions
from router.proxy.racing import ConnectFailed
from router.proxy.sandbox_states import State as ConnectionState
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.names import Unresolved
from tests.fakes.deciders import DecidesEachTime
from tests.unit.proxy.stage import BOX, GET, Client, Stage

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LATE = SandboxRef("default", "late")
TO_LATE = GET.replace(b"ID: box", b"ID: late")


def late(state: State, *, uid: str = "pod-9", reason: str = "") -> Endpoint:
    addresses = ("10.0.0.9",) if state is State.READY else ()
    return Endpoint(LATE, uid, state, addresses, sandbox_uid="sandbox-9", reason=reason)


def refused() -> ConnectFailed:
    return ConnectFailed("connect_refused", "10.0.0.5:8888 refused the connection")


def dead() -> ConnectFailed:
    return ConnectFailed("connect_timeout", "10.0.0.5:8888 did not answer", dead_address="10.0.0.5")


class Slow(Stage):
    """A stage that has no idle connection, so that everything is dialled."""

    def __init__(self, *, limits: ProxyOptions | None = None, **options: Any) -> None:
        super().__init__(limits=limits or ProxyOptions(wait_for_ready_s=10.0), **options)
        self.shelf.has_idle = False

    async def ask(self, request: bytes = GET) -> Client:
        """Returns a client once its request has got what it waits for: an upstream, an answer or a place to wait."""
        client = self.client()
        opened, ended = len(self.shelf.opened), len(self.records.outcomes)
        client.send(request)
        await self.until(
            lambda: (
                len(self.shelf.opened) > opened
                or len(self.records.outcomes) > ended
                or self.index.waiting()
            )
        )
        return client


def status_and_code(client: Client) -> tuple[int, str]:
    answer = client.received()
    code = answer.partition(b"X-Sandbox-Router-Error: ")[2].partition(b"\r\n")[0]
    return int(answer[9:12]), code.decode()


# --- waiting for a sandbox ------------------------------------------------------------------


async def test_a_starting_sandbox_is_waited_for_and_then_dialled() -> None:
    stage = Slow()
    stage.index.upsert(late(State.STARTING))
    client = await stage.ask(TO_LATE)
    assert stage.index.waiting() == 1
    stage.index.upsert(late(State.READY))
    await stage.until(lambda: stage.shelf.opened)
    stage.sandbox().send(ANSWER)
    assert client.received() == ANSWER
    outcome = stage.records.outcome
    assert outcome.wait_s is not None
    assert outcome.connect_s is not None
    assert stage.index.waiting() == 0


async def test_a_sandbox_that_is_ready_before_its_waiter_has_sat_down_is_dialled_at_once() -> None:
    stage = Slow()
    stage.index.upsert(late(State.STARTING))
    client = stage.client()
    client.send(TO_LATE)
    stage.index.upsert(late(State.READY))  # in the same turn of the loop: nothing changes any more
    await stage.until(lambda: stage.shelf.opened or stage.index.waiting())
    assert stage.index.waiting() == 0
    stage.sandbox().send(ANSWER)
    assert client.received() == ANSWER


@pytest.mark.parametrize(
    ("then", "answer"),
    [
        (State.SUSPENDED, (409, "sandbox_suspended")),
        (State.FINISHED, (410, "sandbox_finished")),
        (None, (404, "sandbox_not_found")),
    ],
)
async def test_whoever_waits_is_told_at_once_when_it_is_in_vain(
    then: State | None, answer: tuple[int, str]
) -> None:
    stage = Slow()
    stage.index.upsert(late(State.STARTING))
    client = await stage.ask(TO_LATE)
    stage.index.remove(LATE) if then is None else stage.index.upsert(late(then))
    await stage.until(lambda: stage.records.outcomes)
    assert status_and_code(client) == answer


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        (State.SUSPENDED, (409, "sandbox_suspended")),
        (State.FINISHED, (410, "sandbox_finished")),
    ],
)
async def test_a_sandbox_that_will_not_come_by_itself_is_not_waited_for(
    state: State, answer: tuple[int, str]
) -> None:
    stage = Slow()
    stage.index.upsert(late(state, reason="for the log"))
    client = await stage.ask(TO_LATE)
    assert status_and_code(client) == answer
    assert stage.records.outcome.error_reason == "for the log"
    assert stage.records.outcome.namespace == "default"


@pytest.mark.parametrize(
    "limits", [ProxyOptions(wait_for_ready_s=0.0), ProxyOptions(wait_for_ready_s=0.02)]
)
async def test_a_sandbox_that_does_not_get_ready_in_time_is_told_as_that(
    limits: ProxyOptions,
) -> None:
    stage = Slow(limits=limits)
    stage.index.upsert(late(State.STARTING, reason="ContainerCreating"))
    client = stage.client()
    client.send(TO_LATE)
    await stage.until(lambda: stage.records.outcomes)
    answer = client.received()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"sandbox_not_ready" in answer
    assert b"Retry-After: " in answer
    assert stage.records.outcome.error_reason == "ContainerCreating"


async def test_a_clients_own_deadline_bounds_the_waiting() -> None:
    stage = Slow(limits=ProxyOptions(wait_for_ready_s=100.0))
    stage.index.upsert(late(State.STARTING))
    client = stage.client()
    client.send(TO_LATE.replace(b"\r\n\r\n", b"\r\nX-Sandbox-Timeout: 0.02\r\n\r\n"))
    await stage.until(lambda: stage.records.outcomes)
    assert status_and_code(client) == (503, "sandbox_not_ready")


async def test_a_full_waiting_room_is_told_at_once() -> None:
    stage = Slow()
    stage.index.upsert(late(State.STARTING))
    for _ in range(8):
        client = stage.client()
        client.send(TO_LATE)
    await stage.until(lambda: stage.index.waiting() == 8)
    refused_client = stage.client()
    refused_client.send(TO_LATE)
    await stage.until(lambda: stage.records.outcomes)
    assert status_and_code(refused_client) == (503, "sandbox_not_ready")
    assert stage.index.waiting() == 8
    await stage.tasks.close()


async def test_a_client_that_leaves_gives_its_place_in_the_waiting_room_up() -> None:
    stage = Slow()
    stage.index.upsert(late(State.STARTING))
    client = await stage.ask(TO_LATE)
    client.leave()
    await stage.until(lambda: not stage.index.waiting())
    assert stage.records.outcome.code == "client_closed"


@pytest.mark.parametrize("uid", ["pod-8", "sandbox-8"])
async def test_another_sandbox_than_the_one_asked_for_is_not_waited_for(uid: str) -> None:
    stage = Slow()
    stage.index.upsert(late(State.STARTING))
    client = await stage.ask(
        TO_LATE.replace(b"\r\n\r\n", b"\r\nX-Sandbox-UID: %b\r\n\r\n" % uid.encode())
    )
    assert status_and_code(client) == (404, "sandbox_replaced")


# --- an unknown sandbox ---------------------------------------------------------------------


async def test_an_unknown_sandbox_is_not_found() -> None:
    stage = Slow()
    client = await stage.ask(TO_LATE)
    assert status_and_code(client) == (404, "sandbox_not_found")
    assert stage.records.outcome.namespace == "", "nobody may invent label values"


async def test_a_name_that_the_watch_has_not_heard_of_yet_gets_a_moment() -> None:
    stage = Slow(limits=ProxyOptions(wait_for_ready_s=10.0, unknown_grace_s=10.0))
    client = await stage.ask(TO_LATE)
    assert stage.index.waiting() == 1
    stage.index.upsert(late(State.READY))
    await stage.until(lambda: stage.shelf.opened)
    stage.sandbox().send(ANSWER)
    assert client.received() == ANSWER


async def test_a_name_that_stays_unknown_is_not_found_after_its_moment() -> None:
    stage = Slow(limits=ProxyOptions(wait_for_ready_s=10.0, unknown_grace_s=0.02))
    client = stage.client()
    client.send(TO_LATE)
    await stage.until(lambda: stage.records.outcomes)
    assert status_and_code(client) == (404, "sandbox_not_found")


class OnlyTeamA(DecidesEachTime):
    """Lets everybody in as a caller whose grants cover one namespace."""

    def authenticate(self, credentials: Credentials) -> Authenticated:
        grants = (Grant("team-a", "*"),)
        return Authenticated(Principal("bob", "jwt", grants=grants), False)


@pytest.mark.parametrize("state", [None, State.STARTING, State.SUSPENDED, State.FINISHED])
async def test_who_may_not_see_a_namespace_learns_nothing_of_its_names(
    state: State | None,
) -> None:
    stage = Slow(
        authenticator=OnlyTeamA(),
        authorizer=GrantAuthorizer(policy=CurrentPolicy()),
        limits=ProxyOptions(wait_for_ready_s=10.0, unknown_grace_s=10.0),
    )
    if state is not None:
        stage.index.upsert(late(state))
    client = await stage.ask(TO_LATE)
    assert status_and_code(client) == (403, "forbidden")
    assert stage.index.waiting() == 0
    assert stage.records.outcome.authz == "denied"


# --- decisions that have to be waited for -----------------------------------------------------


class Later(DecidesEachTime):
    """An Authenticator and Authorizer whose answers take turns of the loop."""

    def __init__(self) -> None:
        self.caller: BaseException | None = None
        self.refusal: BaseException | None = None
        self.authorized: list[Endpoint] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def authenticate(self, credentials: Credentials) -> Awaitable[Authenticated]:
        async def answer() -> Authenticated:
            await asyncio.sleep(0)
            if self.caller is not None:
                raise self.caller
            return Authenticated(ANONYMOUS, False)

        return answer()

    def admit(self, *args: object) -> Awaitable[None]:
        async def answer() -> None:
            await asyncio.sleep(0)
            if self.refusal is not None:
                raise self.refusal

        return answer()

    def authorize(
        self, principal: Principal, endpoint: Endpoint, names: object, port: int, method: bytes
    ) -> Awaitable[Permit]:
        async def answer() -> Permit:
            self.authorized.append(endpoint)
            await asyncio.sleep(0)
            self.meanwhile()
            if self.refusal is not None:
                raise self.refusal
            return Permit(principal, endpoint, port)

        return answer()


@pytest.fixture
def later() -> Later:
    return Later()


async def test_both_decisions_may_be_waited_for(later: Later) -> None:
    stage = Slow(authenticator=later, authorizer=later)
    client = await stage.ask()
    stage.sandbox().send(ANSWER)
    assert client.received() == ANSWER
    assert stage.records.outcome.principal == "anonymous"


@pytest.mark.parametrize("error", [Unauthenticated(), AuthUnavailable()])
async def test_a_caller_refused_later_is_refused_the_same(later: Later, error: Any) -> None:
    later.caller = error
    stage = Slow(authenticator=later, authorizer=later)
    client = await stage.ask()
    assert status_and_code(client) == (error.status, error.code)
    assert later.authorized == []


async def test_a_call_refused_later_is_refused_the_same(later: Later) -> None:
    later.refusal = Forbidden()
    stage = Slow(authorizer=later)
    client = await stage.ask()
    assert status_and_code(client) == (403, "forbidden")
    assert stage.shelf.dialled == []


@pytest.mark.parametrize("slow_door", [True, False])
async def test_an_idle_connection_is_used_after_a_late_decision_too(
    later: Later, slow_door: bool
) -> None:
    stage = Slow(authorizer=later, **({"authenticator": later} if slow_door else {}))
    stage.shelf.has_idle = True
    await stage.ask()
    assert stage.shelf.dialled == []
    assert len(stage.shelf.taken) == 1


async def test_a_pod_that_changes_while_it_is_authorised_is_not_the_one_dialled(
    later: Later,
) -> None:
    successor = Endpoint(BOX.ref, "pod-2", State.READY, BOX.addresses)
    stage = Slow(authorizer=later)
    later.meanwhile = lambda: stage.index.upsert(successor)
    await stage.ask()
    assert [endpoint.uid for endpoint in later.authorized] == ["pod-1", "pod-2"]
    assert [permit.endpoint.uid for permit in stage.shelf.dialled] == ["pod-2"]


async def test_a_pod_that_changes_while_it_is_authorised_after_a_wait_is_not_dialled_either(
    later: Later,
) -> None:
    stage = Slow(authorizer=later)
    stage.index.upsert(late(State.STARTING))
    later.meanwhile = lambda: stage.index.upsert(late(State.READY, uid="pod-10"))
    await stage.ask(TO_LATE)
    stage.index.upsert(late(State.READY))
    await stage.until(lambda: stage.shelf.opened)
    assert [endpoint.uid for endpoint in later.authorized] == ["pod-9", "pod-10"]
    assert [permit.endpoint.uid for permit in stage.shelf.dialled] == ["pod-10"]


async def test_a_late_answer_nobody_foresaw_is_a_500(
    later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    later.refusal = ZeroDivisionError("secret detail")
    stage = Slow(authorizer=later)
    with caplog.at_level(logging.ERROR):
        client = await stage.ask()
    answer = client.received()
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in answer
    (record,) = caplog.records
    assert record.exc_info is not None


# --- dialling -------------------------------------------------------------------------------


async def test_only_a_failure_to_connect_is_tried_again() -> None:
    stage = Slow()
    stage.shelf.connects = [refused(), refused(), None]
    client = await stage.ask()
    stage.sandbox().send(ANSWER)
    assert client.received() == ANSWER
    outcome = stage.records.outcome
    assert (outcome.retries, outcome.upstream_error, len(stage.shelf.dialled)) == (2, "", 3)
    assert stage.records.events.count("upstream_retried") == 2


@pytest.mark.parametrize("failure", [refused(), ConnectFailed("connect_error", "no route to it")])
async def test_within_the_budget_it_gives_up_with_the_detail_that_clients_match_on(
    failure: ConnectFailed,
) -> None:
    stage = Slow(limits=ProxyOptions(connect_budget_s=0.02))
    stage.shelf.connects = [failure] * 50
    client = await stage.ask()
    answer = client.received()
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"Could not connect to the backend sandbox: box" in answer
    assert failure.detail.encode() not in answer, "addresses are for the log"
    outcome = stage.records.outcome
    assert (outcome.error_reason, outcome.upstream_error) == (failure.detail, failure.reason)


async def test_a_dead_host_loses_its_route_and_its_connections() -> None:
    stage = Slow(limits=ProxyOptions(wait_for_ready_s=0.0))
    stage.shelf.connects = [dead()]
    client = await stage.ask()
    assert status_and_code(client) == (503, "sandbox_not_ready")
    assert stage.shelf.retired == [BOX]
    assert "route_evicted" in stage.records.events
    found = stage.index.find(BOX.ref)
    assert found is not None
    assert found.state is State.STARTING


async def test_whoever_found_a_host_dead_waits_for_its_successor() -> None:
    stage = Slow()
    stage.shelf.connects = [dead()]
    client = await stage.ask()
    await stage.until(lambda: stage.index.waiting() == 1)
    stage.index.upsert(Endpoint(BOX.ref, "pod-2", State.READY, ("10.0.0.6",)))
    await stage.until(lambda: stage.shelf.opened)
    assert stage.sandbox().upstream.address == "10.0.0.6"
    stage.sandbox().send(ANSWER)
    assert client.received() == ANSWER


async def test_a_dead_host_that_has_a_successor_already_evicts_nobody() -> None:
    stage = Slow()
    successor = Endpoint(BOX.ref, "pod-2", State.READY, ("10.0.0.6",))

    def fails_late() -> None:
        stage.index.upsert(successor)
        raise dead()

    stage.shelf.connects = [fails_late]
    await stage.ask()
    assert stage.shelf.retired == []
    assert "route_evicted" not in stage.records.events
    assert stage.sandbox().upstream.address == "10.0.0.6"


async def test_a_refused_port_evicts_nobody() -> None:
    stage = Slow(limits=ProxyOptions(connect_budget_s=0.02))
    stage.shelf.connects = [refused()] * 50
    await stage.ask()
    assert stage.index.find(BOX.ref) == BOX
    assert stage.shelf.retired == []


async def test_a_pod_that_changes_while_it_is_dialled_gets_no_byte() -> None:
    stage = Slow()
    successor = Endpoint(BOX.ref, "pod-2", State.READY, BOX.addresses)
    stage.shelf.connects = [lambda: stage.index.upsert(successor)]
    await stage.ask()
    await stage.until(lambda: len(stage.shelf.opened) == 2)
    first, second = stage.shelf.opened
    assert first.is_closed
    assert first.transport is not None
    assert first.transport.sent == b""  # type: ignore[attr-defined]
    assert [permit.endpoint.uid for permit in stage.shelf.dialled] == ["pod-1", "pod-2"]
    assert second.state is ConnectionState.AWAITING


async def test_a_name_that_dns_does_not_know_is_no_sandbox() -> None:
    source = DnsSource(cluster_domain="cluster.local", trust_pod_ip_header=False)
    stage = Slow(source=source)
    stage.shelf.connects = [
        ConnectFailed("resolve_error", "unknown", unresolved=Unresolved.UNKNOWN)
    ]
    client = await stage.ask()
    assert status_and_code(client) == (404, "sandbox_not_found")


async def test_a_host_name_in_a_table_that_does_not_resolve_is_unreachable() -> None:
    stage = Slow(limits=ProxyOptions(connect_budget_s=0.02))
    failure = ConnectFailed("resolve_error", "unknown", unresolved=Unresolved.UNKNOWN)
    stage.shelf.connects = [failure] * 50
    client = await stage.ask()
    assert status_and_code(client) == (502, "sandbox_unreachable")


async def test_a_name_that_leads_where_no_sandbox_can_be_is_refused_at_once() -> None:
    stage = Slow()
    refused = ConnectFailed("resolve_error", "at 127.0.0.1", unresolved=Unresolved.REFUSED)
    stage.shelf.connects = [refused]
    client = await stage.ask()
    assert status_and_code(client) == (502, "sandbox_unreachable")
    assert len(stage.shelf.dialled) == 1


async def test_no_time_left_to_dial_is_a_timeout() -> None:
    stage = Slow()
    client = stage.client()
    client.send(GET.replace(b"\r\n\r\n", b"\r\nX-Sandbox-Timeout: 0.000001\r\n\r\n"))
    await stage.until(lambda: stage.records.outcomes)
    assert status_and_code(client) == (504, "sandbox_timeout")
    assert stage.shelf.dialled == []
