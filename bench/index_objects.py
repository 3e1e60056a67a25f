"""The objects of a large simulated cluster, made on the fly: 100,000 sandboxes need no memory here."""

from __future__ import annotations

import enum
from typing import Any

import orjson

STABLE = 10
"""The first sandboxes never change: they are the ones that are asked for."""
FLIPPING = STABLE
"""This one's pod is replaced again and again, to see how long a change takes to be a route."""
FIRST_CHURNING = STABLE + 1
NAMESPACES = 50


class Step(enum.IntEnum):
    """Where a churning sandbox's pod is in its life; each step is one event."""

    READY = 0
    DELETING = 1
    GONE = 2
    PENDING = 3
    STARTING = 4


def sandbox_name(number: int) -> tuple[str, str]:
    """Returns namespace and name."""
    return f"team-{number % NAMESPACES}", f"sandbox-{number:06}-x7k2q"


def address_of(number: int, life: int) -> str:
    """Returns the address of a pod; each life has another one."""
    if number < STABLE:
        return f"127.0.1.{number + 1}"
    if number == FLIPPING:
        return f"127.0.2.{life % 2 + 1}"
    return f"10.{(number >> 16) + 8 * (life % 20)}.{number >> 8 & 255}.{number & 255}"


def sandbox_uid(number: int) -> str:
    return f"5a0d0000-0000-4000-8000-{number:012}"


def pod_uid(number: int, life: int) -> str:
    return f"90d{life % 100_000:05}-0000-4000-8000-{number:012}"


# About what a real one weighs, with its managed fields.
_CONTAINER: dict[str, Any] = {
    "name": "app",
    "image": "registry.example/agents/python-runtime:1.24.3",
    "ports": [{"containerPort": 8888, "protocol": "TCP"}],
    "env": [{"name": f"SETTING_{number}", "value": "x" * 24} for number in range(10)],
    "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
    "readinessProbe": {"httpGet": {"path": "/", "port": 8888}, "periodSeconds": 1},
    "volumeMounts": [{"name": "work", "mountPath": "/work"}, {"name": "tmp", "mountPath": "/tmp"}],
}
_FIELDS = {f"f:field-{number}": {".": {}, "f:value": {}} for number in range(25)}
# Encoded once, so that the source is no bottleneck.
_CONTAINERS = orjson.Fragment(orjson.dumps([_CONTAINER]))
_MANAGED = orjson.Fragment(
    orjson.dumps(
        [
            {"manager": "controller", "operation": "Update", "fieldsV1": _FIELDS},
            {"manager": "kubelet", "operation": "Update", "fieldsV1": _FIELDS},
        ]
    )
)
_MANAGED_ONCE = orjson.Fragment(
    orjson.dumps([{"manager": "kubectl", "operation": "Update", "fieldsV1": _FIELDS}])
)


def pod(number: int, life: int, step: Step, version: int) -> bytes:
    """Returns a pod as JSON."""
    namespace, name = sandbox_name(number)
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-11-01T00:00:03Z"}
        for kind in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled")
    ]
    ready = {"type": "Ready", "status": "True" if step in (Step.READY, Step.DELETING) else "False"}
    status: dict[str, Any] = {"phase": "Running", "conditions": [*conditions, ready]}
    if step is not Step.PENDING:
        address = address_of(number, life)
        status |= {"podIP": address, "podIPs": [{"ip": address}], "hostIP": "10.200.0.1"}
    second = life % 60
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": pod_uid(number, life),
        "resourceVersion": str(version),
        "creationTimestamp": f"2026-11-01T{life // 3600 % 24:02}:{life // 60 % 60:02}:{second:02}Z",
        "labels": {"agents.x-k8s.io/sandbox-name-hash": "1a2b3c4d", "app": "agent"},
        "ownerReferences": [
            {
                "apiVersion": "agents.x-k8s.io/v1beta1",
                "kind": "Sandbox",
                "name": name,
                "uid": sandbox_uid(number),
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": _MANAGED,
    }
    if step in (Step.DELETING, Step.GONE):
        metadata["deletionTimestamp"] = "2026-11-01T01:00:00Z"
    spec = {"containers": _CONTAINERS, "nodeName": "node-1", "serviceAccountName": "default"}
    item = {"metadata": metadata, "spec": spec, "status": status}
    return orjson.dumps(item)


def sandbox(number: int, version: int) -> bytes:
    """Returns a Sandbox as JSON."""
    namespace, name = sandbox_name(number)
    item = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": sandbox_uid(number),
            "resourceVersion": str(version),
            "generation": 1,
            "managedFields": _MANAGED_ONCE,
        },
        "spec": {"operatingMode": "Running", "podTemplate": {"spec": {"containers": _CONTAINERS}}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "DependenciesReady"}],
            "serviceFQDN": f"{name}.{namespace}.svc.cluster.local",
        },
    }
    # As the API server sends custom resources.
    return orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
