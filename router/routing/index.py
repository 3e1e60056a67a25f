"""EndpointIndex: the table of sandboxes, by name.

Decisions alone, no I/O: a writer changes the table and gets back the endpoints that lost their route, whose idle
connections its caller must close. So a recycled address is never reached through an old connection or an old route.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from router.routing.elsewhere import ALONE, Elsewhere
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.freshness import Freshness
from router.routing.generation import Generation
from router.routing.waiting import Waiter, WaitingRoom

Retired = tuple[Endpoint, ...]

HELD_BACK = "host unreachable"
"""The reason of an endpoint whose route was evicted."""


class _Hold:
    """An evicted route: what discovery says of it, and until when (clock) it is not believed."""

    __slots__ = ("endpoint", "until")

    def __init__(self, endpoint: Endpoint, until: float) -> None:
        self.endpoint = endpoint
        self.until = until


class EndpointIndex:
    """Knows every sandbox and claim alias, who waits for one, and how fresh this knowledge is.

    Not thread-safe: touch it from the event loop's thread alone.
    """

    def __init__(
        self,
        *,
        waiting_room: int,
        waiting_room_per_namespace: int,
        waiting_elsewhere: Elsewhere = ALONE,
        waiting_room_per_caller: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.events = 0
        """Changes that discovery reported, whether or not they changed anything."""
        self.evictions = 0
        self.freshness = freshness = Freshness(clock=clock)
        self.set_awaited, self.is_complete = freshness.set_awaited, freshness.is_complete
        self.set_synced, self.age_s = freshness.set_synced, freshness.age_s
        self.is_stale = freshness.is_stale
        self._clock = clock
        self._endpoints: dict[SandboxRef, Endpoint] = {}
        self.names_generation = Generation()
        """Moves on whenever names() may give another answer than before."""
        self._aliases: dict[SandboxRef, SandboxRef] = {}
        self._aliases_of: dict[SandboxRef, tuple[SandboxRef, ...]] = {}
        self._holds: dict[SandboxRef, _Hold] = {}
        self._in_namespace: dict[str, int] = {}
        self._ready = 0
        self._room = WaitingRoom(
            places=waiting_room,
            places_per_namespace=waiting_room_per_namespace,
            elsewhere=waiting_elsewhere,
            places_per_caller=waiting_room_per_caller,
        )

    def __repr__(self) -> str:
        return (
            f"<EndpointIndex size={len(self._endpoints)} ready={self._ready} "
            f"aliases={len(self._aliases)} held={len(self._holds)} waiting={len(self._room)}>"
        )

    def __iter__(self) -> Iterator[Endpoint]:
        """Yields every sandbox once, under its own name."""
        self._give_back_overdue()
        return iter(self._endpoints.values())

    # --- readers ----------------------------------------------------------------------------

    def find(self, ref: SandboxRef, pod_ip: str | None = None) -> Endpoint | None:
        """Returns the sandbox of this name, else the one a claim of this name is bound to, else None; `pod_ip` decides nothing."""
        # Every request comes through here: one hit when the name is a sandbox's own.
        endpoint = self._endpoints.get(ref)
        if endpoint is None:
            own = self._aliases.get(ref)
            endpoint = None if own is None else self._endpoints.get(own)
            if endpoint is None:
                return None
        if self._holds and endpoint.state is State.STARTING:
            return self._after_hold(endpoint)
        return endpoint

    def is_current(self, endpoint: Endpoint) -> bool:
        """Returns True while the table would still route to this very pod: the last check before bytes go there."""
        current = self._endpoints.get(endpoint.ref)
        return current is not None and _is_same_route(endpoint, current)

    def names(self, endpoint: Endpoint, asked: SandboxRef) -> tuple[SandboxRef, ...]:
        """Returns every name that leads to `endpoint`: `asked` first, then its own, then its claims'.

        A claim's name that is also a sandbox's own leads there, so it is not among them. `asked` is, only if it leads here.
        """
        own = endpoint.ref
        aliases = self._aliases_of.get(own)
        if aliases is None:
            return (own,)
        leading = [alias for alias in aliases if alias not in self._endpoints]
        if asked in leading:
            leading.remove(asked)
            return (asked, own, *leading)
        return (own, *leading)

    def hold_ends_in_s(self, ref: SandboxRef) -> float | None:
        """Returns in how many seconds an evicted route is given back without any event; None when it isn't evicted."""
        hold = self._holds.get(self._own(ref))
        return None if hold is None else max(0.0, hold.until - self._clock())

    # --- writers ----------------------------------------------------------------------------

    def upsert(self, endpoint: Endpoint) -> Retired:
        """Puts one sandbox in place of what its name led to. Returns the endpoint that lost its route, if one did."""
        self.events += 1
        changed: list[SandboxRef] = []
        retired = self._put(endpoint, changed)
        self._wake(changed)
        return () if retired is None else (retired,)

    def remove(self, ref: SandboxRef, *, uid: str | None = None) -> Retired:
        """Takes one sandbox out; with `uid` only if that pod still is the one, so a late delete does no harm."""
        self.events += 1
        current = self._endpoints.get(ref)
        if current is None or (uid is not None and current.uid != uid):
            return ()
        changed: list[SandboxRef] = []
        retired = self._drop(current, changed)
        self._wake(changed)
        return () if retired is None else (retired,)

    def replace(
        self, endpoints: Iterable[Endpoint], *, namespaces: frozenset[str] | None = None
    ) -> Retired:
        """Makes a listing the table's content, at once: of `namespaces`, or of the whole table.

        Raises ValueError, with nothing changed, when an endpoint is outside `namespaces`.
        """
        listed = {endpoint.ref: endpoint for endpoint in endpoints}
        _refuse_strays(listed, namespaces)
        self.events += 1
        changed: list[SandboxRef] = []
        gone = [
            endpoint
            for ref, endpoint in self._endpoints.items()
            if ref not in listed and (namespaces is None or ref.namespace in namespaces)
        ]
        retired = [self._drop(endpoint, changed) for endpoint in gone]
        retired += [self._put(endpoint, changed) for endpoint in listed.values()]
        self._wake(changed)
        return tuple(endpoint for endpoint in retired if endpoint is not None)

    def evict(self, endpoint: Endpoint, address: str, *, hold_s: float = 5.0) -> Retired:
        """Holds a dead host's route back, if the table still has that pod at that address.

        The sandbox counts as starting until discovery brings another pod or address, or `hold_s` seconds have passed.
        """
        current = self._endpoints.get(endpoint.ref)
        if (
            current is None
            or current.state is not State.READY
            or current.uid != endpoint.uid
            or address not in current.addresses
        ):
            return ()
        self.evictions += 1
        self._holds[current.ref] = _Hold(current, self._clock() + hold_s)
        self._endpoints[current.ref] = _held_back(current)
        self._ready -= 1
        self._wake([current.ref])
        return (current,)

    def set_alias(self, alias: SandboxRef, ref: SandboxRef) -> None:
        """Makes a claim's name lead to the sandbox `ref` (known or not yet), unless a sandbox has that name itself."""
        self.events += 1
        self._point_aliases({alias: ref})

    def remove_alias(self, alias: SandboxRef, *, ref: SandboxRef | None = None) -> None:
        """Takes a claim's name out; with `ref` only if it still leads there."""
        self.events += 1
        if ref is None or self._aliases.get(alias) == ref:
            self._point_aliases({alias: None})

    def replace_aliases(
        self,
        aliases: Mapping[SandboxRef, SandboxRef],
        *,
        namespaces: frozenset[str] | None = None,
    ) -> None:
        """Makes a listing the content of the alias table, at once: of `namespaces`, or of all of it.

        Raises ValueError, with nothing changed, when an alias is outside `namespaces`.
        """
        _refuse_strays(aliases, namespaces)
        self.events += 1
        changes: dict[SandboxRef, SandboxRef | None] = {
            alias: None
            for alias in self._aliases
            if namespaces is None or alias.namespace in namespaces
        }
        changes.update(aliases)
        self._point_aliases(changes)

    def snapshot(self) -> tuple[tuple[Endpoint, ...], dict[SandboxRef, SandboxRef]]:
        """Returns every sandbox as discovery sees it, evicted or not, and where each alias leads: for another table."""
        held = self._holds
        endpoints = tuple(
            held[ref].endpoint if ref in held else endpoint
            for ref, endpoint in self._endpoints.items()
        )
        return endpoints, dict(self._aliases)

    # --- waiting ----------------------------------------------------------------------------

    def wait(self, ref: SandboxRef, wake: Callable[[], None], caller: Hashable = None) -> Waiter:
        """Returns a place in the waiting room for a request that `find(ref)` gave nothing to dial for.

        `wake` is called once, synchronously and after the table has changed, as soon as the name leads to another sandbox or
        the sandbox to another state; it must not raise. `caller` tells callers apart, each of whom has a bounded share of
        the room; None has none. Raises SandboxNotReady when the room or a share is full.
        """
        return self._room.enter(ref, wake, caller)

    # --- facts ------------------------------------------------------------------------------

    def size(self) -> int:
        """Returns how many sandboxes are known, whatever their state."""
        return len(self._endpoints)

    def ready_count(self) -> int:
        """Returns how many sandboxes can be dialled."""
        self._give_back_overdue()
        return self._ready

    def alias_count(self) -> int:
        """Returns how many claim names are known."""
        return len(self._aliases)

    def held_count(self) -> int:
        """Returns how many routes are evicted at the moment."""
        self._give_back_overdue()
        return len(self._holds)

    def waiting(self) -> int:
        """Returns how many requests wait."""
        return len(self._room)

    def knows_namespace(self, namespace: str) -> bool:
        """Returns True when at least one known sandbox is in it."""
        return namespace in self._in_namespace

    # --- the table --------------------------------------------------------------------------

    def _put(self, new: Endpoint, changed: list[SandboxRef]) -> Endpoint | None:
        """Returns the endpoint that lost its route; notes the name in `changed` when presence or state did."""
        ref = new.ref
        hold = self._holds.get(ref) if self._holds else None
        if hold is not None:
            if _is_same_pod(hold.endpoint, new):
                hold.endpoint = new
                new = _held_back(new)
            else:
                del self._holds[ref]
        old = self._endpoints.get(ref)
        if old is None:
            self.names_generation.number += ref in self._aliases
            self._in_namespace[ref.namespace] = self._in_namespace.get(ref.namespace, 0) + 1
            changed.append(ref)
        elif old == new:
            return None
        else:
            # The key is the stored endpoint's own ref: one tuple in memory, not two.
            del self._endpoints[ref]
            self._ready -= old.state is State.READY
            if old.state is not new.state:
                changed.append(ref)
        self._endpoints[ref] = new
        self._ready += new.state is State.READY
        lost = old is not None and old.state is State.READY and not _is_same_route(old, new)
        return old if lost else None

    def _drop(self, current: Endpoint, changed: list[SandboxRef]) -> Endpoint | None:
        """Returns `current` when it loses a route by this."""
        ref = current.ref
        self.names_generation.number += ref in self._aliases
        del self._endpoints[ref]
        self._holds.pop(ref, None)
        left = self._in_namespace[ref.namespace] - 1
        if left:
            self._in_namespace[ref.namespace] = left
        else:
            del self._in_namespace[ref.namespace]
        changed.append(ref)
        if current.state is not State.READY:
            return None
        self._ready -= 1
        return current

    def _wake(self, changed: list[SandboxRef]) -> None:
        """Wakes who waits for a changed sandbox, by its own name or by a claim's that leads to it."""
        if not changed or not self._room:
            return
        names: list[SandboxRef] = []
        for ref in changed:
            names.append(ref)
            names += (a for a in self._aliases_of.get(ref, ()) if a not in self._endpoints)
        self._room.wake(names)

    # --- aliases ----------------------------------------------------------------------------

    def _own(self, ref: SandboxRef) -> SandboxRef:
        """Returns the own name of the sandbox that `ref` leads to; an alias leads to sandboxes only."""
        return ref if ref in self._endpoints else self._aliases.get(ref, ref)

    def _point_aliases(self, changes: Mapping[SandboxRef, SandboxRef | None]) -> None:
        """Points each alias to a sandbox or, with None, nowhere; then wakes who waits for one that leads elsewhere."""
        changed: list[SandboxRef] = []
        for alias, ref in changes.items():
            before = self._aliases.get(alias)
            if before == ref:
                continue
            self.names_generation.number += 1
            if before is not None:
                self._unlink(alias, before)
            if ref is not None:
                self._aliases[alias] = ref
                self._aliases_of[ref] = (*self._aliases_of.get(ref, ()), alias)
            if alias not in self._endpoints and (
                before in self._endpoints or ref in self._endpoints
            ):
                changed.append(alias)
        if changed:
            self._room.wake(changed)

    def _unlink(self, alias: SandboxRef, ref: SandboxRef) -> None:
        del self._aliases[alias]
        others = tuple(other for other in self._aliases_of[ref] if other != alias)
        if others:
            self._aliases_of[ref] = others
        else:
            del self._aliases_of[ref]

    # --- evicted routes ---------------------------------------------------------------------

    def _after_hold(self, endpoint: Endpoint) -> Endpoint:
        """Returns what find() gives for a STARTING endpoint while routes are held back."""
        hold = self._holds.get(endpoint.ref)
        if hold is None or self._clock() < hold.until:
            return endpoint
        self._give_back(hold)
        return hold.endpoint

    def _give_back(self, hold: _Hold) -> None:
        ref = hold.endpoint.ref
        del self._holds[ref]
        self._endpoints[ref] = hold.endpoint
        self._ready += 1
        self._wake([ref])

    def _give_back_overdue(self) -> None:
        if self._holds:
            now = self._clock()
            for hold in [hold for hold in self._holds.values() if hold.until <= now]:
                self._give_back(hold)


def _refuse_strays(refs: Iterable[SandboxRef], namespaces: frozenset[str] | None) -> None:
    """Raises ValueError when one of `refs` is outside `namespaces` (None: nothing is)."""
    stray = next(
        (r for r in refs if namespaces is not None and r.namespace not in namespaces), None
    )
    if stray is not None:
        raise ValueError(f"{stray} is outside the namespaces to replace")


def _is_same_pod(old: Endpoint, new: Endpoint) -> bool:
    """Returns True when both are dialled at the same addresses and are the same pod."""
    return new.state is State.READY and new.uid == old.uid and new.addresses == old.addresses


def _is_same_route(old: Endpoint, new: Endpoint) -> bool:
    """Returns True when connections made for `old` may serve `new`."""
    return _is_same_pod(old, new) and new.ports == old.ports


def _held_back(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, state=State.STARTING, addresses=(), reason=HELD_BACK)
