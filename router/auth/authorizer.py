"""Authorizer: may this Principal call this very Endpoint? The answer is a Permit."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeAlias

from router.auth.principal import Principal
from router.routing.endpoint import Endpoint, SandboxRef

PoolKey: TypeAlias = tuple[str, tuple[str, ...], int]


class Permit:
    """Proof that `principal` may reach `endpoint` on `port`: the only thing that the pool accepts.

    Made by Authorizers alone. It names the pod that was authorised, so that another pod can't be dialled with it.
    `key` is what connections to that pod's port are pooled by.
    """

    __slots__ = ("endpoint", "key", "port", "principal")

    def __init__(self, principal: Principal, endpoint: Endpoint, port: int) -> None:
        self.principal = principal
        self.endpoint = endpoint
        self.port = port
        self.key: PoolKey = (
            endpoint.uid or str(endpoint.ref),
            endpoint.addresses,
            endpoint.dialled_port(port),
        )

    def __repr__(self) -> str:
        return f"<Permit {self.principal.subject!r} -> {self.endpoint.ref}:{self.port} uid={self.endpoint.uid}>"


class Authorizer(Protocol):
    """Decides what a caller may reach. Finishes at once where it can; awaits only to ask Kubernetes.

    `names` are every name the sandbox answers to: the one asked for first, then its own and its claims' names. A grant on
    any of them counts. It holds the name asked for alone when the sandbox is unknown. `generation` changes whenever an
    earlier Permit may be refused now; -1 says that no Permit may be kept for another request.
    """

    generation: int

    def admit(
        self, principal: Principal, names: tuple[SandboxRef, ...], port: int, method: bytes
    ) -> Awaitable[None] | None:
        """Says whether the caller may know about a sandbox of these names at all, before waiting or explaining absence.

        Raises Forbidden, the same for missing and forbidden sandboxes; AuthUnavailable.
        """
        ...

    def authorize(
        self,
        principal: Principal,
        endpoint: Endpoint,
        names: tuple[SandboxRef, ...],
        port: int,
        method: bytes,
    ) -> Permit | Awaitable[Permit]:
        """Returns the Permit for this endpoint. Raises Forbidden, Unauthenticated (token older than the sandbox allows), AuthUnavailable."""
        ...

    def may_wake(
        self,
        principal: Principal,
        endpoint: Endpoint,
        names: tuple[SandboxRef, ...],
        port: int,
        method: bytes,
    ) -> bool | Awaitable[bool]:
        """Says whether the caller, who may know about this suspended sandbox, may make it run. Raises Unauthenticated, AuthUnavailable."""
        ...
