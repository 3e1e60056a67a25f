"""SandboxRecord: what routing needs of one Sandbox object."""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from router.discovery.idle_timeout import IDLE_TIMEOUT_ANNOTATION, read_idle_timeout
from router.discovery.objects import (
    EXTENSIONS_GROUP,
    condition,
    controller,
    identity,
    is_condition,
    section,
    text,
    version,
)
from router.kube.api_client import JsonObject
from router.routing.endpoint import NO_WISHES, SandboxRef, Wishes
from router.timestamps import parse_timestamp

POD_NAME_ANNOTATION = "agents.x-k8s.io/pod-name"
TOKENS_NOT_BEFORE_ANNOTATION = "router.agents.x-k8s.io/tokens-not-before"
PATH_MODE_ANNOTATION = "router.agents.x-k8s.io/path-mode"
PUBLIC_PORTS_ANNOTATION = "router.agents.x-k8s.io/public-ports"
PATH_MODES = ("strip", "keep")
WAKE_ANNOTATION = "router.agents.x-k8s.io/wake"
ON_REQUEST = "on-request"
SAME_NAME = "(same name)"
TERMINAL_REASONS = frozenset({"SandboxExpired", "PodFailed", "PodSucceeded"})

_SHOWN_TEXT_LIMIT = 64
_PORTS = re.compile(r"[0-9]{1,5}(?:, ?[0-9]{1,5}){0,63}", re.ASCII)


class Intent(enum.Enum):
    """What the Sandbox object says of itself; the pod has the last word on RUNNING."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    FINISHED = "finished"
    OVER = "over"
    """Finished and told to be suspended: resuming wouldn't bring it back, and no pod counts any more."""


@dataclass(frozen=True, slots=True)
class SandboxTraits:
    """What a Sandbox has in common with many others; equal ones are one object."""

    intent: Intent
    reason: str
    """The Ready condition's reason unless it is True, for people."""
    pod_name: str
    """The pod that the legacy annotation names, "" without one."""
    claim_uid: str
    """The SandboxClaim that controls it, "" when none does, SAME_NAME for a claim that has the Sandbox's own name."""
    tokens_not_before: float
    """Unix seconds, 0 without such a rule; infinite when the annotation can't be read: then no token is new enough."""
    wishes: Wishes = NO_WISHES
    unreadable: tuple[str, ...] = ()
    """What the router does for want of an annotation that it can read, a sentence for each, for people."""


