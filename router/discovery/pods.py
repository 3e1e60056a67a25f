"""PodRecord: what routing needs of one pod."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from router.discovery.address_kinds import AddressKind, kind_of
from router.discovery.objects import (
    SANDBOX_GROUP,
    condition,
    controller,
    entries,
    identity,
    is_condition,
    section,
    text,
    version,
)
from router.kube.api_client import JsonObject
from router.routing.endpoint import SandboxRef

NAME_HASH_LABEL = "agents.x-k8s.io/sandbox-name-hash"
WARM_POOL_LABEL = "agents.x-k8s.io/warm-pool-sandbox"


class PodStage(enum.Enum):
    """Where a pod is in its life; only READY may be dialled."""

    STARTING = "starting"
    READY = "ready"
    DELETING = "deleting"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class PodTraits:
    """What a pod has in common with many others; equal ones are one object."""

    stage: PodStage
    is_pooled: bool
    """It still carries the label of a warm pool."""
    shares_address: bool
    """It lives on its node's network, so others rightly have the same address."""
    refused_address: str = ""
    """One that it reports and that can't be a pod's, for people."""

    @property
    def is_live(self) -> bool:
        """True when its addresses are its own: neither being deleted nor ended."""
        return self.stage in (PodStage.STARTING, PodStage.READY)


class PodRecord(NamedTuple):
    """One pod; equal when routing can't tell the difference (the version is not compared).

    A tuple, for it is made three times of each object of a list: a frozen dataclass takes four times as long.
    """

    ref: SandboxRef
    """The Sandbox that controls it; an empty name when none does."""
    name: str
    uid: str
    sandbox_uid: str
    created: int
    """Creation time, Unix seconds; 0 when unknown."""
    addresses: tuple[str, ...]
    """Valid IP literals that can be a pod's, in the pod's own order of families."""
    traits: PodTraits
    version: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PodRecord) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.uid)

    def kept(self, ref: SandboxRef, sandbox_uid: str, *, version: int = 0) -> PodRecord:
        """Returns the record as the table keeps it: with these strings in place of its own equal ones, 200 bytes less.

        Its own version goes too, for RecentVersions remembers the ones that matter.
        """
        return PodRecord(
            ref=ref,
            name=ref.name if self.name == ref.name else self.name,
            uid=self.uid,
            sandbox_uid=sandbox_uid if self.sandbox_uid == sandbox_uid else self.sandbox_uid,
            version=version,
            created=self.created,
            addresses=self.addresses,
            traits=self.traits,
        )


_traits = lru_cache(maxsize=1024)(PodTraits)


def parse_pod(item: JsonObject) -> PodRecord:
    """Returns the record of a pod as the API sends it. Raises MalformedObjectError when it has no identity."""
    metadata, namespace, name, uid = identity(item)
    kind, owner_name, owner_uid = controller(metadata, SANDBOX_GROUP)
    if kind != "Sandbox" or not owner_uid:
        owner_name = owner_uid = ""
    status = section(item, "status")
    addresses, refused = _addresses(status)
    return PodRecord(
        ref=SandboxRef(namespace, owner_name),
        name=name,
        uid=uid,
        sandbox_uid=owner_uid,
        version=version(metadata),
        created=_unix_seconds(text(metadata, "creationTimestamp")),
        addresses=addresses,
        traits=_traits(
            _stage(metadata, status),
            WARM_POOL_LABEL in section(metadata, "labels"),
            section(item, "spec").get("hostNetwork") is True,
            refused,
        ),
    )


def _stage(metadata: JsonObject, status: JsonObject) -> PodStage:
    if metadata.get("deletionTimestamp") is not None:
        return PodStage.DELETING
    phase = status.get("phase")
    if phase in ("Succeeded", "Failed"):
        return PodStage.ENDED
    # Phase Unknown (its node is lost) never has Ready=True for long, and is not worth dialling meanwhile.
    if phase != "Unknown" and is_condition(condition(status, "Ready"), "True"):
        return PodStage.READY
    return PodStage.STARTING


def _addresses(status: JsonObject) -> tuple[tuple[str, ...], str]:
    """Returns the addresses that can be dialled, and one that can't be a pod's, "" without such."""
    only = _only_address(status)
    if only and kind_of(only) is AddressKind.USABLE:
        return (only,), ""
    found = [text(entry, "ip") for entry in entries(status, "podIPs")]
    found = found or [text(status, "podIP")]
    kinds = {address: kind_of(address) for address in found}
    usable = tuple(address for address, kind in kinds.items() if kind is AddressKind.USABLE)
    if len(usable) == len(kinds):
        return usable, ""
    refused = [address for address, kind in kinds.items() if kind is AddressKind.REFUSED]
    return usable, refused[0] if refused else ""


def _only_address(status: JsonObject) -> str:
    """Returns the one address that almost every pod has, "" where it is not as simple as that."""
    found = status.get("podIPs")
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], dict):
        return text(found[0], "ip")
    return ""


@lru_cache(maxsize=1024)
def _unix_seconds(value: str) -> int:
    """Cached so that pods of one second share one number, and because bursts are common."""
    try:
        return int(datetime.fromisoformat(value).timestamp())
    except ValueError:
        return 0
