"""Endpoint: where one sandbox lives right now, or why it cannot be reached."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple


class SandboxRef(NamedTuple):
    """A sandbox's name, a dictionary key on the hot path (a tuple hashes in C, a dataclass does not)."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class State(enum.Enum):
    """What a sandbox is able to do; only READY can be dialled, only STARTING is worth waiting for."""

    READY = "ready"
    STARTING = "starting"
    SUSPENDED = "suspended"
    FINISHED = "finished"


NO_PORTS: Mapping[int, int] = MappingProxyType({})


class Wishes(NamedTuple):
    """What a sandbox's owner wants of the router. Most want nothing, and share one object."""

    path_mode: str = ""
    """What becomes of its root in path mode: `strip`, `keep`, or "" for the router's own `path-mode`."""
    wakes_on_request: bool = False
    """It is to be woken by requests."""
    public_ports: frozenset[int] = frozenset()
    """Ports that are open to everybody; it takes the setting `public-ports` too."""


NO_WISHES = Wishes()


@dataclass(frozen=True, slots=True, eq=True)
class Endpoint:
    """One sandbox as discovery sees it. Immutable: a change is a new Endpoint.

    `uid` is the pod's UID, the fence against recycled addresses ("" while there is no pod). `addresses` are IP literals or,
    with file and DNS discovery, host names; in order of preference; empty unless READY.
    """

    ref: SandboxRef
    uid: str
    state: State
    addresses: tuple[str, ...] = ()
    sandbox_uid: str = ""
    """The Sandbox object's own UID, which outlives a suspend and resume; "" when unknown."""
    reason: str = ""
    """Why it is not READY, in the words of the Sandbox's condition; for people."""
    ports: Mapping[int, int] = field(default_factory=lambda: NO_PORTS, hash=False)
    """The port asked for -> the port dialled, where they differ."""
    wishes: Wishes = NO_WISHES
    tokens_not_before: float = 0.0
    """Tokens issued before this time (Unix seconds) are refused for this sandbox; 0 = no such rule."""
    shutdown_at: float = 0.0
    """When its life ends for good (Unix seconds), told while it is SUSPENDED; 0 = no such time."""
    resumed_at: float = 0.0
    """When (monotonic seconds) it was seen to leave SUSPENDED; 0 = it was not. Until it answers it is on its way back."""

    def dialled_port(self, port: int) -> int:
        """Returns the port to dial when a client asks for `port`."""
        return self.ports.get(port, port) if self.ports else port

    def answers_to_uid(self, uid: str) -> bool:
        """Returns True when `uid` is this pod's or its Sandbox's UID."""
        return uid in (self.uid, self.sandbox_uid) and uid != ""