class SandboxRecord(NamedTuple):
    """One Sandbox; equal when routing can't tell the difference (the version is not compared). A tuple like PodRecord."""

    ref: SandboxRef
    uid: str
    traits: SandboxTraits
    shutdown_at: float
    """`spec.shutdownTime` in Unix seconds, of a suspended Sandbox alone; 0 = none."""
    version: int
    resumed_at: float = 0.0
    """When (monotonic seconds) the table saw it leave suspension; 0 = it did not."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SandboxRecord) and self[:4] == other[:4]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.uid)

    def kept(self, ref: SandboxRef, uid: str, *, resumed_at: float = 0.0) -> SandboxRecord:
        """Returns the record as the table keeps it, see PodRecord.kept."""
        own_uid = uid if self.uid == uid else self.uid
        return SandboxRecord(ref, own_uid, self.traits, self.shutdown_at, 0, resumed_at)


_traits = lru_cache(maxsize=4096)(SandboxTraits)


def parse_sandbox(item: JsonObject) -> SandboxRecord:
    """Returns the record of a Sandbox (v1beta1 or v1alpha1). Raises MalformedObjectError when it has no identity."""
    metadata, namespace, name, uid = identity(item)
    annotations = section(metadata, "annotations")
    ready = condition(section(item, "status"), "Ready")
    intent = _intent(metadata, section(item, "spec"), ready)
    not_before, unreadable_time = _tokens_not_before(annotations.get(TOKENS_NOT_BEFORE_ANNOTATION))
    path_mode, unreadable_mode = _path_mode(annotations.get(PATH_MODE_ANNOTATION))
    wakes_on_request, unreadable_wake = _wake(annotations.get(WAKE_ANNOTATION))
    public_ports, unreadable_ports = _public_ports(annotations.get(PUBLIC_PORTS_ANNOTATION))
    unreadable_idle = _idle_timeout(annotations.get(IDLE_TIMEOUT_ANNOTATION))
    reason = "" if is_condition(ready, "True") else text(ready, "reason")
    if metadata.get("deletionTimestamp") is not None:
        reason = "SandboxDeleting"
    return SandboxRecord(
        ref=SandboxRef(namespace, name),
        uid=uid,
        version=version(metadata),
        traits=_traits(
            intent,
            reason,
            text(annotations, POD_NAME_ANNOTATION),
            _claim_uid(metadata, name),
            not_before,
            Wishes(path_mode, wakes_on_request, public_ports),
            (
                *unreadable_time,
                *unreadable_mode,
                *unreadable_wake,
                *unreadable_ports,
                *unreadable_idle,
            ),
        ),
        shutdown_at=_shutdown_at(item) if intent is Intent.SUSPENDED else 0.0,
    )


def _path_mode(value: object) -> tuple[str, tuple[str, ...]]:
    """Returns the mode, "" without one, and what to tell people."""
    if value is None or (isinstance(value, str) and value in PATH_MODES):
        return value or "", ()
    return "", (
        f"the router's own path-mode counts: the annotation {PATH_MODE_ANNOTATION} is "
        f"{_shown(value)}; it must be {' or '.join(PATH_MODES)}",
    )


def _wake(value: object) -> tuple[bool, tuple[str, ...]]:
    """Returns whether its owner wants requests to wake it, and what to tell people."""
    if value is None or value == ON_REQUEST:
        return value is not None, ()
    return False, (
        f"its owner has not asked for requests to wake it: the annotation {WAKE_ANNOTATION} is "
        f"{_shown(value)}; it must be {ON_REQUEST}",
    )


def _public_ports(value: object) -> tuple[frozenset[int], tuple[str, ...]]:
    """Returns the ports that its owner opens to everybody, and what to tell people. One slip, and none is open."""
    if value is None:
        return frozenset(), ()
    ports = read_ports(value)
    if ports is not None:
        return ports, ()
    return frozenset(), (
        f"no port is public: the annotation {PUBLIC_PORTS_ANNOTATION} is {_shown(value)}; "
        f"it must be ports with commas like 3000 or 3000,8080",
    )


def read_ports(value: object) -> frozenset[int] | None:
    """Returns the ports of a text like `3000,8080`; None for anything else."""
    if not isinstance(value, str) or not _PORTS.fullmatch(value):
        return None
    ports = frozenset(int(part) for part in value.split(","))
    return ports if all(1 <= port <= 65535 for port in ports) else None


def _idle_timeout(value: object) -> tuple[str, ...]:
    """Returns what to tell people: the router itself does nothing with it, `suspend-idle` does."""
    _, complaint = read_idle_timeout(value)
    if not complaint:
        return ()
    return (
        f"it is never suspended for idleness: the annotation {IDLE_TIMEOUT_ANNOTATION} is "
        f"{_shown(value)}; it must be a duration like 45s, 30m or 8h",
    )


def _shutdown_at(item: JsonObject) -> float:
    try:
        return parse_timestamp(section(item, "spec").get("shutdownTime"))
    except ValueError:
        return 0.0  # the API server lets no other form through


def _claim_uid(metadata: JsonObject, name: str) -> str:
    kind, owner_name, owner_uid = controller(metadata, EXTENSIONS_GROUP)
    if kind != "SandboxClaim":
        return ""
    # No other claim's name leads to such a Sandbox, and its own claim's needs no alias: the UID doesn't matter.
    return SAME_NAME if owner_name == name else owner_uid


def _intent(metadata: JsonObject, spec: JsonObject, ready: JsonObject) -> Intent:
    is_finished = metadata.get("deletionTimestamp") is not None or _is_terminal(metadata, ready)
    if _is_suspended(spec):
        return Intent.OVER if is_finished else Intent.SUSPENDED
    return Intent.FINISHED if is_finished else Intent.RUNNING


def _is_suspended(spec: JsonObject) -> bool:
    # v1alpha1 said it with replicas: 0.
    return spec.get("operatingMode") == "Suspended" or (
        "operatingMode" not in spec and spec.get("replicas") == 0
    )


def _is_terminal(metadata: JsonObject, ready: JsonObject) -> bool:
    if not is_condition(ready, "False") or text(ready, "reason") not in TERMINAL_REASONS:
        return False
    # A condition from before the last change of the spec lingers, for example after a resume.
    observed, current = ready.get("observedGeneration"), metadata.get("generation")
    return not (isinstance(observed, int) and isinstance(current, int) and 0 < observed < current)


def _tokens_not_before(value: object) -> tuple[float, tuple[str, ...]]:
    """Returns the time in Unix seconds, and what to tell people. An annotation that is there never means "no rule"."""
    if value is None:
        return 0.0, ()
    try:
        return max(parse_timestamp(value), 1.0), ()
    except ValueError as error:
        return math.inf, (
            f"every token is refused: the annotation {TOKENS_NOT_BEFORE_ANNOTATION} is "
            f"{_shown(value)}; it {error}",
        )


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN_TEXT_LIMIT]
