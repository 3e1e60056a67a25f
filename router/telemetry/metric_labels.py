"""The values of metrics' labels, each a closed set, with the bounds of the histograms' buckets."""

from __future__ import annotations

from collections.abc import Iterator

from router.auth.verifier import Reason
from router.errors import RouterError
from router.routing.endpoint import State
from router.routing.names import Unresolved

OTHER = "other"
UNKNOWN = "unknown"
NAMESPACE_LABEL = "sandbox_namespace"


def _error_codes(kind: type[RouterError] = RouterError) -> Iterator[str]:
    for child in kind.__subclasses__():
        yield child.code
        yield from _error_codes(child)


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ROUTER_ERROR_CODES = tuple(sorted(set(_error_codes())))
OUTCOMES = ("success", "failure")
AUTHZ_DECISIONS = ("allow", "public", "deny", "unauthenticated", "unavailable")
AUTH_MODES = (
    "none",
    "static",
    "jwt",
    "token-review",
    "mtls",
    "forwarded",
    "session",
    "home-link",
    "home",
    "link",
    OTHER,
)
AUTH_FAILURE_REASONS = (*(reason.value for reason in Reason), OTHER)
SANDBOX_STATES = tuple(state.value for state in State)
INDEX_EVENTS = ("reported", "evicted")
WATCHED_RESOURCES = ("pods", "sandboxes", "sandboxclaims", OTHER)
WATCH_RESTART_REASONS = (
    "ended",
    "expired",
    "timeout",
    "connection",
    "unauthorized",
    "forbidden",
    "throttled",
    "server_error",
    "bad_event",
    OTHER,
)
SETTING_OF_SOURCE = {
    "sandboxes": "sandboxes-file",
    "policy": "policy-file",
    "jwt_secret": "jwt-secret-file",
    "session_key": "session-key-file",
    "jwks": "jwks-file",
    "jwks_ca": "jwks-ca-file",
    "jwks_url": "jwks-url",
    "static_token": "static-token-file",
    "tls_cert": "tls-cert-file",
}
"""What is read again and again, by its name in the code: the setting that names it, which is its label."""
RELOADED_FILES = (*SETTING_OF_SOURCE.values(), OTHER)
CERTIFICATE_FILES = ("tls-cert-file", "tls-client-ca-file")
CONNECT_OUTCOMES = (
    "connected",
    "refused",
    "timeout",
    "unreachable",
    "error",
    "resolve_error",
    "abandoned",
)
DNS_OUTCOMES = ("answered", *(why.value for why in Unresolved), "given_up")
POOL_STATES = ("idle", "active")
LOG_LOSSES = ("repeated", "not_taken")
SPAN_OUTCOMES = ("exported", "failed", "dropped")

# The upper bounds of the router it replaces, so dashboards keep their `le`; finer at the low end.
REQUEST_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0),
)
FIRST_BYTE_BUCKETS_S = REQUEST_BUCKETS_S
CONNECT_BUCKETS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
DNS_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
WAKE_BUCKETS_S = (0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0)
WAIT_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)
