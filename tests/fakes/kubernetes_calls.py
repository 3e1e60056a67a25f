"""One parsed request to the fake API server, and the answers that it can get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from tests.fakes import kubernetes_documents as documents
from tests.fakes.kubernetes_faults import Refusal
from tests.fakes.kubernetes_store import (
    SANDBOXES,
    JsonObject,
    Kind,
    field_selector,
    label_selector,
)


@dataclass(frozen=True, slots=True)
class Call:
    """One parsed request for a resource."""

    kind: Kind
    version: str
    namespace: str | None
    name: str | None
    subresource: str | None
    request: web.Request

    @property
    def verb(self) -> str:
        method = self.request.method
        if method != "GET":
            return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
        if self.name is not None:
            return "get"
        return "watch" if self.is_true("watch") else "list"

    def is_true(self, parameter: str) -> bool:
        """Reads a query parameter as the API server does: anything but absent, 0 and false counts."""
        return self.request.query.get(parameter, "").lower() not in ("", "0", "false")


def selected(call: Call) -> Callable[[JsonObject], bool]:
    query = call.request.query
    by_label = label_selector(query.get("labelSelector", ""))
    by_field = field_selector(query.get("fieldSelector", ""))
    return lambda item: by_label(item) and by_field(item)


def to_version(kind: Kind, version: str, item: JsonObject) -> JsonObject:
    """Returns the object as that API version shows it: v1alpha1 said `replicas` where v1beta1 says `operatingMode`."""
    shown = {"apiVersion": kind.api_version(version), "kind": kind.kind, **item}
    shown["apiVersion"] = kind.api_version(version)
    if kind is SANDBOXES and version == "v1alpha1":
        spec = dict(shown.get("spec") or {})
        spec["replicas"] = 0 if spec.pop("operatingMode", "Running") == "Suspended" else 1
        shown["spec"] = spec
    return shown


def from_version(kind: Kind, item: JsonObject) -> JsonObject:
    spec = item.get("spec")
    if kind is SANDBOXES and isinstance(spec, dict) and "replicas" in spec:
        spec["operatingMode"] = "Suspended" if spec.pop("replicas") == 0 else "Running"
    return item


def json_answer(body: JsonObject, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def plain_answer(status: int, text: str) -> web.Response:
    return web.Response(text=text, status=status)


def failure(code: int, message: str, *, reason: str = "", **details: Any) -> web.Response:
    return json_answer(documents.status(code, message, reason=reason, **details), code)


def refused(refusal: Refusal) -> web.Response:
    if refusal.plain_text:
        response = plain_answer(refusal.status, refusal.message)
    else:
        response = failure(refusal.status, refusal.message, reason=refusal.reason)
    if refusal.retry_after_s is not None:
        response.headers["Retry-After"] = str(refusal.retry_after_s)
    return response
