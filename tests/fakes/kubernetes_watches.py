"""How the fake API server serves a watch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import orjson
from aiohttp import web

from tests.fakes import kubernetes_documents as documents
from tests.fakes.kubernetes_calls import Call, failure, selected, to_version
from tests.fakes.kubernetes_faults import Faults, OpenWatch
from tests.fakes.kubernetes_store import Change, Expired, JsonObject, Kind, ObjectStore


async def serve_watch(
    store: ObjectStore, faults: Faults, call: Call, bookmark_interval_s: float
) -> web.StreamResponse:
    """Serves one watch until it times out, its version expires, or a fault ends it."""
    query = call.request.query
    asked = query.get("resourceVersion", "")
    position = int(asked or 0)
    if position > store.version and not faults.future_is_silent:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        return failure(504, f"Too large resource version: {position}", causes=[cause])
    if faults.expires_by_status and 0 < position < store.compacted:
        return failure(410, f"too old resource version: {position} ({store.compacted})")
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(call.request)
    watch = OpenWatch(call.kind.plural, call.namespace, call.request)
    watch.is_stalled = faults.watches_stall
    faults.watches.append(watch)
    try:
        with contextlib.suppress(ConnectionError):
            await _stream(store, faults, call, watch, response, position, bookmark_interval_s)
    finally:
        faults.watches.remove(watch)
    return response


async def _stream(
    store: ObjectStore,
    faults: Faults,
    call: Call,
    watch: OpenWatch,
    response: web.StreamResponse,
    position: int,
    bookmark_interval_s: float,
) -> None:
    matches = selected(call)
    ends_at = time.monotonic() + float(call.request.query.get("timeoutSeconds") or 1800)
    bookmark_at = time.monotonic() + bookmark_interval_s
    streams_list = call.is_true("sendInitialEvents")
    if streams_list and faults.streams_fail:
        failed = documents.status(
            500, "the required storage feature RequestWatchProgress is disabled"
        )
        await response.write(orjson.dumps({"type": "ERROR", "object": failed}) + b"\n")
        return
    if position == 0 or streams_list:
        found = [i for i in store.items(call.kind, call.namespace) if matches(i)]
        position = store.version
        lines = [_line("ADDED", call.kind, call.version, item) for item in found]
        if streams_list and faults.cut_streams:
            faults.cut_streams -= 1
            await response.write(b"".join(lines[:1]))
            return
        await response.write(b"".join(lines))
    if streams_list and not faults.streams_unmarked:
        await response.write(_bookmark(call, position, ends_list=True))
    while time.monotonic() < ends_at and _is_connected(call):
        if watch.is_stalled:
            await store.changed(0.05)
            continue
        try:
            changes = [] if watch.expire else store.since(position)
        except Expired:
            watch.expire = True
        if watch.expire:
            gone = documents.status(410, f"too old resource version: {position}")
            await response.write(orjson.dumps({"type": "ERROR", "object": gone}) + b"\n")
            return
        lines = [line for change in changes if (line := _event(call, change, matches))]
        position = changes[-1].version if changes else position
        if watch.raw:
            lines, watch.raw = [*lines, watch.raw], b""
        if lines and watch.truncate:
            await response.write(b"".join(lines)[: -len(lines[-1]) // 2])
            call.request.transport.close() if call.request.transport else None
            return
        if lines:
            await response.write(b"".join(lines))
        if time.monotonic() >= bookmark_at:
            bookmark_at = time.monotonic() + bookmark_interval_s
            if call.is_true("allowWatchBookmarks"):
                await response.write(_bookmark(call, position))
        if not changes:
            await store.changed(min(ends_at, bookmark_at) - time.monotonic())


def _is_connected(call: Call) -> bool:
    transport = call.request.transport
    return transport is not None and not transport.is_closing()


def _event(call: Call, change: Change, matches: Callable[[JsonObject], bool]) -> bytes | None:
    """Returns the event line of a change for a watch with that selector, None when it sees nothing of it."""
    if change.kind is not call.kind:
        return None
    seen = change.after or change.before
    if seen is None or call.namespace not in (None, seen["metadata"]["namespace"]):
        return None
    was, is_now = change.before, change.after
    did_match = was is not None and matches(was)
    if is_now is None or not matches(is_now):
        if not did_match:
            return None
        kind, item = "DELETED", is_now or was
    else:
        kind, item = ("MODIFIED" if did_match else "ADDED"), is_now
    assert item is not None
    if kind == "DELETED" and was is not None and is_now is not None:
        # Leaving a selector: the object as it was, with the version of the change.
        item = {**was, "metadata": {**was["metadata"], "resourceVersion": str(change.version)}}
    cached = change.encoded.get(kind + call.version)
    if cached is None:
        cached = change.encoded[kind + call.version] = _line(kind, call.kind, call.version, item)
    return cached


def _line(event: str, kind: Kind, version: str, item: JsonObject) -> bytes:
    return orjson.dumps({"type": event, "object": to_version(kind, version, item)}) + b"\n"


def _bookmark(call: Call, position: int, *, ends_list: bool = False) -> bytes:
    item: JsonObject = {
        "kind": call.kind.kind,
        "apiVersion": call.kind.api_version(call.version),
        "metadata": {"resourceVersion": str(position), "creationTimestamp": None},
    }
    if ends_list:
        item["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
    return orjson.dumps({"type": "BOOKMARK", "object": item}) + b"\n"
