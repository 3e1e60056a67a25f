"""One decision, step by step; and on a kept-alive connection, everything that ends a right ends what was remembered of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from router.auth.authenticator import Authenticated
from router.auth.authorizer import Permit
from router.auth.chain import AuthenticatorChain
from router.auth.claims import ClaimRules
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.jwt import JwtVerifier
from router.auth.keys import KeyRing, Keys
from router.auth.policy import CurrentPolicy, NotBefore, Policy, PrincipalMatch, Rule
from router.auth.principal import Grant, Principal
from router.auth.revocation import Revocation
from router.auth.sessions import Sessions, parse_session_keys
from router.auth.token_review import TokenReviewVerifier
from router.errors import (
    CrossOrigin,
    Forbidden,
    MethodNotSupported,
    RouterError,
    SandboxNotReady,
    SandboxReplaced,
    SandboxSuspended,
    Unauthenticated,
)
from router.proxy.admission import Admission
from router.proxy.caller import Caller
from router.proxy.options import ProxyOptions
from router.proxy.request import AwaitAuthorization, AwaitCredential, AwaitSandbox, Pending, Request
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import parse_request
from router.proxy.wire.session_cookie import SessionRules
from router.routing.endpoint import Endpoint, SandboxRef, State, Wishes
from router.routing.index import EndpointIndex
from router.routing.source import IndexSource
from router.routing.target import TargetParser
from tests.fakes.deciders import DecidesEachTime
from tests.unit.auth.tokens import every_key, sign

REF = SandboxRef("team-a", "box")
SESSION_KEY = b"session-secret-session-secret-session-se"
BOX = Endpoint(REF, "pod-1", State.READY, ("10.0.0.5",))
"""The sandbox that every request here asks for."""


class Clock:
    """Wall time that the test moves."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Counted(AuthenticatorChain):
    """The real chain, which counts how often it is asked."""

    asked = 0

    def authenticate(self, credentials: Any) -> Any:
        self.asked += 1
        return super().authenticate(credentials)


class CountedGrants(GrantAuthorizer):
    """The real authorizer, which counts how often it is asked."""

    asked = 0

    def authorize(self, *about: Any) -> Permit:
        self.asked += 1
        return super().authorize(*about)


