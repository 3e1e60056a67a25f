"""Explainer: what the router would do with a request, decision by decision, without doing it.

It runs the proxy's own Admission, step by step, and tells what each step found. It never dials and never waits for a
sandbox. A credential that only Kubernetes or a key server can judge is sent to it as a request would have sent it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from router.auth.authorizer import Permit, PoolKey
from router.auth.principal import Principal
from router.errors import BadRequest, Forbidden, RouterError, SandboxNotReady
from router.proxy.admission import Admission
from router.proxy.caller import Caller
from router.proxy.ports import EndpointSource
from router.proxy.request import (
    AwaitAuthorization,
    AwaitCredential,
    AwaitSandbox,
    AwaitWake,
    AwaitWakeRight,
    Request,
    is_for_router,
)
from router.proxy.signs_of_life import Dialled
from router.proxy.wire.forwarding import subprotocol_token
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import RequestHead, parse_request
from router.proxy.wire.session_cookie import ON_LOOPBACK
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.target import Target
from router.telemetry.escaping import printable

_REVIEW_PATIENCE_S: Final = 1.0
"""How long an answer from elsewhere is waited for: an operator wants it now, and a review takes milliseconds."""
_DIALS: Final = {
    "": "was accepted",
    "connect_refused": "was refused: nothing listens on that port",
    "connect_timeout": "got no answer: the pod hangs, or a NetworkPolicy drops the packets",
    "connect_unreachable": "found no way to the pod's host",
    "resolve_error": "found no address for the sandbox's name",
}
_ANYONE: Final = (ipaddress.ip_network("0.0.0.0/0"),)
_PARAMETERS = ("namespace", "name", "port", "path", "method")
_TEXT_LIMIT = 1024


class ExplainingAuthorizer(Protocol):
    """An Authorizer that says which grant decides; it asks nobody and counts nothing."""

    def explain(
        self,
        principal: Principal,
        names: tuple[SandboxRef, ...],
        endpoint: Endpoint | None,
        port: int,
        method: bytes,
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Question:
    """The request to explain: its own headers, and what the query string says instead of them."""

    headers: tuple[tuple[bytes, bytes], ...]
    method: bytes = b"GET"
    path: bytes = b"/"
    namespace: bytes | None = None
    name: bytes | None = None
    port: bytes | None = None

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]], query: Mapping[str, str]) -> Question:
        """Returns the question that a request to /debug/route asks. Raises BadRequest."""
        if set(query) - set(_PARAMETERS):
            raise BadRequest(f"Unknown parameter; the parameters are {', '.join(_PARAMETERS)}.")
        raw = {
            name: value.encode("utf-8", "surrogateescape") for name, value in query.items() if value
        }
        return cls(
            headers=tuple(headers),
            method=raw.get("method", b"GET"),
            path=raw.get("path", b"/"),
            namespace=raw.get("namespace"),
            name=raw.get("name"),
            port=raw.get("port"),
        )

    def head(self) -> RequestHead:
        """Returns the head as the proxy port would read it. Raises RouterError."""
        for part in (self.method, self.path):
            if not part or any(byte <= 0x20 or byte == 0x7F for byte in part):
                raise BadRequest("The method or the path holds spaces or control characters.")
        lines = [b"%b %b HTTP/1.1\r\n" % (self.method, self.path)]
        lines += [b"%b: %b\r\n" % header for header in self.headers]
        head = parse_request(b"".join([*lines, b"\r\n"]))
        asked = head.asked
        head.asked = asked._replace(
            sandbox_id=self.name or asked.sandbox_id,
            namespace=self.namespace or asked.namespace,
            port=self.port or asked.port,
        )
        return head


class Explainer:
    """Answers Questions. Belongs to the loop's thread."""

    def __init__(
        self,
        *,
        admission: Admission,
        source: EndpointSource,
        authorizer: ExplainingAuthorizer,
        is_own_listener: Callable[[str, int], bool],
        is_draining: Callable[[], bool],
        last_seen: Callable[[PoolKey], Dialled | None],
        wake_outlook: Callable[[Endpoint], str],
        timeout_s: float,
    ) -> None:
        """`wake_outlook` says what would come of waking a sandbox now; `timeout_s` is how long a request may take that says nothing itself (proxy-timeout)."""
        self._wake_outlook = wake_outlook
        self._admission = admission
        self._source = source
        self._authorizer = authorizer
        self._is_own_listener = is_own_listener
        self._is_draining = is_draining
        self._last_seen = last_seen
        self._timeout_s = timeout_s

    async def explain(self, question: Question) -> dict[str, Any]:
        """Returns the steps and the outcome, for JSON. Of the request it repeats the names alone: no credential, path or query."""
        steps: dict[str, Any] = dict.fromkeys(("target", "principal", "endpoint", "decision"))
        try:
            outcome = await self._about(question, steps)
        except RouterError as error:
            outcome = {
                "status": error.status,
                "code": error.code,
                "detail": error.detail,
                "reason": error.reason,
            }
        return {**steps, "outcome": outcome}

    async def _about(self, question: Question, steps: dict[str, Any]) -> dict[str, Any]:
        """Fills `steps`. Returns the outcome. Raises the RouterError that the request would get."""
        head = question.head()
        if self._admission.is_health_check(head):
            self._admission.check_table()
            return _outcome(200, "The router answers load balancers' checks itself.")
        # A forwarded certificate counts as if a trusted proxy had sent it.
        peer = Peer("127.0.0.1", is_tls=False, trusted=_ANYONE)
        request = Request(head, Caller(peer), ClientAddresses(()), self._timeout_s)
        try:
            return await self._walk(request)
        finally:
            self._tell(request, steps)
            for slot in request.slots or ():
                slot.give_back()

    async def _walk(self, request: Request) -> dict[str, Any]:
        """Takes the steps that need nobody's patience. Returns the outcome of the last one."""
        while True:
            match self._admission.step(request):
                case Permit() if is_for_router(request) and not request.is_raw:
                    return _outcome(
                        None,
                        "The router answers this path itself (docs/sleeping.md, docs/browsers.md).",
                    )
                case Permit() as permit:
                    return self._of_permitted(permit, is_raw=request.is_raw)
                case AwaitSandbox() as pending:
                    self._refuse_to_wait(request, pending)
                case AwaitWake() as pending:
                    return self._of_wake(request, pending)
                case pending:
                    missing = await self._answer(request, pending)
                    if missing:
                        return _outcome(None, f"{missing}: ask again.")

    async def _answer(
        self, request: Request, pending: AwaitCredential | AwaitAuthorization | AwaitWakeRight
    ) -> str:
        """Asks as the request would. Returns "", or what is still to be heard after a moment."""
        try:
            async with asyncio.timeout(_REVIEW_PATIENCE_S):
                match pending:
                    case AwaitCredential():
                        self._admission.authenticated(request, await pending.answer)
                    case AwaitAuthorization():
                        self._admission.authorized(request, pending, await pending.answer)
                    case AwaitWakeRight():
                        self._admission.wake_right(request, pending, await pending.answer)
        except TimeoutError:
            if isinstance(pending, AwaitCredential):
                return "The credential is still being checked"
            return "Kubernetes RBAC is still being asked"
        return ""

    def _of_permitted(self, permit: Permit, *, is_raw: bool) -> dict[str, Any]:
        endpoint = permit.endpoint
        port = endpoint.dialled_port(permit.port)
        if any(self._is_own_listener(address, port) for address in endpoint.addresses):
            raise Forbidden("The router does not connect to itself.")
        detail = (
            "The WebSocket becomes a TCP connection to the sandbox."
            if is_raw
            else "The request goes to the sandbox, which answers it."
        )
        seen = self._last_seen(permit.key)
        if seen is not None:
            came_to = _DIALS.get(seen.failure, "failed")
            detail += (
                f" The last new connection to its port {port}, {seen.ago_s:.3g} s ago, {came_to}."
            )
        if self._is_draining():
            detail += " This router is draining: its connection closes after the response."
        return _outcome(None, detail)

    def _of_wake(self, request: Request, pending: AwaitWake) -> dict[str, Any]:
        self._check_room(request)
        waits_s = max(0.0, pending.wanted_until - time.monotonic())
        shown_s = max(0.0, pending.until - time.monotonic())
        gets_page = pending.until < pending.wanted_until
        page = (
            f" After {shown_s:.3g} s a browser is shown a page that loads itself again."
            if gets_page
            else ""
        )
        return _outcome(
            None,
            f"The request wakes the sandbox, waits up to {waits_s:.3g} s for it, and goes to it: "
            f"{self._wake_outlook(pending.endpoint)}.{page}",
        )

    def _check_room(self, request: Request) -> None:
        """Raises SandboxNotReady where the waiting room is full: it refuses at once, here as there."""
        assert request.target is not None
        authenticated = request.authenticated
        caller = None if authenticated is None else authenticated.principal.share()
        self._source.wait(request.target.ref, _nothing, caller).cancel()

    def _refuse_to_wait(self, request: Request, pending: AwaitSandbox) -> None:
        """Raises what the request would get if nothing changed while it waits."""
        assert request.target is not None
        self._check_room(request)
        if pending.endpoint is None:
            raise self._admission.unknown(request.target.ref)
        waits_s = max(0.0, pending.until - time.monotonic())
        raise SandboxNotReady(
            reason=f"it would be waited for, up to {waits_s:.3g} s: {pending.endpoint.reason or 'starting'}"
        )

    def _tell(self, request: Request, steps: dict[str, Any]) -> None:
        """Fills `steps` with what was found out."""
        target, authenticated = request.target, request.authenticated
        if target is None:
            return
        steps["target"] = _target_facts(target)
        steps["principal"] = _principal_facts(
            None if authenticated is None else authenticated.principal, request.head
        )
        if authenticated is None:
            return
        endpoint = self._source.find(target.ref, target.pod_ip)
        is_ready = endpoint is not None and endpoint.state is State.READY
        names = (target.ref,) if endpoint is None else self._source.names(endpoint, target.ref)
        # Who may not see a sandbox learns nothing about it; a ready one is judged as the very pod.
        steps["decision"] = self._authorizer.explain(
            authenticated.principal,
            names,
            endpoint if is_ready else None,
            target.port,
            request.grant_method,
        )
        steps["endpoint"] = _endpoint_facts(endpoint, names, target)


