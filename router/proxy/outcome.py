"""Outcome: everything that is worth telling about one request once it has ended."""

from __future__ import annotations

import time
from typing import Final

from router.auth.authorizer import Permit
from router.errors import RouterError
from router.proxy.wire.trace_context import Trace
from router.routing.endpoint import Endpoint

CLIENT_CLOSED: Final = 499
"""nginx's number: the client left before a response began."""


class Outcome:
    """One request or tunnel, filled in as it goes (mutable and slotted: it is made once a request).

    Durations are seconds, None where that step never happened; `started_at` is Unix time. Text from the client is kept as
    raw bytes: whoever prints it escapes it.
    """

    __slots__ = (
        "asked_namespace",
        "authz",
        "bytes_from_client",
        "bytes_to_client",
        "client",
        "code",
        "connect_s",
        "error_reason",
        "first_byte_s",
        "is_tunnel",
        "key_id",
        "method",
        "namespace",
        "path",
        "pod_uid",
        "port",
        "principal",
        "retries",
        "sandbox",
        "started_at",
        "status",
        "token_id",
        "total_s",
        "trace",
        "traceparent",
        "upstream_error",
        "used",
        "used_at",
        "wait_s",
        "woke",
    )

    def __init__(
        self,
        *,
        method: bytes,
        path: bytes,
        client: str,
        started_at: float,
        traceparent: bytes | None = None,
    ) -> None:
        self.method = method
        self.path = path
        """The request target as it came; the query is cut off where it is logged."""
        self.client = client
        """The client's address, found right to left through `trusted-proxies`."""
        self.started_at = started_at
        self.status = 0
        """The status sent; 499 when the client left before there was one; 0 never."""
        self.code = ""
        """The RouterError's code; "" when the sandbox answered; `client_closed`, `response_cut`, `stream_drained` or `tunnel_*` for other ends."""
        self.namespace = ""
        """The sandbox's namespace if the table knows it, else ""."""
        self.asked_namespace = ""
        """The namespace that the request named, known or not; "" when it named no sandbox."""
        self.sandbox = ""
        self.port = 0
        self.pod_uid = ""
        self.principal = ""
        self.token_id = ""
        """Who called, where the subject doesn't say it: the token's `jti`; and the `kid` of the key that verified it."""
        self.key_id = ""
        self.authz = ""
        """`allowed`, `public` (without a credential, by a public port), `denied`, `unauthenticated`, `unavailable` or "" (not reached)."""
        self.upstream_error = ""
        """A reason from UPSTREAM_ERRORS, "" when the sandbox did nothing wrong."""
        self.error_reason = ""
        """Detail for the log alone (an errno, an address)."""
        self.retries = 0
        self.is_tunnel = False
        self.woke = False
        """The request met a suspended sandbox, and woke it or waited for who did."""
        self.wait_s: float | None = None
        self.connect_s: float | None = None
        self.first_byte_s: float | None = None
        self.total_s = 0.0
        self.bytes_from_client = 0
        """Body (or tunnel) bytes."""
        self.bytes_to_client = 0
        self.traceparent = traceparent
        """As the sandbox is sent it: as it came, unless this request is traced here."""
        self.trace: Trace | None = None
        """None unless a span is made of this request."""
        self.used: Endpoint | None = None
        """The sandbox that this was activity of: it answered below 500, or the client left while it worked; else None."""
        self.used_at = 0.0
        """When (monotonic seconds) it was used last: the end, or what last crossed a tunnel but pings and pongs."""

    def ended(self, started_at: float, permit: Permit | None) -> None:
        """Notes the end of what began at `started_at` (monotonic seconds), and was activity of a sandbox if that responded well."""
        now = time.monotonic()
        self.total_s = now - started_at
        if not self.is_tunnel:
            self.used_at = now
        if self.first_byte_s is not None and self.status < 500 and permit is not None:
            self.used = permit.endpoint

    def client_left(self, permit: Permit | None, *, has_begun: bool) -> None:
        """Notes that the client left before it had its whole response, and while whose sandbox worked."""
        self.code = self.code or "client_closed"
        if not has_begun:
            self.status = CLIENT_CLOSED
            self.used = None if permit is None else permit.endpoint

    def refused(self, error: RouterError) -> None:
        """Notes an error response of the router's own."""
        self.code = error.code
        self.status = error.status
        self.authz = _AUTHZ_DECISIONS.get(error.code, self.authz)


_AUTHZ_DECISIONS: Final = {
    "forbidden": "denied",
    "cross_origin": "denied",
    "unauthenticated": "unauthenticated",
    "auth_unavailable": "unavailable",
}

WAKE_OUTCOMES = ("woken", "already", "not_ready", "gone", "limited", "refused", "unavailable")
"""How wakes end: ready by our call, or by someone else's; not ready in time; the sandbox is gone; no turn; the API says no, or nothing."""

UPSTREAM_ERRORS = (
    "connect_refused",
    "connect_timeout",
    "connect_unreachable",
    "connect_error",
    "resolve_error",
    "closed_early",
    "reset",
    "bad_response",
    "response_timeout",
    "response_cut",
)
"""The closed set of values of the label `reason` in sandbox_router_upstream_errors_total."""
