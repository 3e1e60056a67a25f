"""One request: what was asked, what it may have to wait for, and the Outcome that is told of it in the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable
from typing import Final, TypeAlias

from router.auth.authenticator import Authenticated
from router.auth.authorizer import Permit
from router.auth.principal import CONNECT
from router.errors import InternalError, RouterError
from router.proxy.caller import Caller
from router.proxy.slots import Slot
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.response_head import SCOPED, ResponseHead
from router.proxy.wire.rewriting import BY_HEADER, CACHING, HEADER, ResponseScope
from router.proxy.wire.router_paths import PREFIX
from router.proxy.wire.stripping import Stripped
from router.proxy.wire.trace_context import Trace
from router.routing.endpoint import Endpoint, SandboxRef
from router.routing.target import Target

logger = logging.getLogger("sandbox_router.proxy")

CLIENT_CLOSED: Final = 499
"""nginx's number: the client left before a response began."""

_REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})


class Outcome:
    """One request or tunnel, filled in as it goes (mutable and slotted: it is made once a request).

    Durations are seconds, None where that step never happened; `started_at` is Unix time. Text from the client is kept as
    raw bytes: whoever prints it escapes it.
    """

    __slots__ = (
        "asked_namespace",
        "authz",
        "bytes_from_client",
        "bytes_to_client",
        "client",
        "code",
        "connect_s",
        "error_reason",
        "first_byte_s",
        "is_tunnel",
        "key_id",
        "method",
        "namespace",
        "path",
        "pod_uid",
        "port",
        "principal",
        "retries",
        "sandbox",
        "started_at",
        "status",
        "token_id",
        "total_s",
        "trace",
        "traceparent",
        "upstream_error",
        "used",
        "used_at",
        "wait_s",
        "woke",
    )

    def __init__(
        self,
        *,
        method: bytes,
        path: bytes,
        client: str,
        started_at: float,
        traceparent: bytes | None = None,
    ) -> None:
        self.method = method
        self.path = path
        """The request target as it came; the query is cut off where it is logged."""
        self.client = client
        """The client's address, found right to left through `trusted-proxies`."""
        self.started_at = started_at
        self.status = 0
        """The status sent; 499 when the client left before there was one; 0 never."""
        self.code = ""
        """The RouterError's code; "" when the sandbox answered; `client_closed`, `response_cut`, `stream_drained` or `tunnel_*` for other ends."""
        self.namespace = ""
        """The sandbox's namespace if the table knows it, else ""."""
        self.asked_namespace = ""
        """The namespace that the request named, known or not; "" when it named no sandbox."""
        self.sandbox = ""
        self.port = 0
        self.pod_uid = ""
        self.principal = ""
        self.token_id = ""
        """Who called, where the subject doesn't say it: the token's `jti`; and the `kid` of the key that verified it."""
        self.key_id = ""
        self.authz = ""
        """`allowed`, `public` (without a credential, by a public port), `denied`, `unauthenticated`, `unavailable` or "" (not reached)."""
        self.upstream_error = ""
        """A reason from UPSTREAM_ERRORS, "" when the sandbox did nothing wrong."""
        self.error_reason = ""
        """Detail for the log alone (an errno, an address)."""
        self.retries = 0
        self.is_tunnel = False
        self.woke = False
        """The request met a suspended sandbox, and woke it or waited for who did."""
        self.wait_s: float | None = None
        self.connect_s: float | None = None
        self.first_byte_s: float | None = None
        self.total_s = 0.0
        self.bytes_from_client = 0
        """Body (or tunnel) bytes."""
        self.bytes_to_client = 0
        self.traceparent = traceparent
        """As the sandbox is sent it: as it came, unless this request is traced here."""
        self.trace: Trace | None = None
        """None unless a span is made of this request."""
        self.used: Endpoint | None = None
        """The sandbox that this was activity of: it answered below 500, or the client left while it worked; else None."""
        self.used_at = 0.0
        """When (monotonic seconds) it was used last: the end, or what last crossed a tunnel but pings and pongs."""

    def ended(self, started_at: float, permit: Permit | None) -> None:
        """Notes the end of what began at `started_at` (monotonic seconds), and was activity of a sandbox if that responded well."""
        now = time.monotonic()
        self.total_s = now - started_at
        if not self.is_tunnel:
            self.used_at = now
        has_answered = self.first_byte_s is not None or self.is_tunnel
        if has_answered and self.status < 500 and permit is not None:
            self.used = permit.endpoint

    def switched(self) -> None:
        """Notes that the client was sent a 101."""
        self.status = 101
        self.is_tunnel = True

    def tunnelled(self, code: str, from_client: int, to_client: int, moved_at: float) -> None:
        """Notes how a tunnel ended, what crossed it in bytes, and when (monotonic seconds) anything last did."""
        self.code = code
        self.bytes_from_client += from_client
        self.bytes_to_client = to_client
        self.used_at = moved_at

    def client_left(self, permit: Permit | None, *, has_begun: bool) -> None:
        """Notes that the client left before it had its whole response, and while whose sandbox worked."""
        self.code = self.code or "client_closed"
        if not has_begun:
            self.status = CLIENT_CLOSED
            self.used = None if permit is None else permit.endpoint

    def refused(self, error: RouterError) -> None:
        """Notes an error response of the router's own."""
        self.code = error.code
        self.status = error.status
        self.authz = _AUTHZ_DECISIONS.get(error.code, self.authz)


