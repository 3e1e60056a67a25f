"""What a request's span says: OpenTelemetry's names for HTTP servers, and ours for sandboxes.

Pure, without OpenTelemetry. Never the query, a header's value, or who called: traces leave the cluster.
"""

from __future__ import annotations

import re
from typing import Final

from router.proxy.request import Outcome
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead
from router.telemetry.escaping import path_of, printable, printable_path

Attributes = dict[str, str | int | bool]

_METHODS: Final = {
    method.encode(): method
    for method in (
        *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
        *("TRACE", "CONNECT", "QUERY"),
    )
}
_CUT: Final = frozenset({"response_cut", "tunnel_cut"})
"""Ends that are failures although a good status was out already."""
_PATH_LIMIT: Final = 1024
_TEXT_LIMIT: Final = 256
_METHOD_LIMIT: Final = 32
_MAX_STATE_ENTRIES: Final = 32

# W3C Trace Context §3.3.1.3: key=value.
_STATE_ENTRY = re.compile(
    r"([a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=([\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e])"
)


def span_name(method: bytes) -> str:
    """Returns a name of which there are only a few."""
    return f"{_METHODS.get(method, 'HTTP')} sandbox"


def of_request(head: RequestHead, peer: Peer, outcome: Outcome) -> Attributes:
    """Returns the attributes of an ended request; text from outside is printable and bounded."""
    found: Attributes = {
        "http.request.method": _METHODS.get(outcome.method, "_OTHER"),
        "url.scheme": _scheme(head, peer),
        "url.path": printable_path(path_of(outcome.path), _PATH_LIMIT),
        "network.protocol.version": "1.0" if head.version == 10 else "1.1",
        "client.address": printable(outcome.client, _TEXT_LIMIT),
    }
    if outcome.method not in _METHODS:
        method = outcome.method.decode("latin-1")
        found["http.request.method_original"] = printable(method, _METHOD_LIMIT)
    if outcome.status:
        found["http.response.status_code"] = outcome.status
    _add_server(found, head, peer)
    _add_sandbox(found, outcome)
    _add_end(found, outcome)
    return found


def is_error(outcome: Outcome) -> bool:
    """Returns True when the server failed; a client's mistake or leaving is no error of a server's span."""
    return outcome.status >= 500 or outcome.code in _CUT


def description(outcome: Outcome) -> str | None:
    """Returns the reason of an error for people, None when there is no more to say than its code."""
    return printable(outcome.error_reason, _TEXT_LIMIT) if outcome.error_reason else None


def state_entries(state: str) -> list[tuple[str, str]]:
    """Returns a tracestate's entries, [] for a malformed one: what a client sends must not fill the log with warnings."""
    entries: dict[str, str] = {}
    for member in state.split(","):
        member = member.strip(" \t")
        if not member:
            continue
        match = _STATE_ENTRY.fullmatch(member)
        if match is None or match[1] in entries or len(entries) == _MAX_STATE_ENTRIES:
            return []
        entries[match[1]] = match[2]
    return list(entries.items())


def _scheme(head: RequestHead, peer: Peer) -> str:
    if peer.is_trusted and head.forwarded_proto in (b"http", b"https"):
        return head.forwarded_proto.decode()
    return "https" if peer.is_tls else "http"


def _add_server(found: Attributes, head: RequestHead, peer: Peer) -> None:
    """Adds the name that the client called, a trusted proxy's word for it first."""
    called = (head.forwarded_host if peer.is_trusted else None) or head.host
    name, colon, port = called.partition(b",")[0].strip(b" \t").rpartition(b":")
    if not colon or name.endswith(b":") or port.endswith(b"]"):  # no port, or colons of IPv6
        name, port = name + colon + port, b""
    if name:
        found["server.address"] = printable(name.strip(b"[]").decode("latin-1"), _TEXT_LIMIT)
    if port.isdigit() and len(port) <= 5:
        found["server.port"] = int(port)


def _add_sandbox(found: Attributes, outcome: Outcome) -> None:
    namespace = outcome.asked_namespace or outcome.namespace
    if namespace:
        found["sandbox.namespace"] = namespace
    if outcome.sandbox:
        found["sandbox.name"] = outcome.sandbox
    if outcome.port:
        found["sandbox.port"] = outcome.port
    if outcome.pod_uid:
        found["sandbox.pod_uid"] = outcome.pod_uid


def _add_end(found: Attributes, outcome: Outcome) -> None:
    """Adds how it ended, in the words of the access log."""
    found["sandbox_router.bytes_from_client"] = outcome.bytes_from_client
    found["sandbox_router.bytes_to_client"] = outcome.bytes_to_client
    if outcome.is_tunnel:
        found["sandbox_router.is_tunnel"] = True
    if outcome.retries:
        found["sandbox_router.retries"] = outcome.retries
    if outcome.code:
        found["sandbox_router.code"] = outcome.code
    if is_error(outcome):
        found["error.type"] = outcome.code or str(outcome.status)
