"""The closed tree of errors that the router answers with.

RouterError
├── BadRequest 400 ─ MissingSandboxId, InvalidSandboxId, InvalidNamespace, InvalidPort, InvalidPodIp, AmbiguousTarget
├── Unauthenticated 401, Forbidden 403 ─ CrossOrigin
├── SandboxNotFound 404 ─ SandboxReplaced;  NoSuchRouterPath 404, MethodNotAllowed 405;  SandboxSuspended 409;  SandboxFinished 410
├── RequestTimeout 408, BodyTooLarge 413, UriTooLong 414, Misdirected 421, TooManyRequests 429, WakeLimited 429, HeadersTooLarge 431
├── InternalError 500, MethodNotSupported 501, GrpcNotSupported 501, VersionNotSupported 505
├── SandboxUnreachable 502, BadResponse 502
├── SandboxNotReady 503, SandboxWaking 503, WakeUnavailable 503, IndexStale 503, AuthUnavailable 503, Overloaded 503, Draining 503
└── SandboxTimeout 504

Each class states its facts once; the table of docs/errors.md is what `python -m router.error_table` prints.
"""

from __future__ import annotations

from typing import ClassVar


class RouterError(Exception):
    """An answer that the router itself gives instead of the sandbox.

    `detail` is what the client reads; `reason` is what only the log gets (an address, an errno). Neither may hold a secret.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False
    retry_after_s: int | None = None
    """Set on the instance where more is known."""
    closes_connection: ClassVar[bool] = False
    """True when the client's framing is lost, so the connection can't carry another request."""
    default_detail: ClassVar[str] = "Internal error."
    advice: ClassVar[str] = ""
    """What a caller or operator should do; the last column of docs/errors.md."""

    def __init__(self, detail: str | None = None, *, reason: str = "") -> None:
        self.detail = self.default_detail if detail is None else detail
        self.reason = reason
        super().__init__(self.detail)


class InternalError(RouterError):
    """A bug in the router: logged with its traceback, never expected."""

    closes_connection = True
    advice = "Report it with the log line and its traceback."


# --- the request itself ---------------------------------------------------------------------


class BadRequest(RouterError):
    """The request is malformed or its framing is ambiguous (RFC 9112 §6.3, §11.2)."""

    status = 400
    code = "bad_request"
    default_detail = "Bad request."
    advice = "Fix the request; the detail says what was wrong."


class MalformedMessage(BadRequest):
    """The bytes are not an HTTP/1.1 message, so nothing behind them can be trusted either."""

    closes_connection = True


class MissingSandboxId(BadRequest):
    code = "missing_sandbox_id"
    default_detail = "X-Sandbox-ID header is required."
    advice = "Name the sandbox: by header, or by host or path where those are switched on."


class InvalidSandboxId(BadRequest):
    code = "invalid_sandbox_id"
    default_detail = "Invalid sandbox ID format."
    advice = "Use an RFC 1123 label: lower case letters, digits, inner hyphens; 1 to 63 of them."


class InvalidNamespace(BadRequest):
    code = "invalid_namespace"
    default_detail = "Invalid namespace format."
    advice = "Use an RFC 1123 label: lower case letters, digits, inner hyphens; 1 to 63 of them."


class InvalidPort(BadRequest):
    code = "invalid_port"
    default_detail = "Invalid port format."
    advice = "Use plain decimal digits, 1 to 65535."


class InvalidPodIp(BadRequest):
    code = "invalid_pod_ip"
    default_detail = "Invalid target IP address."
    advice = "Leave X-Sandbox-Pod-IP out, or send the pod's own unicast address."


class AmbiguousTarget(BadRequest):
    code = "ambiguous_target"
    default_detail = "The request names more than one sandbox."
    advice = "Name one sandbox, once."


class Unauthenticated(RouterError):
    status = 401
    code = "unauthenticated"
    default_detail = "Valid credentials are required."
    advice = "Send a valid credential for one of the configured authentication modes."
    challenge: str = 'Bearer realm="sandbox-router"'
    """The value of WWW-Authenticate (RFC 9110 §11.6.1); set on the instance where more is known."""
    basic_challenge: str = ""
    """A second challenge, on a line of its own: browsers read one challenge a line. "" where Basic would not help."""
    set_cookie: bytes = b""
    """Takes away the session cookie that was refused."""


class Forbidden(RouterError):
    status = 403
    code = "forbidden"
    default_detail = "Not allowed to call this sandbox."
    advice = "Ask for a grant on this sandbox; `/debug/route` shows which rule decided."


class CrossOrigin(Forbidden):
    """A browser added its user's session to what a page of another origin asked for."""

    code = "cross_origin"
    default_detail = "A page of another origin may not use this session."
    advice = "Open the sandbox's own page; list the origin in `session-origins` if its pages may do what the sandbox's own may."
    is_of_somebody_else: bool = False  # the session that is there


class SandboxNotFound(RouterError):
    status = 404
    code = "sandbox_not_found"
    default_detail = "Sandbox not found."
    advice = "Check name and namespace (`default-namespace` when the request names none); `/debug/sandboxes` lists what the router knows."

    @classmethod
    def in_namespace(cls, namespace: str, *, reason: str = "") -> SandboxNotFound:
        """Returns the error that says where the sandbox was looked for, to a caller who may know."""
        return cls(f"Sandbox not found in namespace {namespace}.", reason=reason)


class SandboxReplaced(SandboxNotFound):
    code = "sandbox_replaced"
    default_detail = "The sandbox of that name is not the one asked for."
    advice = "The UID in X-Sandbox-UID is gone: look the sandbox up again."


class NoSuchRouterPath(RouterError):
    """Under the router's own prefix, which no sandbox sees, there is nothing of this name."""

    status = 404
    code = "router_path_not_found"
    default_detail = (
        "Paths under /.sandbox-router/ are the router's own, and there is none of this name."
    )
    advice = "Check the path and the router's version; give the app another path."


class MethodNotAllowed(RouterError):
    """One of the router's own paths takes other methods (RFC 9110 §15.5.6)."""

    status = 405
    code = "method_not_allowed"
    default_detail = "This path of the router's own takes another method."
    advice = "Use the method that the header Allow names."

    def __init__(self, detail: str | None = None, *, allow: str = "POST", reason: str = "") -> None:
        super().__init__(detail, reason=reason)
        self.allow = allow


class SandboxSuspended(RouterError):
    status = 409
    code = "sandbox_suspended"
    default_detail = "The sandbox is suspended."
    advice = "Resume it (spec.operatingMode: Running), then try again; with `wake` on, the log's `error_reason` and `/debug/route` say why the request did not wake it."


class SandboxFinished(RouterError):
    status = 410
    code = "sandbox_finished"
    default_detail = "The sandbox has finished."
    advice = "It will not come back: create a new one."


class RequestTimeout(RouterError):
    status = 408
    code = "request_timeout"
    closes_connection = True
    retryable = True
    default_detail = "The request did not arrive in time."
    advice = "Send the head within `header-timeout`, and keep a body moving within `stream-idle-timeout`."


class BodyTooLarge(RouterError):
    status = 413
    code = "body_too_large"
    default_detail = "The request body is too large."
    advice = "Send less, or raise `max-body-bytes`."


class UriTooLong(RouterError):
    status = 414
    code = "uri_too_long"
    closes_connection = True
    default_detail = "The request line is too long."
    advice = "Shorten the URL, or raise `max-request-line-bytes`."


class Misdirected(RouterError):
    status = 421
    code = "misdirected"
    default_detail = "This host name does not name a sandbox."

    @classmethod
    def for_domain(cls, base_domain: str) -> Misdirected:
        """Returns the error that says how a sandbox is named; nothing else in the request named one either."""
        return cls(
            f"{cls.default_detail} Use the host <port>-<name>.{base_domain} or "
            f"<port>-<name>--<namespace>.{base_domain}, or the header X-Sandbox-ID."
        )

    advice = "Use `<port>-<name>.<base-domain>` or `<port>-<name>--<namespace>.<base-domain>`."


class TooManyRequests(RouterError):
    status = 429
    code = "too_many_requests"
    retryable = True
    retry_after_s = 1
    default_detail = "Too many open requests."
    advice = "Wait for open requests to end, or raise the limit that the detail names."


class WakeLimited(RouterError):
    status = 429
    code = "wake_limited"
    retryable = True
    retry_after_s = 5
    default_detail = "Too many sandboxes are being woken at the moment."
    advice = "Try again; if it lasts, raise `wake-rate` or `wake-rate-per-namespace`, or find out who wakes so many."


class HeadersTooLarge(RouterError):
    status = 431
    code = "headers_too_large"
    closes_connection = True
    default_detail = "The request header block is too large."
    advice = "Send fewer or shorter headers, or raise `max-header-bytes`."


class MethodNotSupported(RouterError):
    status = 501
    code = "method_not_supported"
    closes_connection = True  # behind a CONNECT come bytes of another protocol
    default_detail = "CONNECT and TRACE are not supported."
    advice = "Use another method. A client that sends CONNECT takes the router for a forward proxy: see its HTTPS_PROXY."


