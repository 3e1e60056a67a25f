"""UsualLines: the access log's line of an ordinary request, from a template: about half the cost of making it field by field.

Ordinary is what the sandbox answered and in which no text needs escaping; all other lines are AccessLog's own.
"""

from __future__ import annotations

from typing import Final

import orjson

from router.proxy.request import Outcome

MOST_BYTES: Final = 768
"""A longer line may hold a field over its limit."""

_MAX_KNOWN: Final = 4096
_METHODS: Final = {
    method.encode(): method
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
}
_PLAIN_PATH: Final = bytes(set(range(0x21, 0x7F)) - set(b'"\\?#'))
_QUOTE, _BACKSLASH, _DELETE = 0x22, 0x5C, 0x7F
_MILLION: Final = 1_000_000

Who = tuple[str, str, str, str, int, str, str, str]
"""Client, principal, namespace, sandbox, port, pod UID, token id, key id: the same for many requests."""


class UsualLines:
    """Makes lines of ordinary requests; remembers how who calls what is written."""

    def __init__(self) -> None:
        self._known: dict[Who, tuple[str, str] | None] = {}

    def __repr__(self) -> str:
        return f"<UsualLines known={len(self._known)}>"

    def line(self, outcome: Outcome, time_text: str, trace_id: str) -> bytes | None:
        """Returns the line with its line feed, None for a request that isn't ordinary."""
        path, first_byte_s = outcome.path.partition(b"?")[0], outcome.first_byte_s
        method = _METHODS.get(outcome.method)
        if (
            outcome.code
            or outcome.error_reason
            or outcome.upstream_error
            or outcome.woke
            or outcome.authz == "public"
            or first_byte_s is None
            or method is None
            or not path.startswith(b"/")
            or path.translate(None, _PLAIN_PATH)
        ):
            return None
        who = (
            outcome.client,
            outcome.principal,
            outcome.asked_namespace or outcome.namespace,
            outcome.sandbox,
            outcome.port,
            outcome.pod_uid,
            outcome.token_id,
            outcome.key_id,
        )
        try:
            written = self._known[who]
        except KeyError:
            written = self._learn(who)
        if written is None:
            return None
        line = (
            f'{{"time":"{time_text}","method":"{method}","path":"{path.decode("latin-1")}",'
            f'"status":{outcome.status},"code":"","total_s":{_seconds(outcome.total_s)},'
            f'"wait_s":{_seconds(outcome.wait_s)},"connect_s":{_seconds(outcome.connect_s)},'
            f'"first_byte_s":{_seconds(first_byte_s)},"bytes_from_client":{outcome.bytes_from_client},'
            f'"bytes_to_client":{outcome.bytes_to_client},{written[0]},"trace_id":"{trace_id}",'
            f'"retries":{outcome.retries},"upstream_error":""{written[1]}}}\n'
        )
        return line.encode() if len(line) <= MOST_BYTES else None

    def _learn(self, who: Who) -> tuple[str, str] | None:
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        written = self._known[who] = _written(who)
        return written


def _written(who: Who) -> tuple[str, str] | None:
    """Returns the fields in the middle of a line and at its end, None when a text needs more care than JSON's quotes."""
    client, principal, namespace, sandbox, port, pod_uid, token_id, key_id = who
    try:
        middle = orjson.dumps(
            {
                "client": client,
                "principal": principal,
                "namespace": namespace,
                "sandbox": sandbox,
                "port": port,
                "pod_uid": pod_uid,
            }
        )
        ids = {"token_id": token_id, "key_id": key_id}
        end = orjson.dumps({name: value for name, value in ids.items() if value})
    except orjson.JSONEncodeError:
        return None
    for text in (middle, end):
        if not text.isascii() or _BACKSLASH in text or _DELETE in text:
            return None
    return middle[1:-1].decode(), "," + end[1:-1].decode() if len(end) > len(b"{}") else ""


def _seconds(duration_s: float | None) -> str:
    """Returns a duration cut to microseconds, as JSON."""
    if duration_s is None:
        return "null"
    micros = int(duration_s * 1e6)
    return f"0.{micros:06d}" if micros < _MILLION else repr(micros / 1e6)
