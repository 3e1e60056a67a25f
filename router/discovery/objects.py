"""What pods, Sandboxes and SandboxClaims have in common: reading one object's metadata without trusting its shape."""

from __future__ import annotations

import sys
from typing import Any

from router.kube.api_client import JsonObject

SANDBOX_GROUP = "agents.x-k8s.io"
EXTENSIONS_GROUP = "extensions.agents.x-k8s.io"


class MalformedObjectError(ValueError):
    """An object without the identity that every object of the API server has."""


def section(parent: JsonObject, key: str) -> JsonObject:
    """Returns the object under `key`, {} when it is absent or something else."""
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def entries(parent: JsonObject, key: str) -> list[JsonObject]:
    """Returns the objects of the list under `key`, [] when it is absent or something else."""
    value = parent.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def text(parent: JsonObject, key: str) -> str:
    """Returns the string under `key`, "" when it is absent or something else."""
    value = parent.get(key)
    return value if isinstance(value, str) else ""


def identity(item: JsonObject) -> tuple[JsonObject, str, str, str]:
    """Returns metadata, namespace, name and uid. Raises MalformedObjectError when one is missing."""
    metadata = section(item, "metadata")
    namespace, name, uid = metadata.get("namespace"), metadata.get("name"), metadata.get("uid")
    if not (
        isinstance(namespace, str)
        and isinstance(name, str)
        and isinstance(uid, str)
        and (namespace and name and uid)
    ):
        raise MalformedObjectError(
            f"an object without namespace, name or uid: {namespace or ''}/{name or ''} {uid or ''}"
        )
    # One string in memory for all the objects of a namespace.
    return metadata, sys.intern(namespace), name, uid


def version(metadata: JsonObject) -> int:
    """Returns the resourceVersion as a number that orders one object's events, 0 when it is none.

    Kubernetes keeps it a decimal number for this use (KEP-5504); 0 turns the ordering off.
    """
    value = metadata.get("resourceVersion")
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else 0


def controller(metadata: JsonObject, group: str) -> tuple[str, str, str]:
    """Returns kind, name and uid of the controlling owner if it is of `group` (any version), else three times ""."""
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller") is True:
            if text(owner, "apiVersion").partition("/")[0] == group:
                return text(owner, "kind"), text(owner, "name"), text(owner, "uid")
            break
    return "", "", ""


def condition(status: JsonObject, kind: str) -> JsonObject:
    """Returns the condition of this type, {} when there is none."""
    conditions = status.get("conditions")
    for entry in conditions if isinstance(conditions, list) else ():
        if isinstance(entry, dict) and entry.get("type") == kind:
            return entry
    return {}


def is_condition(entry: JsonObject, status: str) -> bool:
    """Returns True when a condition has this status (`True`, `False` or `Unknown`)."""
    value: Any = entry.get("status")
    return bool(value == status)
