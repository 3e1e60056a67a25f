"""Pods, Sandboxes and SandboxClaims as a cluster with the agent-sandbox controller shows them."""

from __future__ import annotations

import uuid
from typing import Any

JsonObject = dict[str, Any]
GROUP = "agents.x-k8s.io"
EXTENSIONS = "extensions.agents.x-k8s.io"


def name_hash(name: str) -> str:
    """Returns the FNV-1a hash (32 bit, 8 hex digits) that the controller labels pods with."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{value:08x}"


def new_uid() -> str:
    return str(uuid.uuid4())


def owner(kind: str, name: str, uid: str, *, group: str = GROUP) -> JsonObject:
    return {
        "apiVersion": f"{group}/v1beta1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def ready_condition(is_ready: bool, reason: str, *, generation: int | None = None) -> JsonObject:
    condition: JsonObject = {
        "type": "Ready",
        "status": "True" if is_ready else "False",
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-11-01T00:00:00Z",
    }
    if generation is not None:
        condition["observedGeneration"] = generation
    return condition


def sandbox(
    name: str,
    *,
    namespace: str = "default",
    uid: str = "",
    version: int = 1,
    mode: str = "Running",
    is_ready: bool = False,
    reason: str = "DependenciesNotReady",
    annotations: dict[str, str] | None = None,
    controlled_by: JsonObject | None = None,
    **metadata: Any,
) -> JsonObject:
    """Returns a Sandbox (v1beta1)."""
    condition = ready_condition(is_ready, "DependenciesReady" if is_ready else reason)
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or new_uid(),
            "resourceVersion": str(version),
            "generation": 1,
            "annotations": annotations or {},
            **({"ownerReferences": [controlled_by]} if controlled_by else {}),
            **metadata,
        },
        "spec": {"operatingMode": mode, "podTemplate": {"spec": {"containers": []}}},
        "status": {"conditions": [condition]},
    }


def pod(
    name: str,
    *,
    of: JsonObject | None,
    namespace: str = "default",
    uid: str = "",
    version: int = 1,
    address: str | tuple[str, ...] = (),
    is_ready: bool = False,
    phase: str = "Running",
    created: str = "2026-11-01T00:00:00Z",
    is_pooled: bool = False,
    is_deleting: bool = False,
    host_network: bool = False,
    labels: dict[str, str] | None = None,
) -> JsonObject:
    """Returns a pod that the Sandbox `of` controls (None = nobody does)."""
    addresses = (address,) if isinstance(address, str) else address
    of_name = of["metadata"]["name"] if of else name
    all_labels = {f"{GROUP}/sandbox-name-hash": name_hash(of_name), **(labels or {})}
    if is_pooled:
        all_labels[f"{GROUP}/warm-pool-sandbox"] = name_hash("pool")
    metadata: JsonObject = {
        "name": name,
        "namespace": of["metadata"]["namespace"] if of else namespace,
        "uid": uid or new_uid(),
        "resourceVersion": str(version),
        "creationTimestamp": created,
        "labels": all_labels,
    }
    if of:
        metadata["ownerReferences"] = [owner("Sandbox", of_name, of["metadata"]["uid"])]
    if is_deleting:
        metadata["deletionTimestamp"] = "2026-11-01T01:00:00Z"
    spec: JsonObject = {
        "containers": [{"name": "app", "image": "example/app:1"}],
        "nodeName": "node-1",
    }
    if host_network:
        spec["hostNetwork"] = True
    status: JsonObject = {
        "phase": phase,
        "conditions": [ready_condition(is_ready, "")],
        "podIPs": [{"ip": each} for each in addresses],
    }
    if addresses:
        status["podIP"] = addresses[0]
    return {"metadata": metadata, "spec": spec, "status": status}


def claim(
    name: str,
    *,
    namespace: str = "default",
    uid: str = "",
    version: int = 1,
    bound_to: str = "",
    annotated_to: str = "",
) -> JsonObject:
    """Returns a SandboxClaim, bound by its status or by its annotation alone."""
    annotations = {f"{GROUP}/sandbox-name": annotated_to} if annotated_to else {}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or new_uid(),
            "resourceVersion": str(version),
            "annotations": annotations,
        },
        "spec": {"warmPoolRef": {"name": "pool"}},
        "status": {"sandbox": {"name": bound_to}} if bound_to else {},
    }