class Door:
    """A real Admission over a real table, with one client's kept-alive connection."""

    def __init__(
        self,
        *,
        reviewer: Any = None,
        path_prefix: str = "",
        has_sessions: bool = False,
        **options: Any,
    ) -> None:
        self.clock = Clock()
        self.index = EndpointIndex(waiting_room=4, waiting_room_per_namespace=4)
        self.index.upsert(BOX)
        self.index.set_synced()
        self.policy = CurrentPolicy()
        self.keys = KeyRing()
        self.keys.replace("file", every_key())
        self.rights = Revocation(policy=self.policy, auth_grace_s=60.0)
        verifier: Any
        if reviewer is None:
            verifier = JwtVerifier(
                keys=self.keys,
                rules=ClaimRules(None, (), 0.0),
                is_refused=self.rights.is_refused,
                remote=None,
                clock=self.clock,
            )
            self.policy.on_change(verifier.forget)
        else:
            verifier = TokenReviewVerifier(
                reviewer=reviewer, audiences=(), ttl_s=30, is_refused=self.rights.is_refused
            )
        self.sessions: Any = None
        session = links = None
        if has_sessions:
            options["sessions"] = SessionRules()
            self.sessions = Sessions(
                is_refused=self.rights.is_refused,
                ended=self.rights.ended_sessions,
                longest_s=600.0,
                clock=self.clock,
            )
            self.sessions.use(parse_session_keys(SESSION_KEY))
            self.policy.on_change(self.sessions.forget)
            session, links = self.sessions.verifier, [self.sessions.links]
        self.chain = Counted(
            bearer=[verifier], certificate=None, session=session, links=links or ()
        )
        self.authorizer: Any = CountedGrants(policy=self.policy)
        self.admission = self._admission(path_prefix, ProxyOptions(**options))
        self.caller = Caller(Peer("198.51.100.9", is_tls=False, trusted=()))

    def _admission(self, path_prefix: str, options: ProxyOptions) -> Admission:
        return Admission(
            targets=TargetParser(
                base_domain="boxes.example",
                path_prefix=path_prefix,
                default_port=8888,
                default_namespace="default",
                proxy_timeout_s=180.0,
            ),
            authenticator=self.chain,
            source=IndexSource(self.index),
            authorizer=self.authorizer,
            identity_in_header=lambda value: None,
            options=options,
        )

    def request(
        self, token: str | None, *, line: str = "GET / HTTP/1.1", **headers: str
    ) -> Request:
        named = {"X-Sandbox-ID": "box", "X-Sandbox-Namespace": "team-a"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            named["Authorization"] = f"Bearer {token}"
        lines = [line, "Host: router", *(f"{name}: {value}" for name, value in named.items())]
        head = parse_request("\r\n".join([*lines, "", ""]).encode())
        request = Request(head, self.caller, ClientAddresses(()), 180.0)
        request.outcome.started_at = self.clock.now
        return request

    def ask(self, token: str | None, **how: str) -> Permit | Pending:
        return self.admission.step(self.request(token, **how))

    def is_remembered(self, token: str | None, **how: str) -> bool:
        """Returns True when the next request needs no authentication; it must be allowed."""
        asked = self.chain.asked
        assert isinstance(self.ask(token, **how), Permit)
        return self.chain.asked == asked


def token(**claims: Any) -> str:
    grants = [{"namespace": "team-a", "name": "box"}]
    return sign({"sub": "alice", "sandboxes": grants, **claims}).decode()


# --- steps ----------------------------------------------------------------------------------


def test_a_request_for_a_ready_sandbox_is_permitted_at_once() -> None:
    door = Door()
    request = door.request(token())
    permit = door.admission.step(request)
    assert isinstance(permit, Permit)
    assert permit.endpoint is BOX
    assert (request.outcome.principal, request.outcome.authz) == ("alice", "allowed")
    assert request.outcome.pod_uid == "pod-1"


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
def test_what_is_not_proxied_is_refused_before_anyone_is_asked(method: str) -> None:
    door = Door()
    with pytest.raises(MethodNotSupported):
        door.ask(token(), line=f"{method} / HTTP/1.1")
    assert door.chain.asked == 0


def test_a_starting_sandbox_is_waited_for_until_a_time() -> None:
    door = Door(wait_for_ready_s=10.0)
    door.index.upsert(Endpoint(REF, "", State.STARTING, ()))
    pending = door.ask(token())
    assert isinstance(pending, AwaitSandbox)
    assert pending.endpoint is not None
    assert time.monotonic() < pending.until <= time.monotonic() + 10.0


def test_all_waits_of_a_request_together_are_bounded() -> None:
    door = Door(wait_for_ready_s=10.0)
    door.index.upsert(Endpoint(REF, "", State.STARTING, ()))
    request = door.request(token())
    assert isinstance(door.admission.step(request), AwaitSandbox)
    assert request.waits_since is not None
    request.waits_since -= 10.0
    with pytest.raises(SandboxNotReady):
        door.admission.step(request)


def test_who_may_not_see_a_sandbox_learns_nothing_of_its_state() -> None:
    door = Door()
    door.index.upsert(Endpoint(REF, "", State.SUSPENDED, ()))
    with pytest.raises(SandboxSuspended):
        door.ask(token())
    with pytest.raises(Forbidden):
        door.ask(token(sandboxes=[]))


async def test_a_credential_that_is_checked_elsewhere_is_awaited_and_then_used() -> None:
    door = Door(reviewer=Reviewer())
    request = door.request("opaque")
    pending = door.admission.step(request)
    assert isinstance(pending, AwaitCredential)
    door.admission.authenticated(request, await pending.answer)
    assert request.outcome.principal == "system:serviceaccount:a:b"
    with pytest.raises(Forbidden):
        door.admission.step(request)


async def test_an_authorization_that_is_asked_for_elsewhere_is_used_once_for_the_pod_it_is_about() -> (
    None
):
    door = Door()
    door.authorizer = Elsewhere()
    door.admission = door._admission("", ProxyOptions())
    request = door.request(token())
    pending = door.admission.step(request)
    assert isinstance(pending, AwaitAuthorization)
    door.admission.authorized(request, pending, await pending.answer)
    assert isinstance(door.admission.step(request), Permit)
    assert door.caller.remembered is None, (
        "whoever is asked elsewhere says nothing of the next time"
    )


class Elsewhere(DecidesEachTime):
    """An Authorizer that has to ask."""

    def admit(self, *about: Any) -> None:
        return None

    def authorize(
        self, principal: Principal, endpoint: Endpoint, names: Any, port: int, method: bytes
    ) -> Awaitable[Permit]:
        async def answer() -> Permit:
            await asyncio.sleep(0)
            return Permit(principal, endpoint, port)

        return answer()


class Reviewer:
    """An API server that knows every token."""

    async def review(self, body: Any) -> Any:
        user = {"username": "system:serviceaccount:a:b"}
        return {"status": {"authenticated": True, "user": user}}


# --- the same again -------------------------------------------------------------------------


def test_the_same_again_is_not_authenticated_again() -> None:
    door, credential = Door(), token()
    assert not door.is_remembered(credential)
    for _ in range(3):
        assert door.is_remembered(credential)


@pytest.mark.parametrize("uid", ["pod-0", "sandbox-1", "POD-1"])
def test_a_sandbox_that_is_not_the_one_meant_is_refused_however_often_it_is_asked_for(
    uid: str,
) -> None:
    door, credential = Door(), token()
    assert not door.is_remembered(credential)
    for _ in range(3):
        with pytest.raises(SandboxReplaced):
            door.ask(credential, X_Sandbox_UID=uid)
    assert isinstance(door.ask(credential, X_Sandbox_UID="pod-1"), Permit)
    with pytest.raises(SandboxReplaced):
        door.ask(credential, X_Sandbox_UID=uid)


def test_what_was_remembered_is_told_like_the_first_time() -> None:
    door, credential = Door(), token(jti="j1")
    first, second = door.request(credential), door.request(credential)
    permits = [door.admission.step(request) for request in (first, second)]
    assert permits[0] is permits[1]
    told = [
        (o.principal, o.token_id, o.key_id, o.authz, o.namespace, o.pod_uid, o.sandbox, o.port)
        for o in (first.outcome, second.outcome)
    ]
    assert told[0] == told[1]
    assert second.authenticated == first.authenticated


@pytest.mark.parametrize(
    "other",
    [
        {"line": "POST / HTTP/1.1"},
        {"X_Sandbox_Port": "9000"},
        {"X_Sandbox_UID": "pod-1"},
        {"X_Sandbox_Timeout": "5"},
        {"Host": "router"},
    ],
    ids=str,
)
def test_anything_else_that_decides_is_decided_anew(other: dict[str, str]) -> None:
    door, credential = Door(), token()
    door.ask(credential)
    asked = door.authorizer.asked
    other = dict(other)
    line = other.pop("line", "GET / HTTP/1.1")
    if other.pop("Host", None):
        request = door.request(credential)
        request.head.host = b"elsewhere"
    else:
        request = door.request(credential, line=line, **other)
    try:
        door.admission.step(request)
    except RouterError:
        pass
    assert door.authorizer.asked == asked + 1


OTHER = Endpoint(SandboxRef("team-a", "other"), "pod-9", State.READY, ("10.0.0.9",))
BOTH = [{"namespace": "team-a", "name": "box"}, {"namespace": "team-a", "name": "other"}]


def test_for_another_sandbox_the_same_credential_is_believed_and_the_right_is_asked_for() -> None:
    door, credential = Door(), token(sandboxes=BOTH)
    door.index.upsert(OTHER)
    door.ask(credential)
    asked = door.chain.asked
    for endpoint in (OTHER, BOX, OTHER):
        permit = door.ask(credential, X_Sandbox_ID=endpoint.ref.name)
        assert isinstance(permit, Permit)
        assert permit.endpoint is endpoint
    assert (door.chain.asked, door.authorizer.asked) == (asked, 4)


def test_a_credential_that_is_believed_gives_no_right_to_another_sandbox() -> None:
    door, credential = Door(), token()
    door.index.upsert(OTHER)
    door.ask(credential)
    with pytest.raises(Forbidden):
        door.ask(credential, X_Sandbox_ID="other")


@pytest.mark.parametrize("more", [{"X_Sandbox_Token": "other"}, {"Sec_WebSocket_Protocol": "a"}])
def test_with_any_other_credential_who_calls_is_asked_again(more: dict[str, str]) -> None:
    door, credential = Door(), token()
    door.ask(credential)
    asked = door.chain.asked
    with contextlib.suppress(RouterError):
        door.ask(credential, X_Sandbox_Port="9000", **more)
    assert door.chain.asked == asked + 1


def test_another_credential_of_the_same_caller_is_checked() -> None:
    door = Door()
    door.ask(token())
    with pytest.raises(Unauthenticated):
        door.ask("nonsense")
    with pytest.raises(Unauthenticated):
        door.ask(None)
    assert not door.is_remembered(token(jti="second"))


def test_a_path_that_may_name_a_sandbox_is_read_each_time() -> None:
    door, credential = Door(path_prefix="/s"), token()
    door.ask(credential, line="GET /s/team-a/box/8888/ HTTP/1.1")
    assert not door.is_remembered(credential, line="GET /s/team-a/box/8888/ HTTP/1.1")
    assert not door.is_remembered(credential)
    assert door.is_remembered(credential)


def expires(door: Door) -> None:
    door.clock.now += 3600.0


def key_is_removed(door: Door) -> None:
    door.keys.replace("file", Keys())


def token_is_revoked(door: Door) -> None:
    door.policy.replace(Policy(revoked=frozenset({"j1"})))


def older_tokens_are_refused(door: Door) -> None:
    door.index.upsert(
        Endpoint(REF, "pod-1", State.READY, BOX.addresses, tokens_not_before=door.clock.now + 1)
    )


def another_pod_takes_its_place(door: Door) -> None:
    door.index.upsert(Endpoint(REF, "pod-2", State.READY, BOX.addresses))


def it_moves(door: Door) -> None:
    door.index.upsert(Endpoint(REF, "pod-1", State.READY, ("10.0.0.6",)))


def it_is_suspended(door: Door) -> None:
    door.index.upsert(Endpoint(REF, "", State.SUSPENDED, ()))


def it_goes(door: Door) -> None:
    door.index.remove(REF)


def its_host_is_found_dead(door: Door) -> None:
    door.index.evict(BOX, BOX.addresses[0])


@pytest.mark.parametrize(
    ("end", "refusal"),
    [
        (expires, Unauthenticated),
        (key_is_removed, Unauthenticated),
        (token_is_revoked, Unauthenticated),
        (older_tokens_are_refused, Unauthenticated),
        (it_is_suspended, SandboxSuspended),
        (it_goes, RouterError),
        (its_host_is_found_dead, SandboxNotReady),
    ],
)
def test_whatever_ends_a_right_ends_what_was_remembered(
    end: Callable[[Door], None], refusal: type[RouterError]
) -> None:
    door = Door()
    credential = token(jti="j1", iat=int(door.clock.now) - 5, exp=int(door.clock.now) + 600)
    door.ask(credential)
    assert door.is_remembered(credential)
    end(door)
    with pytest.raises(refusal):
        door.ask(credential)


@pytest.mark.parametrize("end", [expires, key_is_removed, token_is_revoked])
def test_whatever_ends_a_credential_ends_it_for_another_sandbox(
    end: Callable[[Door], None],
) -> None:
    door = Door()
    door.index.upsert(OTHER)
    credential = token(jti="j1", exp=int(door.clock.now) + 600, sandboxes=BOTH)
    for name in ("box", "other"):
        door.ask(credential, X_Sandbox_ID=name)
    end(door)
    with pytest.raises(Unauthenticated):
        door.ask(credential, X_Sandbox_ID="box")


@pytest.mark.parametrize("change", [another_pod_takes_its_place, it_moves])
def test_another_pod_or_address_gets_a_permit_of_its_own(change: Callable[[Door], None]) -> None:
    door, credential = Door(), token()
    door.ask(credential)
    change(door)
    permit = door.ask(credential)
    assert isinstance(permit, Permit)
    assert permit.endpoint == door.index.find(REF)
    assert permit.endpoint is not BOX


def rule(*grants: Grant) -> Policy:
    return Policy(rules=(Rule(PrincipalMatch(subject="bob"), grants, 1, 1),))


def test_a_grant_that_the_policy_takes_away_is_gone_at_once() -> None:
    door = Door()
    credential = sign({"sub": "bob"}).decode()
    door.policy.replace(rule(Grant("team-a", "box")))
    door.ask(credential)
    assert door.is_remembered(credential)
    door.policy.replace(rule(Grant("team-a", "other")))
    with pytest.raises(Forbidden):
        door.ask(credential)


def test_a_claim_that_no_longer_leads_to_the_sandbox_gives_no_right_any_more() -> None:
    door = Door()
    claim = SandboxRef("team-a", "claim")
    credential = token(sandboxes=[{"namespace": "team-a", "name": "claim"}])
    door.index.set_alias(claim, REF)
    door.ask(credential)
    assert door.is_remembered(credential)
    door.index.remove_alias(claim)
    with pytest.raises(Forbidden):
        door.ask(credential)


def test_a_claim_that_a_sandbox_takes_the_name_of_gives_no_right_any_more() -> None:
    door = Door()
    claim = SandboxRef("team-a", "claim")
    credential = token(sandboxes=[{"namespace": "team-a", "name": "claim"}])
    door.index.set_alias(claim, REF)
    door.ask(credential)
    door.index.upsert(Endpoint(claim, "pod-9", State.READY, ("10.0.0.9",)))
    with pytest.raises(Forbidden):
        door.ask(credential)


async def test_a_review_is_not_believed_beyond_its_time() -> None:
    now = time.time()
    door = Door(reviewer=Reviewer())
    door.policy.replace(
        Policy(
            rules=(
                Rule(
                    PrincipalMatch(subject="system:serviceaccount:a:b", mode="token-review"),
                    (Grant("*", "*"),),
                    1,
                    1,
                ),
            )
        )
    )
    request = door.request("opaque")
    pending = door.admission.step(request)
    assert isinstance(pending, AwaitCredential)
    door.admission.authenticated(request, await pending.answer)
    assert isinstance(door.admission.step(request), Permit)
    remembered = door.caller.remembered
    assert remembered is None or remembered.valid_until <= now + 31


def test_an_answer_may_be_kept_only_as_its_authenticator_says() -> None:
    class Once(DecidesEachTime):
        def authenticate(self, credentials: Any) -> Authenticated:
            return Authenticated(Principal(subject="alice", mode="static"), True)

    door = Door()
    door.chain = Once()  # type: ignore[assignment]
    door.admission = door._admission("", ProxyOptions())
    assert isinstance(door.ask(token()), Permit)
    assert door.caller.remembered is None


# --- preflights -----------------------------------------------------------------------------

PREFLIGHT = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}


