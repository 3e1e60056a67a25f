"""ClaimRecord: what routing needs of one SandboxClaim."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.discovery.objects import identity, section, text, version
from router.kube.api_client import JsonObject
from router.routing.endpoint import SandboxRef

SANDBOX_NAME_ANNOTATION = "agents.x-k8s.io/sandbox-name"


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """One SandboxClaim; equal when routing can't tell the difference (the version is not compared)."""

    ref: SandboxRef
    """The claim's own name, an alias of its sandbox."""
    uid: str
    version: int = field(compare=False)
    sandbox: SandboxRef
    """The Sandbox it is bound to; an empty name while it is unbound."""
    is_bound_by_status: bool
    """The controller said so. The annotation alone can be written by whoever may change the claim."""


def parse_claim(item: JsonObject) -> ClaimRecord:
    """Returns the record of a SandboxClaim. Raises MalformedObjectError when it has no identity."""
    metadata, namespace, name, uid = identity(item)
    by_status = text(section(section(item, "status"), "sandbox"), "name")
    by_annotation = text(section(metadata, "annotations"), SANDBOX_NAME_ANNOTATION)
    return ClaimRecord(
        ref=SandboxRef(namespace, name),
        uid=uid,
        version=version(metadata),
        sandbox=SandboxRef(namespace, by_status or by_annotation),
        is_bound_by_status=bool(by_status),
    )