class GrpcNotSupported(RouterError):
    """gRPC over HTTP/1: a front has taken the HTTP/2 away that it needs."""

    status = 501
    code = "grpc_not_supported"
    closes_connection = True
    default_detail = "gRPC needs HTTP/2 all the way, and only HTTP/1 is spoken here."
    advice = (
        "Give gRPC a way that is HTTP/2 end to end, for example through Envoy; gRPC-Web passes."
    )


class VersionNotSupported(RouterError):
    status = 505
    code = "version_not_supported"
    closes_connection = True
    default_detail = "Only HTTP/1.1 and HTTP/1.0 are spoken here."
    advice = "Speak HTTP/1.1, or put an HTTP/2 front such as Envoy before the router."


# --- the sandbox's side ---------------------------------------------------------------------


class SandboxUnreachable(RouterError):
    """No connection could be made, or it ended before an answer began."""

    status = 502
    code = "sandbox_unreachable"
    retryable = True
    default_detail = "Could not connect to the backend sandbox"
    advice = "Check that the app listens on the port asked for, on 0.0.0.0, and that NetworkPolicies admit the router."

    @classmethod
    def of(cls, sandbox_name: str, *, reason: str = "") -> SandboxUnreachable:
        """Returns the error with the detail that existing clients match on."""
        return cls(f"{cls.default_detail}: {sandbox_name}", reason=reason)


class BadResponse(RouterError):
    """The sandbox's bytes are not an HTTP/1.1 response."""

    status = 502
    code = "bad_response"
    default_detail = "The sandbox sent an invalid response."
    advice = "Check that an HTTP/1.1 server listens on that port; the log says what was wrong."


class SandboxNotReady(RouterError):
    status = 503
    code = "sandbox_not_ready"
    retryable = True
    retry_after_s = 2
    default_detail = "The sandbox is not ready yet."
    advice = "Try again; if it lasts, look at the pod's events and readiness probe."


class SandboxWaking(RouterError):
    """The sandbox is on its way back, and the request's time to wait for it is over."""

    status = 503
    code = "sandbox_waking"
    retryable = True
    retry_after_s = 2
    default_detail = "The sandbox is waking up."
    advice = "Try again. If it lasts, look at the pod's events: a sandbox that needs longer than `wake-timeout` needs a faster start, or more time."
    page_about: str = ""
    """The sandbox that a person's browser is shown a page about, which loads itself again; "" for everyone else."""


class WakeUnavailable(RouterError):
    """The API server refused the wake, or is away: it is tried again with back-off, not for each request."""

    status = 503
    code = "wake_unavailable"
    retryable = True
    retry_after_s = 5
    default_detail = "The sandbox cannot be woken at the moment."
    advice = "The log has the API server's reason. The router needs the right to `patch` `sandboxes`, and no admission policy that refuses it."


class IndexStale(RouterError):
    status = 503
    code = "index_stale"
    retryable = True
    retry_after_s = 5
    default_detail = "The router's table of sandboxes is too old to be trusted."
    advice = "The table isn't complete yet, or older than `max-staleness`: see `/readyz`, and whether the Kubernetes API can be reached."


class AuthUnavailable(RouterError):
    status = 503
    code = "auth_unavailable"
    retryable = True
    retry_after_s = 2
    default_detail = "Credentials cannot be checked at the moment."
    advice = "Check that the router reaches the Kubernetes API or the key server."


class ReviewRefused(AuthUnavailable):
    """The API server answered that this router may not ask: waiting doesn't help, a right does."""

    advice = "Give the router's ServiceAccount the right to create the review that the log names."


class Overloaded(RouterError):
    status = 503
    code = "overloaded"
    closes_connection = True
    retryable = True
    retry_after_s = 1
    default_detail = "The router has too many connections."
    advice = "Add replicas, or raise `max-connections`."


class Draining(RouterError):
    status = 503
    code = "draining"
    closes_connection = True
    retryable = True
    retry_after_s = 1
    default_detail = "This router is shutting down."
    advice = "Try again: another replica will answer."


class SandboxTimeout(RouterError):
    """The sandbox accepted the request and did not begin to answer in time."""

    status = 504
    code = "sandbox_timeout"
    retryable = True
    default_detail = "Timed out waiting for the backend sandbox"
    advice = "Raise X-Sandbox-Timeout or `proxy-timeout`, or look at what the app is doing."

    @classmethod
    def of(cls, sandbox_name: str, *, reason: str = "") -> SandboxTimeout:
        """Returns the error with the detail that existing clients match on."""
        return cls(f"{cls.default_detail}: {sandbox_name}", reason=reason)