def test_a_preflight_passes_without_a_credential_only_where_the_operator_says_so() -> None:
    for passes in (True, False):
        door = Door(passes_preflights=passes)
        if passes:
            request = door.request(None, line="OPTIONS / HTTP/1.1", **PREFLIGHT)
            assert isinstance(door.admission.step(request), Permit)
            assert request.is_preflight
            assert door.caller.remembered is None
        else:
            with pytest.raises(Unauthenticated):
                door.ask(None, line="OPTIONS / HTTP/1.1", **PREFLIGHT)


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("GET / HTTP/1.1", {}),
        ("OPTIONS / HTTP/1.1", {"Content_Length": "5"}),
        ("OPTIONS / HTTP/1.1", {"Authorization": "Bearer nonsense"}),
        ("OPTIONS / HTTP/1.1", {"X_Sandbox_Token": "nonsense"}),
    ],
)
def test_whatever_is_no_plain_preflight_needs_its_credential(
    line: str, more: dict[str, str]
) -> None:
    door = Door(passes_preflights=True)
    with pytest.raises(Unauthenticated):
        door.ask(None, line=line, **PREFLIGHT, **more)


# --- sessions -------------------------------------------------------------------------------

ALICE = Principal(
    subject="alice",
    mode="link",
    grants=(Grant("team-a", "box", ports=frozenset({8888})),),
    token_id="link-1",
)
OWN_PAGE = {"Sec_Fetch_Site": "same-origin"}