_AUTHZ_DECISIONS: Final = {
    "forbidden": "denied",
    "cross_origin": "denied",
    "unauthenticated": "unauthenticated",
    "auth_unavailable": "unavailable",
}

WAKE_OUTCOMES = ("woken", "already", "not_ready", "gone", "limited", "refused", "unavailable")
"""How wakes end: ready by our call, or by someone else's; not ready in time; the sandbox is gone; no turn; the API says no, or nothing."""

UPSTREAM_ERRORS = (
    "connect_refused",
    "connect_timeout",
    "connect_unreachable",
    "connect_error",
    "resolve_error",
    "closed_early",
    "reset",
    "bad_response",
    "response_timeout",
    "response_cut",
)
"""The closed set of values of the label `reason` in sandbox_router_upstream_errors_total."""


def outcome_of_refused(error: RouterError, head: bytes, peer: Peer) -> Outcome:
    """Returns the Outcome of bytes that made no request; `head` is what came of one."""
    parts = head.partition(b"\r\n")[0].split(b" ", 2)
    outcome = Outcome(
        method=parts[0][:32],
        path=parts[1] if len(parts) > 1 else b"",
        client=peer.address,
        started_at=time.time(),
    )
    outcome.refused(error)
    outcome.error_reason = error.reason or error.detail
    return outcome


class Request:
    """One request on its way to a Permit: what was asked, and what has been found out so far.

    `started_at` and `waits_since` are monotonic seconds; `timeout_s` is how long the request may take until its response
    begins. Whoever ends the request gives its `slots` back.
    """

    __slots__ = (
        "admitted",
        "authenticated",
        "caller",
        "generations",
        "grant_method",
        "head",
        "is_ambient",
        "is_preflight",
        "needs_no_pod",
        "outcome",
        "permit",
        "slots",
        "started_at",
        "target",
        "timeout_s",
        "waits_since",
        "wake_right",
    )

    def __init__(
        self, head: RequestHead, caller: Caller, clients: ClientAddresses, timeout_s: float
    ) -> None:
        peer = caller.peer
        self.head = head
        self.caller = caller
        self.outcome = Outcome(
            method=head.method,
            path=head.target,
            client=clients.of(head, peer) if peer.is_trusted else peer.address,
            started_at=time.time(),
            traceparent=head.traceparent,
        )
        self.started_at = time.monotonic()
        self.timeout_s = timeout_s
        self.grant_method = head.method
        """The method that a grant has to allow: CONNECT for a raw connection, else the request's own."""
        self.target: Target | None = None
        self.authenticated: Authenticated | None = None
        self.permit: Permit | None = None
        self.generations: tuple[int, int, int] | None = None
        """Those in force before anything was asked; None until then."""
        self.admitted: tuple[SandboxRef, ...] = ()
        """The names that the caller was found to be allowed to know about."""
        self.waits_since: float | None = None
        self.wake_right: str | None = None
        """The Sandbox, by UID, that the caller was found to be allowed to wake."""
        self.is_preflight = False
        """A CORS preflight that goes on without a credential: then without cookies too."""
        self.is_ambient = False
        """Its browser added the credential by itself: the response is for that browser alone."""
        self.needs_no_pod = False
        """It is answered here whatever the sandbox does now: it begins or ends a session."""
        self.slots: list[Slot] | None = None
        """Places of limits that this request holds; None before they were asked for."""

    def give_slots_back(self) -> None:
        for slot in self.slots or ():
            slot.give_back()

    @property
    def is_raw(self) -> bool:
        """True when it asks for a TCP connection instead of a response."""
        return self.grant_method is CONNECT

    @property
    def is_repeatable(self) -> bool:
        """True when the request may be sent again if a reused connection closes before any byte of a response."""
        return self.head.method in _REPEATABLE and not self.head.has_body

    def stripped(self, usual: Stripped | None) -> Stripped | None:
        """Returns what of the request must not reach the sandbox; of a preflight that is every cookie too."""
        return Stripped.every_cookie(usual) if self.is_preflight else usual

    def keeps_path(self, usual: str) -> bool:
        """Returns True when an app that was named by path sees the whole of it; `usual` is for Sandboxes that say nothing."""
        said = "" if self.permit is None else self.permit.endpoint.wishes.path_mode
        return (said or usual) == "keep"

    def scope(
        self, response: ResponseHead, sandbox_host: bytes, path_mode: str
    ) -> ResponseScope | None:
        """Returns what a response's head is judged by, None when it needs no such judgement."""
        target, kinds = self.target, response.kinds & SCOPED
        if not kinds or target is None:
            return None
        if kinds == CACHING:
            return BY_HEADER if target.named_by is HEADER else None
        keeps_path = self.keeps_path(path_mode)
        return ResponseScope.of(
            target, self.head, self.caller.peer, sandbox_host, keeps_path=keeps_path
        )


