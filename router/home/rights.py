"""What a person may open: for each sandbox the ports to offer, and whether it may be woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.principal import Principal
from router.errors import RouterError
from router.routing.endpoint import Endpoint, SandboxRef, State

METHODS: Final = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS")
"""What a session lets its browser do: who may do less is not given one."""
MAX_PORTS: Final = 8
_SLICE: Final = 100
"""So many sandboxes are looked at before others have their turn."""


@dataclass(frozen=True, slots=True)
class Openable:
    """A sandbox that the caller may open."""

    endpoint: Endpoint
    ports: tuple[int, ...]
    may_wake: bool
    """It is suspended, and they may make it run."""


class Openables:
    """Asks the grants, those of the caller and those of the policy file. What Kubernetes would have to be asked about isn't offered."""

    def __init__(
        self,
        *,
        grants: GrantAuthorizer,
        known: Callable[[], Iterable[Endpoint]],
        names: Callable[[Endpoint, SandboxRef], tuple[SandboxRef, ...]],
        default_port: int,
        is_wakeable: Callable[[Endpoint], bool],
    ) -> None:
        """`known` is the table; `names` returns all that lead to a sandbox; `is_wakeable` says that requests may wake it."""
        self._grants = grants
        self._known = known
        self._names = names
        self._default_port = default_port
        self._is_wakeable = is_wakeable
        self._one_at_a_time = asyncio.Lock()
        """However many ask for lists, one slice of one of them is all that is done between requests."""

    async def of(
        self, caller: Principal, search: str, *, skip: int, take: int
    ) -> tuple[int, list[Openable]]:
        """Returns how many sandboxes the caller may open whose `namespace/name` contains `search`, and some of them in order."""
        async with self._one_at_a_time:
            known = iter(tuple(self._known()))
            found: list[Openable] = []
            while piece := list(islice(known, _SLICE)):
                found += self._openable(caller, search, piece)
                await asyncio.sleep(0)
        found.sort(key=_ref)
        return len(found), found[skip : skip + take]

    def _openable(
        self, caller: Principal, search: str, piece: Sequence[Endpoint]
    ) -> Iterator[Openable]:
        for endpoint in piece:
            if search and search not in str(endpoint.ref):
                continue
            one = self.one(caller, endpoint)
            if one is not None:
                yield one

    def one(self, caller: Principal, endpoint: Endpoint) -> Openable | None:
        """Returns what of this sandbox the caller may open, None for nothing."""
        names = self._names(endpoint, endpoint.ref)
        ports = [port for port in self._ports(endpoint) if self._may(caller, endpoint, names, port)]
        if not ports:
            return None
        is_asleep = endpoint.state is State.SUSPENDED
        may_wake = is_asleep and self.may_wake(caller, endpoint, ports[0])
        return Openable(endpoint, tuple(ports), may_wake)

    def may_open(self, caller: Principal, endpoint: Endpoint, port: int) -> bool:
        """Returns True when the caller may do on this port whatever a browser does."""
        return self._may(caller, endpoint, self._names(endpoint, endpoint.ref), port)

    def may_wake(self, caller: Principal, endpoint: Endpoint, port: int) -> bool:
        """Returns True when the caller's requests to this port may make the sandbox run, whenever it is suspended."""
        names = self._names(endpoint, endpoint.ref)
        return self._is_wakeable(endpoint) and self._grants.may_wake(
            caller, endpoint, names, port, b"GET"
        )

    def _ports(self, endpoint: Endpoint) -> list[int]:
        offered = [
            self._default_port,
            *sorted(endpoint.ports),
            *sorted(endpoint.wishes.public_ports),
        ]
        return list(dict.fromkeys(offered))[:MAX_PORTS]

    def _may(
        self, caller: Principal, endpoint: Endpoint, names: tuple[SandboxRef, ...], port: int
    ) -> bool:
        try:
            if endpoint.tokens_not_before:
                self._grants.check_age(caller, endpoint)
        except RouterError:
            return False
        return self._grants.permits_all(caller, endpoint, names, port, METHODS)


def _ref(openable: Openable) -> SandboxRef:
    return openable.endpoint.ref