class SessionDoor(Door):
    """A Door for a browser that has a session in the sandbox, by its host name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(has_sessions=True, **options)
        link = self.sessions.link(ALICE, REF, 8888).encode()
        self.cookie = f"__Host-sandbox-router={self.sessions.begin(ALICE, link, BOX).token}"
        self.link = link.decode()

    def request(
        self, token: str | None, *, line: str = "GET / HTTP/1.1", **headers: str
    ) -> Request:
        named = {"Cookie": self.cookie, **OWN_PAGE, **headers}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in named.items()]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        block = "\r\n".join([line, "Host: 8888-box--team-a.boxes.example", *lines, "", ""])
        request = Request(parse_request(block.encode()), self.caller, ClientAddresses(()), 180.0)
        request.outcome.started_at = self.clock.now
        return request


def test_a_session_is_remembered_like_a_token() -> None:
    door = SessionDoor()
    assert not door.is_remembered(None)
    for _ in range(3):
        assert door.is_remembered(None)
    request = door.request(None)
    door.admission.step(request)
    assert (request.outcome.principal, request.outcome.authz) == ("alice", "allowed")
    assert request.outcome.token_id


def session_is_ended(door: Door) -> None:
    assert door.caller.remembered is not None
    door.sessions.end(door.caller.remembered.permit.principal)


def session_is_revoked(door: Door) -> None:
    assert door.caller.remembered is not None
    session = door.caller.remembered.permit.principal
    door.policy.replace(Policy(revoked=frozenset({session.token_id})))


def its_link_is_revoked(door: Door) -> None:
    assert door.caller.remembered is not None
    link_id = door.caller.remembered.permit.principal.made_of
    door.policy.replace(Policy(revoked=frozenset({link_id})))


def its_person_is_shut_out(door: Door) -> None:
    door.policy.replace(Policy(not_before=(NotBefore("", "alice", door.clock.now + 1),)))


def session_key_is_replaced(door: Door) -> None:
    door.sessions.use(parse_session_keys(b"another-secret-another-secret-another-se"))


@pytest.mark.parametrize(
    ("end", "refusal"),
    [
        (expires, Unauthenticated),
        (session_is_ended, Unauthenticated),
        (session_is_revoked, Unauthenticated),
        (its_link_is_revoked, Unauthenticated),
        (its_person_is_shut_out, Unauthenticated),
        (session_key_is_replaced, Unauthenticated),
        (older_tokens_are_refused, Unauthenticated),
        (another_pod_takes_its_place, RouterError),
        (it_is_suspended, SandboxSuspended),
        (it_goes, RouterError),
        (its_host_is_found_dead, SandboxNotReady),
    ],
)
def test_whatever_ends_a_session_ends_what_was_remembered_of_it(
    end: Callable[[Door], None], refusal: type[RouterError]
) -> None:
    door = SessionDoor()
    door.ask(None)
    assert door.is_remembered(None)
    end(door)
    with pytest.raises(refusal):
        door.ask(None)


def test_a_sandbox_that_was_made_anew_is_not_entered_by_an_old_session() -> None:
    door = SessionDoor()
    door.ask(None)
    door.index.upsert(Endpoint(REF, "pod-2", State.READY, BOX.addresses, sandbox_uid="sandbox-2"))
    with pytest.raises(RouterError) as caught:
        door.ask(None)
    assert caught.value.status in (401, 403)


@pytest.mark.parametrize(
    "foreign",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
        {"Connection": "Upgrade", "Upgrade": "websocket"},
        {"line": "POST / HTTP/1.1", "Origin": "https://evil.example"},
    ],
    ids=str,
)
def test_on_a_remembered_connection_too_a_foreign_page_is_refused(foreign: dict[str, str]) -> None:
    door = SessionDoor()
    door.ask(None)
    assert door.is_remembered(None)
    with pytest.raises(CrossOrigin):
        door.ask(None, **foreign)
    assert door.is_remembered(None), "and its own page goes on"


@pytest.mark.parametrize("other", ["", "theme=dark", "__Host-sandbox-router=nonsense"])
def test_without_its_cookie_a_remembered_connection_has_no_session(other: str) -> None:
    door = SessionDoor()
    door.ask(None)
    with pytest.raises(Unauthenticated):
        door.ask(None, Cookie=other)


def test_another_cookie_beside_it_changes_nothing() -> None:
    door = SessionDoor()
    door.ask(None)
    assert isinstance(door.ask(None, Cookie=f"theme=dark; {door.cookie}"), Permit)


def test_cookies_mean_nothing_to_a_bearer_s_connection() -> None:
    door = SessionDoor()
    credential = token()
    door.ask(credential, Cookie="a=1")
    assert door.is_remembered(credential, Cookie="a=2")
    assert door.is_remembered(credential, Cookie=door.cookie)
    assert door.is_remembered(credential, Sec_Fetch_Site="cross-site")


def test_on_a_remembered_connection_too_only_the_link_begins_a_session() -> None:
    for credential in (None, token()):
        door = SessionDoor()
        door.ask(credential)
        with pytest.raises(Unauthenticated):
            door.ask(credential, line="GET /.sandbox-router/session?link=nonsense HTTP/1.1")
        request = door.request(
            credential, line=f"GET /.sandbox-router/session?link={door.link} HTTP/1.1"
        )
        permit = door.admission.step(request)
        assert isinstance(permit, Permit)
        assert permit.principal.mode == "link"
        assert door.caller.remembered is not None
        assert door.caller.remembered.permit.principal.mode != "link"


@pytest.mark.parametrize("path", ["session?link={link}", "logout"])
def test_what_begins_and_ends_sessions_waits_for_no_sandbox_and_wakes_none(path: str) -> None:
    door = SessionDoor(wakes="all")
    door.index.upsert(Endpoint(REF, "", State.SUSPENDED, (), sandbox_uid="pod-1"))
    request = door.request(
        None, line=f"GET /.sandbox-router/{path.format(link=door.link)} HTTP/1.1"
    )
    assert isinstance(door.admission.step(request), Permit)
    assert door.caller.remembered is None, "it must never be dialled"


def test_a_long_cookie_is_not_kept_in_memory() -> None:
    door = SessionDoor()
    door.ask(None, Cookie=f"{door.cookie}; a={'a' * 5000}")
    assert door.caller.remembered is None


# --- public ports ---------------------------------------------------------------------------

OPEN = Endpoint(
    REF,
    "pod-1",
    State.READY,
    BOX.addresses,
    sandbox_uid="sandbox-1",
    wishes=Wishes(public_ports=frozenset({8888})),
)


class OpenDoor(Door):
    """A Door to a sandbox whose port 8888 is public, where the operator allows that."""

    def __init__(self, **options: Any) -> None:
        super().__init__(public_ports=True, **options)
        self.authorizer = CountedGrants(policy=self.policy, public_ports=True)
        self.admission = self._admission("", ProxyOptions(public_ports=True, **options))
        self.index.upsert(OPEN)


def test_a_public_port_is_told_apart_in_the_log() -> None:
    door = OpenDoor()
    for _ in range(2):
        request = door.request(None)
        assert isinstance(door.admission.step(request), Permit)
        assert (request.outcome.authz, request.outcome.principal) == ("public", "")
    request = door.request(token())
    door.admission.step(request)
    assert (request.outcome.authz, request.outcome.principal) == ("allowed", "alice")


def test_a_port_that_is_closed_again_is_closed_at_once() -> None:
    door = OpenDoor()
    door.ask(None)
    assert door.is_remembered(None)
    door.index.upsert(BOX)
    with pytest.raises(Unauthenticated):
        door.ask(None)


def test_another_port_is_not_public_on_a_connection_where_one_was() -> None:
    door = OpenDoor()
    door.ask(None)
    with pytest.raises(Unauthenticated):
        door.ask(None, X_Sandbox_Port="9000")


def test_a_public_port_that_sleeps_is_woken_by_nobody_unknown() -> None:
    door = OpenDoor(wakes="all")
    door.index.upsert(replace(OPEN, state=State.SUSPENDED, addresses=()))
    with pytest.raises(SandboxSuspended) as caught:
        door.ask(None)
    assert "no right to wake it" in caught.value.reason
    with pytest.raises(Unauthenticated):
        door.ask(None, X_Sandbox_Port="9000")


def test_a_port_that_closes_while_its_caller_waits_is_reached_by_nobody_unknown() -> None:
    door = OpenDoor(wait_for_ready_s=10.0)
    door.index.upsert(replace(OPEN, state=State.STARTING, addresses=()))
    request = door.request(None)
    assert isinstance(door.admission.step(request), AwaitSandbox)
    door.index.upsert(BOX)
    with pytest.raises(Forbidden):
        door.admission.step(request)
