"""GrantAuthorizer: decides by grants, those of the credential and those of the policy file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from router.auth.authorizer import Permit
from router.auth.policy import CurrentPolicy
from router.auth.principal import CONNECT, Grant, Principal
from router.auth.revocation import older_than_allowed
from router.auth.rights import Rights
from router.auth.shortfall import missing_parts, shortfall
from router.errors import Forbidden, Unauthenticated
from router.routing.endpoint import Endpoint, SandboxRef

UNRESTRICTED_MODES = frozenset({"none", "static", "preflight"})
"""Their callers may call everything: `none` and `preflight` by the operator's word, `static` because the token is the operator's."""

NEVER_RAW_MODES = frozenset({"session", "forwarded", "link", "public", "preflight"})
"""Their callers never get a raw connection: their credential is added by a browser, or is none."""

MAX_REMEMBERED = 8192


class GrantAuthorizer:
    """Permits what some grant covers: name, port, method and, where the grant says one, the UID of the very pod.

    What a principal may do is derived once and remembered per principal object, which verifiers hand out again and again.
    """

    def __init__(self, *, policy: CurrentPolicy, public_ports: bool = False) -> None:
        """`public_ports` lets everybody call the ports that their sandboxes' owners have opened."""
        self._policy = policy
        self._public_ports = public_ports
        self._rights: dict[int, Rights] = {}
        self.allowed = 0
        self.denied = 0
        self.generation = 0
        policy.on_change(self._changed)

    def __repr__(self) -> str:
        return f"<GrantAuthorizer allowed={self.allowed} denied={self.denied} remembered={len(self._rights)}>"

    def admit(
        self, principal: Principal, names: tuple[SandboxRef, ...], port: int, method: bytes
    ) -> None:
        """Says whether the caller may know about a sandbox of these names at all. Raises Forbidden."""
        if not self.admits(principal, names, port, method):
            raise self._forbidden(principal, names, None, port, method)

    def authorize(
        self,
        principal: Principal,
        endpoint: Endpoint,
        names: tuple[SandboxRef, ...],
        port: int,
        method: bytes,
    ) -> Permit:
        """Returns the Permit for this endpoint. Raises Forbidden, Unauthenticated (token older than the sandbox allows)."""
        if endpoint.tokens_not_before:
            self.check_age(principal, endpoint)
        if not self.permits(principal, endpoint, names, port, method):
            raise self._forbidden(principal, names, endpoint, port, method)
        self.allowed += 1
        return Permit(principal, endpoint, port)

    def check_age(self, principal: Principal, endpoint: Endpoint) -> None:
        """Raises Unauthenticated when the caller's token is older than this sandbox allows."""
        if endpoint.tokens_not_before and older_than_allowed(principal, endpoint.tokens_not_before):
            self.denied += 1
            error = Unauthenticated(
                "The token is older than this sandbox allows.", reason="tokens-not-before"
            )
            error.challenge += ', error="invalid_token"'
            raise error

    def admits(
        self, principal: Principal, names: tuple[SandboxRef, ...], port: int, method: bytes
    ) -> bool:
        """Returns True when a grant on any of the names covers the call, whatever UID it wants."""
        if method == CONNECT and principal.mode in NEVER_RAW_MODES:
            return False
        if principal.mode in UNRESTRICTED_MODES:
            return True
        rights = self._rights_of(principal)
        for ref in names:
            for grant, _ in rights.about(ref):
                if grant.covers_call(port, method):
                    return True
        return False

    def permits(
        self,
        principal: Principal,
        endpoint: Endpoint,
        names: tuple[SandboxRef, ...],
        port: int,
        method: bytes,
    ) -> bool:
        """Returns True when a grant on any of the names covers the call to this very endpoint."""
        if method == CONNECT and principal.mode in NEVER_RAW_MODES:
            return False
        if principal.mode in UNRESTRICTED_MODES:
            return True
        rights = self._rights_of(principal)
        for ref in names:
            for grant, _ in rights.about(ref):
                if grant.covers_call(port, method) and grant.covers_endpoint(endpoint):
                    return True
        # A link that opened any public port would begin a session of another sandbox there.
        return principal.mode != "link" and self.is_public(endpoint, port, method)

    def permits_all(
        self,
        principal: Principal,
        endpoint: Endpoint,
        names: tuple[SandboxRef, ...],
        port: int,
        methods: Collection[bytes],
    ) -> bool:
        """Returns True when the caller may call this very endpoint by each of the methods."""
        if principal.mode not in UNRESTRICTED_MODES and CONNECT not in methods:
            rights = self._rights_of(principal)
            for ref in names:
                for grant, _ in rights.about(ref):
                    # The usual grant names no method: one look instead of one for each.
                    if (
                        grant.methods is None
                        and (grant.ports is None or port in grant.ports)
                        and grant.covers_endpoint(endpoint)
                    ):
                        return True
        return all(self.permits(principal, endpoint, names, port, method) for method in methods)

    def is_public(self, endpoint: Endpoint, port: int, method: bytes) -> bool:
        """Returns True when everybody may call the port: the sandbox's owner and the operator say so. Raw connections are calls of nobody."""
        return self._public_ports and method != CONNECT and port in endpoint.wishes.public_ports

    def may_wake(
        self,
        principal: Principal,
        endpoint: Endpoint,
        names: tuple[SandboxRef, ...],
        port: int,
        method: bytes,
    ) -> bool:
        """Returns True when the caller may make this suspended sandbox run. Raises Unauthenticated (token older than it allows).

        The grant must cover the call itself too: who would be refused afterwards wakes nothing.
        """
        self.check_age(principal, endpoint)
        if method == CONNECT and principal.mode in NEVER_RAW_MODES:
            return False
        if principal.mode in UNRESTRICTED_MODES:
            return principal.mode != "preflight"
        rights = self._rights_of(principal)
        for ref in names:
            for grant, _ in rights.about(ref):
                if (
                    grant.wake
                    and grant.covers_call(port, method)
                    and grant.covers_endpoint(endpoint)
                ):
                    return True
        return False

    def explain(
        self,
        principal: Principal,
        names: tuple[SandboxRef, ...],
        endpoint: Endpoint | None,
        port: int,
        method: bytes,
    ) -> dict[str, Any]:
        """Returns which grant decides and why the others don't; `endpoint` is None for an unknown sandbox. No secrets."""
        if method == CONNECT and principal.mode in NEVER_RAW_MODES:
            by = f"a credential of mode {principal.mode} never opens a TCP connection"
            return {"decision": "forbidden", "by": by, "grants": []}
        if principal.mode in UNRESTRICTED_MODES:
            return {
                "decision": "allowed",
                "by": f"mode {principal.mode} may call every sandbox",
                "grants": [],
            }
        if endpoint is not None and self.is_public(endpoint, port, method):
            return {
                "decision": "allowed",
                "by": f"port {port} is public: the sandbox's annotation public-ports and the setting say so",
                "grants": [],
            }
        considered = []
        decided_by = ""
        for grant, source in self._rights_of(principal).all():
            failing = missing_parts(grant, names, endpoint, port, method)
            considered.append(
                {
                    "source": source,
                    "grant": _spelled(grant),
                    "covers": not failing,
                    "why_not": failing,
                }
            )
            if not failing and not decided_by:
                decided_by = source
        too_old = (
            endpoint is not None
            and endpoint.tokens_not_before > 0
            and older_than_allowed(principal, endpoint.tokens_not_before)
        )
        decision = "unauthenticated" if too_old else "allowed" if decided_by else "forbidden"
        by = "the sandbox's tokens-not-before" if too_old else decided_by or "no grant covers it"
        return {"decision": decision, "by": by, "grants": considered}

    def shortfall(
        self,
        principal: Principal,
        names: tuple[SandboxRef, ...],
        endpoint: Endpoint | None,
        port: int,
        method: bytes,
    ) -> str:
        """Returns what the caller's grants lack for this call, for the log."""
        return shortfall(self._rights_of(principal), names, endpoint, port, method)

    def _forbidden(
        self,
        principal: Principal,
        names: tuple[SandboxRef, ...],
        endpoint: Endpoint | None,
        port: int,
        method: bytes,
    ) -> Forbidden:
        """Counts the refusal and returns the error to raise; callers read the same words whatever was missing."""
        self.denied += 1
        return Forbidden(reason=self.shortfall(principal, names, endpoint, port, method))

    def _changed(self) -> None:
        self._rights.clear()
        self.generation += 1

    def _rights_of(self, principal: Principal) -> Rights:
        rights = self._rights.get(id(principal))
        # The entry keeps its principal alive, so an id can't be taken over while it is remembered.
        if rights is None or rights.principal is not principal:
            if len(self._rights) >= MAX_REMEMBERED:
                self._rights.clear()
            rights = self._rights[id(principal)] = Rights(principal, self._policy.policy)
        return rights


def _spelled(grant: Grant) -> dict[str, Any]:
    """Returns a grant as it is written in a token or a policy."""
    spelled: dict[str, Any] = {"namespace": grant.namespace, "name": grant.name}
    if grant.uid:
        spelled["uid"] = grant.uid
    if grant.ports is not None:
        spelled["ports"] = sorted(grant.ports)
    if grant.methods is not None:
        spelled["methods"] = sorted(method.decode("ascii") for method in grant.methods)
    if grant.wake:
        spelled["wake"] = True
    return spelled
