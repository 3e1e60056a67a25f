"""Settings: the frozen values that the whole router is built from, in groups.

The attribute is the setting's key with underscores; durations are float seconds and end in `_s`. What each means, its
default and its limits stand once, in `router.settings.table`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import NamedTuple


class Address(NamedTuple):
    """Where to listen. `host` is an IP literal without brackets, `localhost`, or "" for every address of both families."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who listens where; None = not at all."""

    http_bind: Address | None
    https_bind: Address | None
    extauthz_bind: Address | None
    admin_bind: Address | None
    workers: int


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificates of the TLS listener; `mtls` is `off`, `optional` or `required`."""

    tls_cert_file: Path | None
    tls_key_file: Path | None
    tls_client_ca_file: Path | None
    mtls: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """How sandboxes are found. `discovery` is `kubernetes`, `file` or `dns`; no `namespaces` means all of them."""

    discovery: str
    sandboxes_file: Path | None
    namespaces: tuple[str, ...]
    kubeconfig: Path | None
    cluster_domain: str
    trust_pod_ip_header: bool
    wait_for_ready_s: float
    waiting_room: int
    waiting_room_per_namespace: int
    waiting_room_per_caller: int
    max_staleness_s: float


@dataclass(frozen=True, slots=True)
class Routing:
    """How requests name sandboxes. `base_domain` is lower case, `path_prefix` has no trailing slash; "" = off."""

    base_domain: str
    path_prefix: str
    path_mode: str
    default_port: int
    default_namespace: str
    preserve_host: bool
    origin: str
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...]
    connect: bool
    strip_headers: tuple[str, ...]
    strip_cookies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Auth:
    """Who may call. `auth` is never empty: `("none",)` was said by somebody. `auth_grace_s` may be infinite."""

    auth: tuple[str, ...]
    jwt_secret_file: Path | None
    jwks_file: Path | None
    jwks_url: str | None
    jwks_ca_file: Path | None
    jwt_issuer: str | None
    jwt_audience: tuple[str, ...]
    jwt_leeway_s: float
    static_token_file: Path | None
    static_token: str | None = field(repr=False)
    token_review_audiences: tuple[str, ...]
    token_review_ttl_s: float
    token_review_stale_s: float
    identity_header: str | None
    groups_header: str | None
    cors_preflight: str
    policy_file: Path | None
    subject_access_review: bool
    auth_grace_s: float


@dataclass(frozen=True, slots=True)
class Browsers:
    """What people's browsers may do. `session_origins` are lower case, without a default port."""

    session_key_file: Path | None
    session_ttl_s: float
    session_origins: tuple[str, ...]
    session_iframe: bool
    session_path_mode: bool
    login_url: str | None
    public_ports: bool
    home: bool


@dataclass(frozen=True, slots=True)
class Waking:
    """Whether and how requests wake suspended sandboxes. `wake` is `off`, `annotated` or `all`; rates are a second."""

    wake: str
    wake_timeout_s: float
    wake_rate: int
    wake_rate_per_namespace: int
    wake_websockets: bool


@dataclass(frozen=True, slots=True)
class Time:
    """Deadlines in seconds; 0 = none, where the table allows 0."""

    header_timeout_s: float
    connect_timeout_s: float
    connect_budget_s: float
    proxy_timeout_s: float
    stream_idle_timeout_s: float
    keepalive_timeout_s: float
    tunnel_idle_timeout_s: float
    tunnel_max_lifetime_s: float
    awake_limit_s: float
    drain_delay_s: float
    shutdown_timeout_s: float


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of everything; 0 = no limit, where the table says so."""

    max_header_bytes: int
    max_request_line_bytes: int
    max_body_bytes: int
    max_connections: int
    max_handshakes: int
    max_buffered_bytes: int | None
    """None for `auto`, until the start has looked at the memory limit."""
    max_requests_per_sandbox: int
    max_tunnels_per_client: int
    connect_per_sandbox: int
    max_idle_upstream: int
    max_idle_upstream_total: int
    upstream_idle_timeout_s: float


@dataclass(frozen=True, slots=True)
class Logs:
    """What the router tells about itself."""

    access_log: bool
    log_level: str
    log_format: str
    tracing: bool
    metrics_namespaces: tuple[str, ...]
    """`("all",)`, `("none",)`, or those that have series of their own."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set, checked as a whole. Made by `router.settings.load` alone."""

    listeners: Listeners
    tls: Tls
    discovery: Discovery
    routing: Routing
    auth: Auth
    browsers: Browsers
    waking: Waking
    time: Time
    limits: Limits
    logs: Logs