def is_for_router(request: Request) -> bool:
    """Returns True when the path, behind the sandbox's root where a path named it, is one of the router's own."""
    root = b"" if request.target is None else request.target.path_root
    return request.head.target.startswith(PREFIX, len(root))


def error_of(exc: Exception) -> RouterError:
    """Returns the error that the client is told; what nobody foresaw is logged with its traceback."""
    if isinstance(exc, RouterError):
        return exc
    logger.error("a request failed for a reason that nobody foresaw", exc_info=exc)
    return InternalError(reason=f"{type(exc).__name__}: {exc}")


class AwaitCredential:
    """Someone else has to be asked who calls; give the answer to Admission.authenticated()."""

    __slots__ = ("answer",)

    def __init__(self, answer: Awaitable[Authenticated]) -> None:
        self.answer = answer


class AwaitAuthorization:
    """Someone else has to be asked whether they may: about this pod, or about `names` while there is none."""

    __slots__ = ("answer", "endpoint", "names")

    def __init__(
        self,
        answer: Awaitable[Permit | None],
        endpoint: Endpoint | None,
        names: tuple[SandboxRef, ...],
    ) -> None:
        self.answer = answer
        self.endpoint = endpoint
        self.names = names


class AwaitSandbox:
    """The sandbox isn't ready, or not known yet; it is waited for until `until` (monotonic seconds)."""

    __slots__ = ("endpoint", "until")

    def __init__(self, endpoint: Endpoint | None, until: float) -> None:
        self.endpoint = endpoint
        self.until = until


class AwaitWakeRight:
    """Someone else has to be asked whether they may wake the sandbox; give the answer to Admission.wake_right()."""

    __slots__ = ("answer", "endpoint")

    def __init__(self, answer: Awaitable[bool], endpoint: Endpoint) -> None:
        self.answer = answer
        self.endpoint = endpoint


class AwaitWake:
    """The sandbox is suspended and the request may wake it; its client waits until `until` (monotonic seconds).

    The wake itself may begin until `wanted_until`: who is shown a page meanwhile comes back.
    """

    __slots__ = ("endpoint", "until", "wanted_until")

    def __init__(self, endpoint: Endpoint, until: float, wanted_until: float) -> None:
        self.endpoint = endpoint
        self.until = until
        self.wanted_until = wanted_until


Pending: TypeAlias = (
    AwaitCredential | AwaitAuthorization | AwaitSandbox | AwaitWakeRight | AwaitWake
)
"""What has to be waited for before the next step()."""
