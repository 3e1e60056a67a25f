"""Candidates: the Sandboxes that want to be suspended when they are idle, as the watch shows them."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from router.discovery.idle_timeout import IDLE_TIMEOUT_ANNOTATION, NEVER, read_idle_timeout
from router.discovery.listing import Listing
from router.discovery.objects import condition, controller, is_condition, section, text
from router.discovery.sandboxes import Intent, parse_sandbox
from router.kube.api_client import JsonObject
from router.routing.endpoint import SandboxRef
from router.timestamps import parse_timestamp

logger = logging.getLogger("sandbox_router.suspender")


class Standing(enum.Enum):
    """Whether a Sandbox is in a state that can be suspended, and if not, why."""

    AT_WORK = "at work"
    SUSPENDED = "suspended"
    FINISHED = "finished or being deleted"
    NOT_READY = "not ready"
    POOLED = "in a warm pool"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One Sandbox; equal when nothing has changed that suspending goes by (the version is not compared)."""

    ref: SandboxRef
    uid: str
    version: str = field(compare=False)
    idle_timeout_s: float
    """NEVER where the Sandbox doesn't ask for it."""
    complaint: str
    """What is wrong with the annotation, "" when nothing is."""
    standing: Standing
    says_mode: bool
    """The object has a `spec.operatingMode`; without one it runs."""
    ready_since: float | None
    """Unix seconds by the clock of whoever wrote it, to be compared with itself alone; None when that isn't known."""


def parse_candidate(item: JsonObject) -> Candidate:
    """Returns what suspending goes by. Raises MalformedObjectError for an object without identity."""
    record = parse_sandbox(item)
    metadata, spec = section(item, "metadata"), section(item, "spec")
    timeout_s, complaint = read_idle_timeout(
        section(metadata, "annotations").get(IDLE_TIMEOUT_ANNOTATION)
    )
    ready = condition(section(item, "status"), "Ready")
    return Candidate(
        ref=record.ref,
        uid=record.uid,
        version=text(metadata, "resourceVersion"),
        idle_timeout_s=timeout_s,
        complaint=complaint,
        standing=_standing(record.traits.intent, metadata, ready),
        says_mode="operatingMode" in spec,
        ready_since=_ready_since(ready),
    )


def _standing(intent: Intent, metadata: JsonObject, ready: JsonObject) -> Standing:
    if metadata.get("deletionTimestamp") is not None or intent in (
        Intent.FINISHED,
        Intent.OVER,
    ):
        return Standing.FINISHED
    if intent is Intent.SUSPENDED:
        return Standing.SUSPENDED
    kind, _, _ = controller(metadata, "extensions.agents.x-k8s.io")
    if kind == "SandboxWarmPool":
        return Standing.POOLED
    observed, current = ready.get("observedGeneration"), metadata.get("generation")
    is_of_now = not (isinstance(observed, int) and isinstance(current, int) and observed < current)
    return Standing.AT_WORK if is_condition(ready, "True") and is_of_now else Standing.NOT_READY


def _ready_since(ready: JsonObject) -> float | None:
    try:
        return parse_timestamp(ready.get("lastTransitionTime"))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Watched:
    """A candidate and since when (on this process's clock) it has been just as it is."""

    candidate: Candidate
    unchanged_since: float


class CandidateStore:
    """What a Reflector fills: the Sandboxes that carry the annotation, each with how long it has been as it is.

    That age is counted here, by one steady clock: the times in the objects come from other machines' clocks.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[SandboxRef, Watched] = {}

    def __repr__(self) -> str:
        return f"<CandidateStore sandboxes={len(self._known)}>"

    def __len__(self) -> int:
        return len(self._known)

    def all(self) -> list[Watched]:
        """Returns every Sandbox that carries the annotation."""
        return list(self._known.values())

    # --- for the Reflector ------------------------------------------------------------------

    def begin_list(self, namespace: str | None = None) -> Listing[Candidate, SandboxRef]:
        """Returns where a new list of that namespace goes, of all of them without one."""
        return Listing(
            key=lambda candidate: candidate.ref,
            is_known=self._is_known,
            commit=lambda same, changed: self._replace(namespace, same, changed),
        )

    def upsert(self, candidate: Candidate) -> None:
        """Takes an added or modified Sandbox."""
        known = self._known.get(candidate.ref)
        if candidate.idle_timeout_s == NEVER and not candidate.complaint:
            self._known.pop(candidate.ref, None)
        elif known is None or known.candidate != candidate:
            self._known[candidate.ref] = Watched(candidate, self._clock())
            if candidate.complaint and (
                known is None or known.candidate.complaint != candidate.complaint
            ):
                _complain(candidate)

    def remove(self, candidate: Candidate) -> None:
        """Takes a deleted Sandbox."""
        known = self._known.get(candidate.ref)
        if known is not None and known.candidate.uid == candidate.uid:
            del self._known[candidate.ref]

    def _is_known(self, candidate: Candidate) -> bool:
        known = self._known.get(candidate.ref)
        return known is not None and known.candidate == candidate

    def _replace(
        self, namespace: str | None, same: set[SandboxRef], changed: list[Candidate]
    ) -> None:
        listed = same | {candidate.ref for candidate in changed}
        for ref in [ref for ref in self._known if namespace in (None, ref.namespace)]:
            if ref not in listed:
                del self._known[ref]
        for candidate in changed:
            self.upsert(candidate)


def _complain(candidate: Candidate) -> None:
    logger.warning(
        "idle timeout can't be read: this sandbox is never suspended",
        extra={
            "fields": {
                "sandbox": candidate.ref.name,
                "namespace": candidate.ref.namespace,
                "annotation": IDLE_TIMEOUT_ANNOTATION,
                "reason": candidate.complaint,
            }
        },
    )
