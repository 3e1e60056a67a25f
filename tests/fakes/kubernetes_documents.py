"""What the fake API server says about itself: versions, groups, resources, and Status objects."""

from __future__ import annotations

from typing import Any

from tests.fakes.kubernetes_store import Kind

JsonObject = dict[str, Any]
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}

VERSION: JsonObject = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0-fake",
    "gitCommit": "0",
    "gitTreeState": "clean",
    "buildDate": "2026-10-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}

REVIEWS = (
    ("authentication.k8s.io", "v1", "tokenreviews", "TokenReview"),
    ("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview"),
)


def status(code: int, message: str, *, reason: str = "", **details: Any) -> JsonObject:
    """Returns a Status object of failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or REASONS.get(code, "Unknown"),
        "code": code,
        "details": details,
    }


def document(path: str, kinds: tuple[Kind, ...]) -> JsonObject | None:
    """Returns the discovery document of that path, None when there is none."""
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        groups = [_group(name, versions) for name, versions in _groups(kinds).items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    parts = path.strip("/").split("/")
    if parts == ["api", "v1"]:
        return _resources("v1", [kind for kind in kinds if not kind.group])
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in _groups(kinds):
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            **_group(parts[1], _groups(kinds)[parts[1]]),
        }
    if parts[0] == "apis" and len(parts) == 3 and parts[2] in _groups(kinds).get(parts[1], ()):
        found = [kind for kind in kinds if kind.group == parts[1] and parts[2] in kind.versions]
        return _resources(f"{parts[1]}/{parts[2]}", found, parts[1])
    return None


def _groups(kinds: tuple[Kind, ...]) -> dict[str, tuple[str, ...]]:
    groups = {kind.group: kind.versions for kind in kinds if kind.group}
    return groups | {group: (version,) for group, version, _, _ in REVIEWS}


def _group(name: str, versions: tuple[str, ...]) -> JsonObject:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resources(group_version: str, kinds: list[Kind], group: str = "") -> JsonObject:
    resources: list[JsonObject] = []
    for kind in kinds:
        entry = {
            "name": kind.plural,
            "singularName": kind.kind.lower(),
            "namespaced": True,
            "kind": kind.kind,
            "verbs": VERBS,
            "shortNames": list(kind.short_names),
        }
        resources.append(entry)
        if kind.has_status:
            resources.append({**entry, "name": f"{kind.plural}/status", "verbs": ["get", "patch"]})
    for review_group, _, plural, kind_name in REVIEWS:
        if review_group == group:
            entry = {"name": plural, "singularName": "", "namespaced": False, "kind": kind_name}
            resources.append({**entry, "verbs": ["create"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }
