"""The order of one request: what is asked of whom, and what is never reached once something refuses."""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Awaitable
from typing import Any

import pytest

from router.auth.anonymous import ANONYMOUS
from router.auth.authenticator import Authenticated, CertificateIdentity, Credentials
from router.auth.authorizer import Permit
from router.auth.mtls import NOBODY
from router.auth.principal import Principal
from router.errors import AuthUnavailable, Forbidden, RouterError, Unauthenticated
from router.proxy.options import ProxyOptions
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from router.routing.source import IndexSource
from tests.fakes.deciders import DecidesEachTime
from tests.unit.proxy.stage import BOX, GET, TO_BOX, Client, Sandbox, Stage

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ALICE = Principal(subject="alice", mode="jwt")


class Door(DecidesEachTime):
    """An Authenticator that notes when it is asked."""

    def __init__(self, order: list[str], outcome: Principal | BaseException = ANONYMOUS) -> None:
        self.order = order
        self.outcome = outcome
        self.seen: list[Credentials] = []
        self.consumes = False

    def authenticate(self, credentials: Credentials) -> Authenticated | Awaitable[Authenticated]:
        self.order.append("authenticate")
        self.seen.append(credentials)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return Authenticated(self.outcome, self.consumes)


class Judge(DecidesEachTime):
    """An Authorizer that notes what it is asked about."""

    def __init__(self, order: list[str], refusal: BaseException | None = None) -> None:
        self.order = order
        self.refusal = refusal
        self.asked: list[tuple[Any, ...]] = []

    def admit(self, principal: Principal, names: Any, port: int, method: bytes) -> None:
        self.order.append("admit")
        if self.refusal is not None:
            raise self.refusal

    def authorize(
        self, principal: Principal, endpoint: Endpoint, names: Any, port: int, method: bytes
    ) -> Permit | Awaitable[Permit]:
        self.order.append("authorize")
        self.asked.append((principal, endpoint, names, port, method))
        if self.refusal is not None:
            raise self.refusal
        return Permit(principal, endpoint, port)


class Table(IndexSource):
    """The table, which notes when it is asked."""

    def __init__(self, order: list[str]) -> None:
        self.index = EndpointIndex(waiting_room=8, waiting_room_per_namespace=8)
        self.index.upsert(BOX)
        super().__init__(self.index)
        self.order = order
        self.find = self._noted

    def _noted(self, ref: SandboxRef, pod_ip: str | None = None) -> Endpoint | None:
        self.order.append("find")
        return self.index.find(ref, pod_ip)


class Noted(Stage):
    """A stage whose parts note in which order they are asked."""

    def __init__(
        self,
        *,
        caller: Principal | BaseException = ANONYMOUS,
        refusal: BaseException | None = None,
        **options: Any,
    ) -> None:
        self.order: list[str] = []
        self.door = Door(self.order, caller)
        self.judge = Judge(self.order, refusal)
        self.table = Table(self.order)
        super().__init__(
            authenticator=self.door, authorizer=self.judge, source=self.table, **options
        )
        take = self.shelf.take

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.order.append("take")
            return take(*args, **kwargs)

        self.shelf.take = noted  # type: ignore[method-assign]

    def ask(self, request: bytes = GET) -> Client:
        client = self.client()
        client.send(request)
        return client


def status_and_code(client: Client) -> tuple[int, str]:
    answer = client.received()
    code = answer.partition(b"X-Sandbox-Router-Error: ")[2].partition(b"\r\n")[0]
    return int(answer[9:12]), code.decode()


def named(name: str, *lines: bytes) -> bytes:
    return GET.replace(b"X-Sandbox-ID: box\r\n", b"X-Sandbox-ID: %b\r\n" % name.encode()).replace(
        b"\r\n\r\n", b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    )


# --- the order ------------------------------------------------------------------------------


def test_everything_that_is_known_is_decided_at_once_in_order() -> None:
    stage = Noted(caller=ALICE)
    stage.ask()
    assert stage.order == ["authenticate", "find", "authorize", "take"]
    assert len(stage.tasks) == 0
    assert stage.sandbox().received().startswith(b"GET / ")


