"""Explainer: what the router would do with a request, decision by decision, without doing it.

It takes the steps of proxy/gateway.py in the same order with the same parts, but asks nobody and waits for nothing. A
credential that only Kubernetes or a key server can judge is sent to it as a request would have sent it; the answer is
not waited for, and the next explanation has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from router.auth.authenticator import (
    Authenticated,
    Authenticator,
    CertificateIdentity,
    Credentials,
)
from router.auth.principal import Principal
from router.errors import (
    BadRequest,
    Forbidden,
    IndexStale,
    MethodNotSupported,
    RouterError,
    SandboxFinished,
    SandboxNotFound,
    SandboxNotReady,
    SandboxReplaced,
    SandboxSuspended,
    Unauthenticated,
)
from router.proxy.wire.forwarding import subprotocol_token
from router.proxy.wire.request_head import RequestHead, parse_request
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.target import Target, TargetParser
from router.telemetry.escaping import printable

_PARAMETERS = ("namespace", "name", "port", "path", "method")
_TEXT_LIMIT = 1024
_NOT_PROXIED = (b"CONNECT", b"TRACE")


class Source(Protocol):
    """Where sandboxes live, as far as it is known."""

    def find(self, target: Target) -> Endpoint | None: ...

    def names(self, endpoint: Endpoint, asked: SandboxRef) -> tuple[SandboxRef, ...]: ...

    def is_complete(self, namespace: str | None = None) -> bool: ...

    def is_stale(self, max_staleness_s: float) -> bool: ...


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
        targets: TargetParser,
        authenticator: Authenticator,
        source: Source,
        authorizer: ExplainingAuthorizer,
        identity_in_header: Callable[[bytes], CertificateIdentity | None],
        is_own_listener: Callable[[str, int], bool],
        wait_for_ready_s: float,
        max_staleness_s: float,
    ) -> None:
        self._targets = targets
        self._authenticator = authenticator
        self._source = source
        self._authorizer = authorizer
        self._identity_in_header = identity_in_header
        self._is_own_listener = is_own_listener
        self._wait_for_ready_s = wait_for_ready_s
        self._max_staleness_s = max_staleness_s

    async def explain(self, question: Question) -> dict[str, Any]:
        """Returns the steps and the outcome, for JSON. Of the request it repeats the names alone: no credential, path or query."""
        steps: dict[str, Any] = dict.fromkeys(("target", "principal", "endpoint", "decision"))
        try:
            outcome = await self._walk(question, steps)
        except RouterError as error:
            outcome = {
                "status": error.status,
                "code": error.code,
                "detail": error.detail,
                "reason": error.reason,
            }
        return {**steps, "outcome": outcome}

    async def _walk(self, question: Question, steps: dict[str, Any]) -> dict[str, Any]:
        """Fills `steps` one after the other. Returns the outcome. Raises the RouterError that the request would get."""
        head = question.head()
        if head.method in _NOT_PROXIED:
            raise MethodNotSupported
        if _is_health_check(head) and not self._targets.names_sandbox(
            head.asked, head.host, head.target
        ):
            if not self._source.is_complete():
                raise _no_table_yet()
            return _outcome(200, "The router answers load balancers' checks itself.")
        target = self._targets.parse(head.asked, head.host, head.target)
        steps["target"] = _target_facts(target)
        credentials = self._credentials(head)
        principal = await self._principal(credentials)
        steps["principal"] = _principal_facts(principal, credentials)
        if principal is None:
            return _outcome(
                None, "The credential is being checked just now: ask again in a moment."
            )
        if self._max_staleness_s and self._source.is_stale(self._max_staleness_s):
            raise IndexStale
        return self._about_endpoint(target, principal, head.method, steps)

    def _about_endpoint(
        self, target: Target, principal: Principal, method: bytes, steps: dict[str, Any]
    ) -> dict[str, Any]:
        endpoint = self._source.find(target)
        is_ready = endpoint is not None and endpoint.state is State.READY
        names = (target.ref,) if endpoint is None else self._source.names(endpoint, target.ref)
        # Who may not see a sandbox learns nothing about it; a ready one is judged as the very pod.
        decision = self._authorizer.explain(
            principal, names, endpoint if is_ready else None, target.port, method
        )
        steps["decision"] = decision
        steps["endpoint"] = _endpoint_facts(endpoint, names, target)
        refusal = _refusal(decision)
        if refusal is not None:
            raise refusal
        if decision["decision"] == "unknown":
            return _outcome(
                None, "Kubernetes RBAC would be asked; it was not asked about this lately."
            )
        if endpoint is None and not self._source.is_complete(target.ref.namespace):
            raise _no_table_yet()
        if endpoint is None:
            raise SandboxNotFound
        return self._about_known(target, endpoint)

    def _about_known(self, target: Target, endpoint: Endpoint) -> dict[str, Any]:
        """Returns the outcome for a sandbox that the caller may reach. Raises what stands against it."""
        # While there is no pod, only a Sandbox's own UID can tell one from another.
        has_uid = endpoint.state is State.READY or bool(endpoint.sandbox_uid)
        if target.uid and has_uid and not endpoint.answers_to_uid(target.uid):
            raise SandboxReplaced
        if endpoint.state is State.SUSPENDED:
            raise SandboxSuspended(reason=endpoint.reason)
        if endpoint.state is State.FINISHED:
            raise SandboxFinished(reason=endpoint.reason)
        if endpoint.state is State.STARTING:
            waits_s = self._wait_for_ready_s
            if target.timeout_s is not None:
                waits_s = min(waits_s, target.timeout_s)
            raise SandboxNotReady(
                reason=f"it would be waited for, up to {waits_s:g} s: {endpoint.reason or 'starting'}"
            )
        port = endpoint.dialled_port(target.port)
        if any(self._is_own_listener(address, port) for address in endpoint.addresses):
            raise Forbidden("The router does not connect to itself.")
        return _outcome(None, "The request goes to the sandbox, which answers it.")

    def _credentials(self, head: RequestHead) -> Credentials:
        """Returns what the request offers; a forwarded certificate counts as if a trusted proxy had sent it."""
        return Credentials(
            authorization=head.authorization,
            sandbox_token=head.sandbox_token,
            subprotocol_token=subprotocol_token(head.subprotocols),
            certificate=None
            if head.client_cert is None
            else self._identity_in_header(head.client_cert),
        )

    async def _principal(self, credentials: Credentials) -> Principal | None:
        """Returns the caller, None when somebody else has to be asked first. Raises Unauthenticated, AuthUnavailable."""
        authenticated = self._authenticator.authenticate(credentials)
        if isinstance(authenticated, Authenticated):
            return authenticated.principal
        try:
            # No time at all: what is answered from memory is answered before the loop turns.
            async with asyncio.timeout(0):
                return (await authenticated).principal
        except TimeoutError:
            return None


def _no_table_yet() -> IndexStale:
    return IndexStale(
        "The router does not know its sandboxes yet.", reason="the first table is not complete"
    )


def _is_health_check(head: RequestHead) -> bool:
    return head.target.partition(b"?")[0] == b"/healthz" and head.method in (b"GET", b"HEAD")


def _outcome(status: int | None, detail: str) -> dict[str, Any]:
    """Returns an end that is no refusal; without a status where the sandbox, or time, will decide."""
    return {"status": status, "code": "", "detail": detail, "reason": ""}


def _refusal(decision: Mapping[str, Any]) -> RouterError | None:
    """Returns the error that the authorizer would raise."""
    match decision["decision"]:
        case "forbidden":
            return Forbidden(reason=str(decision["by"]))
        case "unauthenticated":
            return Unauthenticated(
                "The token is older than this sandbox allows.", reason=str(decision["by"])
            )
    return None


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


def _principal_facts(principal: Principal | None, credentials: Credentials) -> dict[str, Any]:
    offered = [name for name in credentials.__slots__ if getattr(credentials, name) is not None]
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
        "token_id": printable(principal.token_id, _TEXT_LIMIT),
        "issued_at": principal.issued_at,
        "expires_at": principal.expires_at,
    }


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
        "addresses": list(endpoint.addresses),
        "port": endpoint.dialled_port(target.port),
    }