def _nothing() -> None:
    """Wakes nobody."""


def _outcome(status: int | None, detail: str) -> dict[str, Any]:
    """Returns an end that is no refusal; without a status where the sandbox, or time, will decide."""
    return {"status": status, "code": "", "detail": detail, "reason": ""}


def _target_facts(target: Target) -> dict[str, Any]:
    return {
        "namespace": target.ref.namespace,
        "name": target.ref.name,
        "port": target.port,
        "named_by": target.named_by.value,
        "uid": target.uid,
        "timeout_s": target.timeout_s,
        "pod_ip": target.pod_ip,
    }


def _principal_facts(principal: Principal | None, head: RequestHead) -> dict[str, Any]:
    values = {
        "authorization": head.authorization,
        "sandbox_token": head.sandbox_token,
        "subprotocol_token": subprotocol_token(head.subprotocols),
        "certificate": head.client_cert,
        "session": _session_in(head),
    }
    offered = [name for name, value in values.items() if value is not None]
    if principal is None:
        return {"recognised": False, "offered": offered}
    return {
        "recognised": True,
        "offered": offered,
        "mode": principal.mode,
        "subject": printable(principal.subject, _TEXT_LIMIT),
        "groups": [printable(group, _TEXT_LIMIT) for group in principal.groups],
        "issuer": printable(principal.issuer, _TEXT_LIMIT),
        "identity": printable(principal.identity, _TEXT_LIMIT),
        "kind": principal.kind,
        "token_id": printable(principal.token_id, _TEXT_LIMIT),
        "key_id": printable(principal.key_id, _TEXT_LIMIT),
        "issued_at": principal.issued_at,
        "expires_at": principal.expires_at,
    }


def _session_in(head: RequestHead) -> bytes | None:
    """Returns the Cookie header that has a session, in whichever form; None without one."""
    return head.cookie if head.cookie is not None and ON_LOOPBACK + b"=" in head.cookie else None


def _endpoint_facts(
    endpoint: Endpoint | None, names: tuple[SandboxRef, ...], target: Target
) -> dict[str, Any]:
    if endpoint is None:
        return {"known": False}
    return {
        "known": True,
        "namespace": endpoint.ref.namespace,
        "name": endpoint.ref.name,
        "names": [str(name) for name in names],
        "state": endpoint.state.value,
        "reason": endpoint.reason,
        "pod_uid": endpoint.uid,
        "sandbox_uid": endpoint.sandbox_uid,
        "wakes_on_request": endpoint.wishes.wakes_on_request,
        "addresses": list(endpoint.addresses),
        "port": endpoint.dialled_port(target.port),
    }