def test_the_permit_that_dials_names_the_very_pod_that_was_authorised() -> None:
    stage = Noted(caller=ALICE)
    stage.ask(named("box", b"X-Sandbox-Port: 3000"))
    (principal, endpoint, names, port, method) = stage.judge.asked[0]
    assert (principal, names, port, method) == (ALICE, (BOX.ref,), 3000, b"GET")
    permit = stage.shelf.taken[0]
    assert permit.endpoint is endpoint
    assert (permit.endpoint, permit.port, permit.principal) == (BOX, 3000, ALICE)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (GET.replace(b"GET", b"TRACE"), (501, "method_not_supported")),
        (b"CONNECT box:443 HTTP/1.1\r\nHost: box\r\n\r\n", (501, "method_not_supported")),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", (400, "missing_sandbox_id")),
        (named("BOX"), (400, "invalid_sandbox_id")),
        (named("box", b"X-Sandbox-Port: +80"), (400, "invalid_port")),
        (named("box", b"X-Sandbox-Namespace: A"), (400, "invalid_namespace")),
        (named("box", b"X-Sandbox-Pod-IP: 127.0.0.1"), (400, "invalid_pod_ip")),
    ],
)
def test_what_names_no_sandbox_is_refused_before_anybody_is_asked(
    request_: bytes, answer: tuple[int, str]
) -> None:
    stage = Noted()
    client = stage.ask(request_)
    assert status_and_code(client) == answer
    assert stage.order == []
    assert client.is_closed == (answer[0] == 501), "behind a CONNECT there is no request"


@pytest.mark.parametrize(
    ("error", "answer"),
    [(Unauthenticated(), (401, "unauthenticated")), (AuthUnavailable(), (503, "auth_unavailable"))],
)
def test_an_unknown_caller_learns_nothing_of_the_table(
    error: RouterError, answer: tuple[int, str]
) -> None:
    stage = Noted(caller=error)
    for request in (GET, named("no-such-box")):
        assert status_and_code(stage.ask(request)) == answer
    assert stage.order == ["authenticate", "authenticate"]


def test_an_unknown_caller_gets_no_100_and_no_body_is_read() -> None:
    stage = Noted(caller=Unauthenticated())
    client = stage.ask(
        b"POST / HTTP/1.1\r\n%bContent-Length: 9\r\nExpect: 100-continue\r\n\r\n" % TO_BOX
    )
    assert client.received().startswith(b"HTTP/1.1 401 ")
    assert stage.shelf.opened == []


def test_a_caller_without_a_right_reaches_no_pod() -> None:
    stage = Noted(refusal=Forbidden())
    assert status_and_code(stage.ask()) == (403, "forbidden")
    assert stage.order == ["authenticate", "find", "authorize"]
    assert stage.records.outcome.authz == "denied"


def test_a_body_over_the_limit_is_refused_once_its_sender_is_known() -> None:
    request = b"POST / HTTP/1.1\r\n%bContent-Length: 11\r\n\r\n" % TO_BOX
    stage = Noted(limits=ProxyOptions(max_body_bytes=10))
    assert status_and_code(stage.ask(request)) == (413, "body_too_large")
    assert stage.order == ["authenticate"]
    stranger = Noted(limits=ProxyOptions(max_body_bytes=10), caller=Unauthenticated())
    assert status_and_code(stranger.ask(request)) == (401, "unauthenticated")


def test_a_table_that_is_too_old_answers_for_nobody() -> None:
    stage = Noted(limits=ProxyOptions(max_staleness_s=60.0))
    stage.table.index.set_synced(-1000.0)
    assert status_and_code(stage.ask()) == (503, "index_stale")
    assert stage.order == ["authenticate"]
    stage.table.index.set_synced()
    stage.ask()
    assert stage.order[-1] == "take"


def test_another_pod_than_the_one_asked_for_is_not_dialled() -> None:
    stage = Noted()
    assert status_and_code(stage.ask(named("box", b"X-Sandbox-UID: other"))) == (
        404,
        "sandbox_replaced",
    )
    assert stage.order == ["authenticate", "find", "authorize"]
    stage.ask(named("box", b"X-Sandbox-UID: pod-1"))
    assert stage.order[-1] == "take"


def test_a_pod_ip_from_a_client_is_a_hint_that_leads_nowhere() -> None:
    stage = Noted()
    stage.ask(named("box", b"X-Sandbox-Pod-IP: 10.9.9.9"))
    assert stage.shelf.opened[0].address == "10.0.0.5"


# --- health ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/healthz", "/healthz?x=1"])
def test_a_load_balancer_is_answered_here_without_a_credential(target: str) -> None:
    stage = Noted(caller=Unauthenticated())
    client = stage.ask(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    answer = client.received()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"status": "ok"}
    assert not client.is_closed
    assert stage.order == []
    assert (stage.records.outcome.status, stage.records.outcome.code) == (200, "")


