"""What is known of one request on its way to a Permit, and what it may have to wait for."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Final, TypeAlias

from router.auth.authenticator import Authenticated, CertificateIdentity
from router.auth.authorizer import Permit
from router.errors import RouterError
from router.proxy.outcome import Outcome
from router.proxy.slots import Slot
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.response_head import SCOPED, ResponseHead
from router.proxy.wire.rewriting import BY_HEADER, CACHING, HEADER, ResponseScope
from router.proxy.wire.router_paths import PREFIX
from router.proxy.wire.stripping import Stripped
from router.routing.endpoint import Endpoint, SandboxRef
from router.routing.target import Target

_REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})


class Remembered:
    """What the last request of a connection was granted, for the next one that asks for the same with the same credential.

    It holds while nobody's generation moved, the credential is valid, and the name still leads to the very same Endpoint.
    """

    __slots__ = (
        "asked",
        "authenticated",
        "authenticator_generation",
        "authorization",
        "authorizer_generation",
        "authz",
        "client_cert",
        "cookie",
        "counts_cookie",
        "host",
        "is_ambient",
        "method",
        "names_generation",
        "permit",
        "sandbox_token",
        "target",
        "valid_until",
    )

    def __init__(
        self,
        head: RequestHead,
        target: Target,
        authenticated: Authenticated,
        permit: Permit,
        generations: tuple[int, int, int],
        valid_until: float,
        *,
        counts_cookie: bool,
        is_ambient: bool,
    ) -> None:
        # Not the head itself: an idle connection would keep all its lines in memory.
        self.asked = head.asked
        self.authorization = head.authorization
        self.host = head.host
        self.method = head.method
        self.sandbox_token = head.sandbox_token
        self.client_cert = head.client_cert
        self.counts_cookie = counts_cookie
        """Whether another Cookie header could make it another caller."""
        self.cookie = head.cookie if counts_cookie else None
        self.is_ambient = is_ambient
        """The browser adds the credential by itself, so each request is asked which page it is of."""
        self.target = target
        self.authenticated = authenticated
        self.permit = permit
        self.authz = "public" if permit.principal.mode == "public" else "allowed"
        self.authenticator_generation, self.authorizer_generation, self.names_generation = (
            generations
        )
        self.valid_until = valid_until
        """Unix seconds."""

    def has_credential_of(self, head: RequestHead) -> bool:
        """Returns True when the head has exactly the credential that this was granted for."""
        return (
            head.authorization == self.authorization
            and head.sandbox_token == self.sandbox_token
            and head.subprotocols is None
            and head.client_cert == self.client_cert
            and (not self.counts_cookie or head.cookie == self.cookie)
        )


class Caller:
    """A client's connection, as far as it proves who calls (made once a connection)."""

    __slots__ = ("certificate", "peer", "remembered")

    def __init__(self, peer: Peer, certificate: CertificateIdentity | None = None) -> None:
        self.peer = peer
        self.certificate = certificate
        self.remembered: Remembered | None = None


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
