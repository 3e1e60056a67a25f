"""The three patch formats of the Kubernetes API, as far as the fake API server needs them."""

from __future__ import annotations

import copy
from typing import Any

import orjson

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "env": "name",
    "ports": "containerPort",
}


class UnsupportedPatch(Exception):
    """A content type or operation that the fake does not know."""


class RefusedPatch(Exception):
    """A JSON Patch that doesn't fit the object: a failed test, or a path that isn't there."""


def apply_patch(content_type: str, item: Any, raw: bytes) -> Any:
    """Returns the patched copy of `item`."""
    patch = orjson.loads(raw)
    if content_type == MERGE:
        return _merge(copy.deepcopy(item), patch)
    if content_type == STRATEGIC:
        return _strategic(copy.deepcopy(item), patch)
    if content_type == JSON:
        patched = copy.deepcopy(item)
        for operation in patch:
            try:
                _operate(patched, operation)
            except (KeyError, IndexError) as error:
                raise RefusedPatch(f"{operation['op']}: no {operation['path']}") from error
        return patched
    raise UnsupportedPatch(content_type)


def _merge(item: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    item = item if isinstance(item, dict) else {}
    for key, value in patch.items():
        if value is None:
            item.pop(key, None)
        else:
            item[key] = _merge(item.get(key), value)
    return item


def _strategic(item: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    item = item if isinstance(item, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            item.pop(key, None)
        elif isinstance(value, list) and key in MERGE_KEYS:
            item[key] = _strategic_list(item.get(key) or [], value, MERGE_KEYS[key])
        else:
            item[key] = _strategic(item.get(key), value)
    return item


def _strategic_list(items: list[Any], patches: list[Any], merge_key: str) -> list[Any]:
    for patch in patches:
        known = [entry for entry in items if entry.get(merge_key) == patch.get(merge_key)]
        if patch.get("$patch") == "delete":
            items = [entry for entry in items if entry not in known]
        elif known:
            _strategic(known[0], patch)
        else:
            items.append(patch)
    return items


def _operate(item: Any, operation: dict[str, Any]) -> None:
    *parents, last = (
        step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
    )
    for step in parents:
        item = item[int(step)] if isinstance(item, list) else item[step]
    kind = operation["op"]
    if isinstance(item, list):
        position = len(item) if last == "-" else int(last)
        if kind == "add":
            item.insert(position, operation["value"])
        elif kind == "replace":
            item[position] = operation["value"]
        elif kind == "remove":
            del item[position]
        else:
            raise UnsupportedPatch(kind)
    elif kind == "add":
        item[last] = operation["value"]
    elif kind == "replace":
        item[last]  # RFC 6902 §4.3: what is replaced must exist
        item[last] = operation["value"]
    elif kind == "remove":
        del item[last]
    elif kind == "test":
        if item.get(last) != operation["value"]:
            raise RefusedPatch(f"testing value {operation['path']} failed")
    else:
        raise UnsupportedPatch(kind)