def test_health_is_also_asked_for_by_head() -> None:
    client = Noted().ask(b"HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    answer = client.received()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("options", "request_"),
    [
        ({}, GET.replace(b"GET /", b"GET /healthz")),
        ({"base_domain": "x.test"}, b"GET /healthz HTTP/1.1\r\nHost: 8888-box.x.test\r\n\r\n"),
        (
            {"path_prefix": "/healthz"},
            b"GET /healthz/default/box/8888/ HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
    ],
)
def test_a_sandboxs_own_health_goes_to_the_sandbox(
    options: dict[str, str], request_: bytes
) -> None:
    stage = Noted(**options)
    stage.ask(request_)
    assert stage.order == ["authenticate", "find", "authorize", "take"]


@pytest.mark.parametrize(
    "line", [b"POST /healthz", b"GET /healthzz", b"GET /healthz/", b"GET //healthz"]
)
def test_what_only_resembles_a_health_check_is_none(line: bytes) -> None:
    client = Noted().ask(line + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    assert status_and_code(client) == (400, "missing_sandbox_id")


def test_while_draining_the_load_balancer_is_told() -> None:
    stage = Noted()
    client = stage.client()
    stage.clients.is_draining = True
    client.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert status_and_code(client) == (503, "draining")
    assert client.is_closed


# --- credentials ----------------------------------------------------------------------------

TRUSTED = (ipaddress.ip_network("192.0.2.0/24"),)
IDENTITY = CertificateIdentity("spiffe://team/bot", "uri")
OF_HEADER = CertificateIdentity("spiffe://team/front", "uri")


def credentials_of(*lines: bytes, peer: str = "198.51.100.9", is_tls: bool = False) -> Credentials:
    stage = Noted(
        trusted_proxies=TRUSTED,
        identity_of=lambda ssl_object: IDENTITY,
        identity_in_header=lambda value: OF_HEADER if value == b"front" else NOBODY,
    )
    client = stage.client(peer=peer, is_tls=is_tls)
    client.send(named("box", *lines))
    (seen,) = stage.door.seen
    return seen


def test_every_credential_is_handed_over_as_it_came() -> None:
    seen = credentials_of(
        b"Authorization: Bearer a.b.c",
        b"X-Sandbox-Token: t",
        b"Sec-WebSocket-Protocol: chat, sandbox-router.bearer.s",
    )
    assert (seen.authorization, seen.sandbox_token, seen.subprotocol_token) == (
        b"Bearer a.b.c",
        b"t",
        b"s",
    )
    assert seen.certificate is None


def test_a_tls_connections_certificate_is_a_credential() -> None:
    assert credentials_of(is_tls=True).certificate is IDENTITY


@pytest.mark.parametrize(
    ("peer", "is_tls", "value", "expected"),
    [
        ("192.0.2.1", False, b"front", OF_HEADER),
        ("192.0.2.1", True, b"front", OF_HEADER),
        ("192.0.2.1", True, b"junk", NOBODY),
        ("198.51.100.9", False, b"front", None),
        ("198.51.100.9", True, b"front", IDENTITY),
    ],
)
def test_a_certificate_header_counts_only_from_a_trusted_proxy(
    peer: str, is_tls: bool, value: bytes, expected: CertificateIdentity | None
) -> None:
    header = b"X-Forwarded-Client-Cert: " + value
    assert credentials_of(header, peer=peer, is_tls=is_tls).certificate is expected


@pytest.mark.parametrize("consumes", [True, False])
def test_a_consumed_authorization_never_reaches_the_sandbox(consumes: bool) -> None:
    stage = Noted()
    stage.door.consumes = consumes
    stage.ask(named("box", b"Authorization: Bearer secret"))
    assert (b"secret" in stage.sandbox().received()) is not consumes


def test_the_consumed_token_does_not_reach_the_sandbox_in_authorization_either() -> None:
    stage = Noted()
    stage.door.consumes = False
    stage.ask(named("box", b"X-Sandbox-Token: secret", b"Authorization: Bearer secret"))
    assert b"secret" not in stage.sandbox().received()


# --- limits ---------------------------------------------------------------------------------


def test_open_requests_are_counted_by_sandbox() -> None:
    stage = Noted(limits=ProxyOptions(max_requests_per_sandbox=1))
    stage.table.index.upsert(
        Endpoint(SandboxRef("default", "other"), "pod-2", State.READY, ("10.0.0.6",))
    )
    first = stage.ask()
    refused = stage.ask()
    answer = refused.received()
    assert b"429 Too Many Requests" in answer
    assert b"max-requests-per-sandbox" in answer
    assert b"Retry-After: " in answer
    stage.ask(named("other"))
    assert len(stage.shelf.opened) == 2
    first.leave()
    stage.ask()
    assert len(stage.shelf.opened) == 3


def test_a_place_taken_before_another_is_refused_is_given_back() -> None:
    upgrade = named("box", b"Connection: upgrade", b"Upgrade: websocket")
    stage = Noted(limits=ProxyOptions(max_requests_per_sandbox=3, max_tunnels_per_client=1))
    stage.ask(upgrade)
    for _ in range(5):
        assert status_and_code(stage.ask(upgrade)) == (429, "too_many_requests")
    stage.ask()
    stage.ask()
    assert len(stage.shelf.opened) == 3


# --- what nobody foresaw --------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["door", "judge"])
def test_a_bug_is_a_500_with_its_traceback_in_the_log_and_none_in_the_answer(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Noted()
    if broken == "door":
        stage.door.outcome = ZeroDivisionError("10.0.0.5 divided")
    else:
        stage.judge.refusal = ZeroDivisionError("10.0.0.5 divided")
    with caplog.at_level(logging.ERROR):
        client = stage.ask()
    answer = client.received()
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"10.0.0.5" not in answer
    assert b"divided" not in answer
    assert client.is_closed
    assert stage.records.outcome.error_reason == "ZeroDivisionError: 10.0.0.5 divided"
    (record,) = caplog.records
    assert record.exc_info is not None


# --- what is told ---------------------------------------------------------------------------


def test_the_outcome_begins_with_what_the_request_said() -> None:
    stage = Noted(caller=ALICE, trusted_proxies=TRUSTED)
    client = stage.client(peer="192.0.2.1")
    client.send(
        named("box", b"X-Forwarded-For: 203.0.113.5", b"Traceparent: 00-a-b-01").replace(
            b"GET / ", b"GET /a?token=x "
        )
    )
    Sandbox(stage.shelf.opened[0]).send(ANSWER)
    outcome = stage.records.outcome
    assert (outcome.method, outcome.path, outcome.client) == (b"GET", b"/a?token=x", "203.0.113.5")
    assert (outcome.principal, outcome.authz) == ("alice", "allowed")
    assert (outcome.namespace, outcome.sandbox, outcome.port) == ("default", "box", 8888)
    assert (outcome.pod_uid, outcome.traceparent) == ("pod-1", b"00-a-b-01")


@pytest.mark.parametrize(
    ("stage", "authz"),
    [
        (Noted(caller=Unauthenticated()), "unauthenticated"),
        (Noted(caller=AuthUnavailable()), "unavailable"),
        (Noted(refusal=Forbidden()), "denied"),
        (Noted(), "allowed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_decision_about_a_caller_is_told(stage: Noted, authz: str) -> None:
    client = stage.ask()
    client.leave()
    assert stage.records.outcome.authz == authz


def test_a_namespace_is_told_only_when_the_table_knows_it() -> None:
    stage = Noted()
    assert status_and_code(stage.ask(named("BOX", b"X-Sandbox-Namespace: evil"))) == (
        400,
        "invalid_sandbox_id",
    )
    assert stage.records.outcome.namespace == ""


def test_bytes_that_make_no_request_are_told_too() -> None:
    stage = Noted()
    stage.ask(b"POST /x HTTP/1.1\r\nBad Line\r\n\r\n")
    outcome = stage.records.outcome
    assert (outcome.method, outcome.path, outcome.status) == (b"POST", b"/x", 400)
    assert (outcome.code, outcome.client) == ("bad_request", "198.51.100.9")
    assert outcome.error_reason != ""


def test_a_tracer_sees_each_proxied_request_before_anything_is_decided() -> None:
    seen: list[tuple[Any, ...]] = []

    class Tracer:
        def begin(self, head: Any, peer: Any, outcome: Any, began_at: float) -> None:
            seen.append((head.method, peer.address, outcome.authz, began_at > 0))

    stage = Noted(caller=Unauthenticated(), tracer=Tracer())
    stage.ask()
    stage.ask(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert seen == [(b"GET", "198.51.100.9", "", True)]


def test_its_repr_says_who_is_connected() -> None:
    assert repr(Noted().gateway).startswith("<Gateway <Connections open=0 draining=False>")
