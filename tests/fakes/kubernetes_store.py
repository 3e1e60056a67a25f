"""ObjectStore: the fake API server's objects, their versions and the history that watches read."""

from __future__ import annotations

import asyncio
import copy
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

JsonObject = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource type that the fake serves."""

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    has_status: bool = True
    short_names: tuple[str, ...] = ()

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version


PODS = Kind("", ("v1",), "pods", "Pod", short_names=("po",))
SANDBOXES = Kind("agents.x-k8s.io", ("v1beta1", "v1alpha1"), "sandboxes", "Sandbox")
CLAIMS = Kind(
    "extensions.agents.x-k8s.io", ("v1beta1", "v1alpha1"), "sandboxclaims", "SandboxClaim"
)
NAMESPACED_KINDS = (PODS, SANDBOXES, CLAIMS)
LEASES = Kind("coordination.k8s.io", ("v1",), "leases", "Lease", has_status=False)
SLICES = Kind("discovery.k8s.io", ("v1",), "endpointslices", "EndpointSlice", has_status=False)
MORE_KINDS = (LEASES, SLICES)
"""What the suspender reads and writes beside Sandboxes."""


@dataclass(slots=True)
class Change:
    """One write, as the history keeps it. `before` is None for a creation, `after` is None for a removal."""

    version: int
    kind: Kind
    before: JsonObject | None
    after: JsonObject | None
    encoded: dict[str, bytes] = field(default_factory=dict)
    """Event lines made so far, by event type and API version."""


class Conflict(Exception):
    """The object exists already, or its resourceVersion is not the one that the writer saw."""


class NotFound(Exception):
    """There is no such object."""


class Expired(Exception):
    """The version asked for is older than the history."""


class ObjectStore:
    """Keeps objects as immutable dicts (each write makes a new one), so that lists are snapshots for free."""

    def __init__(self, *, first_version: int = 1000) -> None:
        self.version = first_version
        self.compacted = first_version - 1
        """History up to this version is gone."""
        self._objects: dict[Kind, dict[Key, JsonObject]] = {}
        self._history: list[Change] = []
        self._versions: list[int] = []
        self._changed = asyncio.Event()

    # --- reading ----------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> JsonObject:
        try:
            return self._objects[kind][namespace, name]
        except KeyError:
            raise NotFound(f"{kind.plural} {name!r} not found") from None

    def items(self, kind: Kind, namespace: str | None) -> list[JsonObject]:
        found = self._objects.get(kind, {})
        return [found[key] for key in sorted(found) if namespace in (None, key[0])]

    def since(self, version: int) -> list[Change]:
        """Returns the changes after `version`. Raises Expired."""
        if version < self.compacted:
            raise Expired
        return self._history[bisect_right(self._versions, version) :]

    async def changed(self, timeout_s: float) -> None:
        """Returns at the next write, or after `timeout_s`."""
        waited_for = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await waited_for.wait()
        except TimeoutError:
            pass

    def wake_watches(self) -> None:
        waited_for, self._changed = self._changed, asyncio.Event()
        waited_for.set()

    # --- writing ----------------------------------------------------------------------------

    def create(self, kind: Kind, item: JsonObject) -> JsonObject:
        item = copy.deepcopy(item)
        metadata = item.setdefault("metadata", {})
        if not metadata.get("name"):
            metadata["name"] = metadata.get("generateName", "x-") + uuid.uuid4().hex[:5]
        key = (metadata.setdefault("namespace", "default"), metadata["name"])
        if key in self._objects.get(kind, {}):
            raise Conflict(f'{kind.plural} "{key[1]}" already exists')
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", now())
        metadata.setdefault("generation", 1)
        return self._write(kind, key, None, item)

    def update(
        self, kind: Kind, namespace: str, name: str, change: Callable[[JsonObject], JsonObject]
    ) -> JsonObject:
        """Replaces an object by what `change` makes of a copy of it; removes it when its last finalizer goes."""
        before = self.get(kind, namespace, name)
        after = change(copy.deepcopy(before))
        after["metadata"]["uid"] = before["metadata"]["uid"]
        if _content(after) != _content(before):
            after["metadata"]["generation"] = before["metadata"].get("generation", 0) + 1
        if after == before:
            return before
        lost_finalizers = before["metadata"].get("finalizers") and not after["metadata"].get(
            "finalizers"
        )
        if after["metadata"].get("deletionTimestamp") and lost_finalizers:
            return self._write(kind, (namespace, name), before, None)
        return self._write(kind, (namespace, name), before, after)

    def delete(self, kind: Kind, namespace: str, name: str) -> JsonObject:
        """Removes an object, or marks it deleted while it has finalizers."""
        before = self.get(kind, namespace, name)
        if before["metadata"].get("finalizers"):
            after = copy.deepcopy(before)
            after["metadata"].setdefault("deletionTimestamp", now())
            return self._write(kind, (namespace, name), before, after)
        return self._write(kind, (namespace, name), before, None)

    def compact(self, up_to: int | None = None) -> None:
        """Forgets the history up to a version (default: all of it)."""
        self.compacted = self.version if up_to is None else up_to
        gone = bisect_right(self._versions, self.compacted)
        del self._history[:gone]
        del self._versions[:gone]

    def _write(
        self, kind: Kind, key: Key, before: JsonObject | None, after: JsonObject | None
    ) -> JsonObject:
        self.version += 1
        objects = self._objects.setdefault(kind, {})
        if after is None:
            assert before is not None
            # As the real one does: the event of a removal carries the version of the removal.
            metadata = {**before["metadata"], "resourceVersion": str(self.version)}
            before = {**before, "metadata": metadata}
            del objects[key]
        else:
            after["metadata"]["resourceVersion"] = str(self.version)
            objects[key] = after
        self._history.append(Change(self.version, kind, before, after))
        self._versions.append(self.version)
        self.wake_watches()
        return before if after is None else after  # type: ignore[return-value]


def _content(item: JsonObject) -> JsonObject:
    """Returns what a new generation is counted for: the spec; all but the metadata where there is none (EndpointSlice)."""
    if "spec" in item or "status" in item:
        return item.get("spec") or {}
    return {key: value for key, value in item.items() if key != "metadata"}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- selectors ------------------------------------------------------------------------------

Selector = Callable[[JsonObject], bool]


def label_selector(text: str) -> Selector:
    """Returns the test for a label selector (equality, sets, existence)."""
    terms = [_label_term(term) for term in _split_terms(text)]

    def matches(item: JsonObject) -> bool:
        labels = item["metadata"].get("labels") or {}
        return all(term(labels) for term in terms)

    return matches


def field_selector(text: str) -> Selector:
    """Returns the test for a field selector (equality of dotted paths)."""
    terms = []
    for term in filter(None, text.split(",")):
        is_negative = "!=" in term
        path, _, value = term.partition("!=" if is_negative else "=")
        terms.append((path.strip().split("."), value.removeprefix("=").strip(), is_negative))

    def matches(item: JsonObject) -> bool:
        for path, value, is_negative in terms:
            found: Any = item
            for step in path:
                found = found.get(step) if isinstance(found, dict) else None
            if (str(found or "") == value) is is_negative:
                return False
        return True

    return matches


def _split_terms(text: str) -> Iterator[str]:
    term, depth = "", 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            yield term.strip()
            term = ""
        else:
            term += letter
    if term.strip():
        yield term.strip()


def _label_term(term: str) -> Callable[[dict[str, str]], bool]:
    for word, wanted in ((" notin ", False), (" in ", True)):
        if word in term:
            key, _, values = term.partition(word)
            allowed = {value.strip() for value in values.strip().strip("()").split(",")}
            return lambda labels: (labels.get(key.strip()) in allowed) is wanted
    if term.startswith("!"):
        return lambda labels: term[1:].strip() not in labels
    if "!=" in term:
        key, _, value = term.partition("!=")
        return lambda labels: labels.get(key.strip()) != value.strip()
    if "=" in term:
        key, _, value = term.partition("=")
        return lambda labels: labels.get(key.strip()) == value.removeprefix("=").strip()
    return lambda labels: term in labels
