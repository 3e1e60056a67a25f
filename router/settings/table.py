"""The one table of settings: flags, variables, YAML keys, checks, help and docs/configuration.md all come from it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from router.settings import places, values
from router.settings.groups import Settings
from router.settings.values import Kind

PREFIX = "SANDBOX_ROUTER_"
CONFIG_FLAG = "--config"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")
"""How the value of a variable begins that Kubernetes made for a Service's port."""

STATIC_TOKEN_VARIABLE = "ROUTER_AUTH_TOKEN"  # noqa: S105 - a variable's name
OPEN_DOOR_VARIABLE = "ALLOW_UNAUTHENTICATED_ROUTER"

MODES = ("jwt", "static", "token-review", "mtls", "forwarded", "none")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: `default` as a user would write it, None where there is none and the rules decide."""

    group: str
    key: str
    kind: Kind
    default: str | None
    help: str
    shown_default: str = ""
    """For people, where `default` is None or empty."""
    legacy: tuple[str, ...] = ()
    """Variables of older deployments that set the same thing; `SANDBOX_ROUTER_*` wins over them."""
    secret: bool = False
    """Read from `legacy` alone: flags show in the process list, files get committed. Never shown."""

    @property
    def attribute(self) -> str:
        """The name in its group of Settings."""
        name = self.key.replace("-", "_")
        return f"{name}_s" if self.kind.name == "duration" else name

    @property
    def flag(self) -> str:
        return f"--{self.key}"

    @property
    def variable(self) -> str:
        return PREFIX + self.key.replace("-", "_").upper()

    @property
    def default_text(self) -> str:
        """The default as documentation shows it."""
        return self.shown_default or self.default or "off"

    def value_in(self, settings: Settings) -> Any:
        """Returns this setting's value."""
        return getattr(getattr(settings, self.group), self.attribute)


# A table is read by its rows, so each stays on one line.
# fmt: off

_row = partial(Setting, "listeners")
LISTENERS = (
    _row("http-bind", places.bind(), ":8080", "Where clients connect without TLS."),
    _row("https-bind", places.bind(), "off", "Where clients connect with TLS; usually `:8443`. Needs a certificate and its key."),
    _row("extauthz-bind", places.bind(), "off", "Where Envoy asks whether a request may pass and where to, by ext_authz over HTTP (envoy.md). For your Envoy alone: a yes tells a pod's address."),
    _row("admin-bind", places.bind(), ":9090", "Metrics, probes and debug pages. Never expose it outside the cluster."),
    _row("workers", values.worker_count(most=256), "1", "Processes that serve; `auto` = one for each core that the router may use."),
)

_row = partial(Setting, "tls")
TLS = (
    _row("tls-cert-file", places.file_path(), "off", "The server certificate with its chain (PEM). Reloaded when it changes."),
    _row("tls-key-file", places.file_path(), "off", "The certificate's private key (PEM). Reloaded when it changes."),
    _row("tls-client-ca-file", places.file_path(), "off", "The authorities that sign client certificates (PEM). Reloaded when it changes."),
    _row("mtls", values.choice("off", "optional", "required"), "off", "Whether a client certificate is asked for, or demanded, on `https-bind`."),
)

_row = partial(Setting, "discovery")
DISCOVERY = (
    _row("discovery", values.choice("kubernetes", "file", "dns"), None, "How sandboxes are found: by a watch, from `sandboxes-file`, or by DNS without any API access.", shown_default="`kubernetes` in a cluster; elsewhere none, it must be said"),
    _row("sandboxes-file", places.file_path(), "off", "The YAML list of sandboxes for `discovery: file`. Reloaded when it changes."),
    _row("namespaces", places.labels(), "", "The namespaces to watch; Roles suffice for a list, all need a ClusterRole.", shown_default="all"),
    _row("kubeconfig", places.file_path(), "off", "How to reach the Kubernetes API from outside of a cluster.", legacy=("KUBECONFIG",)),
    _row("cluster-domain", places.domain(optional=False), "cluster.local", "The cluster's DNS domain, for `discovery: dns`.", legacy=("CLUSTER_DOMAIN",)),
    _row("trust-pod-ip-header", values.boolean(), "false", "Dial the address in `X-Sandbox-Pod-IP`. Only with `discovery: dns`, only for callers you trust with the network."),
    _row("wait-for-ready", values.duration(), "10s", "How long a request waits for a sandbox that is starting; 0 = not at all."),
    _row("waiting-room", values.integer(most=10**6), "1024", "Requests that may wait for starting sandboxes at once; 0 = none."),
    _row("waiting-room-per-namespace", values.integer(most=10**6), "256", "The same for one namespace, so that one tenant can't fill the room; 0 = none."),
    _row("waiting-room-per-caller", values.integer(most=10**6), "256", "The same for one caller, in all namespaces together; 0 = none. Callers of `auth: none` and of the shared token are not told apart, and have no such bound."),
    _row("max-staleness", values.duration(), "0", "Answer 503 when the API server has not been heard of for so long; 0 = serve the last known table for ever."),
)

_row = partial(Setting, "routing")
ROUTING = (
    _row("base-domain", places.domain(optional=True), "off", "Switches on host names `<port>-<name>[--<namespace>].<base-domain>`."),
    _row("path-prefix", places.path_prefix(), "off", "Switches on paths `<prefix>/<namespace>/<name>/<port>/...`."),
    _row("path-mode", values.choice("strip", "keep"), "strip", "Whether an app that is reached by path sees the path without `<prefix>/<namespace>/<name>/<port>` (then told in `X-Forwarded-Prefix`) or as it came; a Sandbox's annotation `router.agents.x-k8s.io/path-mode` wins."),
    _row("default-port", values.integer(least=1, most=65535), "8888", "The sandbox's port when the request names none."),
    _row("default-namespace", places.label(), "default", "The sandbox's namespace when the request names none."),
    _row("preserve-host", values.boolean(), "false", "Hand the client's Host on instead of the pod's address."),
    _row("origin", values.choice("rewrite", "keep", "drop"), "rewrite", "What becomes of an Origin that is the sandbox's own address as the client used it; `rewrite` makes it match the Host that the app sees, as Jupyter and Django demand. Any other Origin is never changed."),
    _row("trusted-proxies", places.network(), "", "Networks of proxies whose X-Forwarded headers are believed and appended to.", shown_default="none", legacy=("TRUSTED_PROXY_CIDRS",)),
    _row("connect", values.boolean(), "false", "Whether `GET /.sandbox-router/tcp` as a WebSocket becomes a TCP connection to the sandbox's port, for callers whose grant says `methods: [CONNECT]` and that port ([connect.md](connect.md))."),
    _row("strip-headers", values.header_names(), "", "Request headers that no sandbox is sent, such as those in which a front says who signed in; `*` at the end of a name stands for anything.", shown_default="none"),
    _row("strip-cookies", values.cookie_names(), "", "Cookies that no sandbox is sent, such as a front's session; `*` at the end of a name stands for anything.", shown_default="none"),
)

_row = partial(Setting, "auth")
AUTH = (
    _row("auth", values.choices(*MODES), None, "Who may call: one or several of the modes, or `none` alone, which lets every caller reach every sandbox.", shown_default="required"),
    _row("jwt-secret-file", places.file_path(), "off", "Keys for `jwt`: shared secrets of 32 bytes or more, or PEM public keys. Reloaded when it changes."),
    _row("jwks-file", places.file_path(), "off", "Keys for `jwt` as a JSON Web Key Set. Reloaded when it changes."),
    _row("jwks-url", places.key_url(), "off", "Keys for `jwt` as a JSON Web Key Set to fetch; https, or http on this machine."),
    _row("jwks-ca-file", places.file_path(), "off", "The authorities that sign the certificate behind `jwks-url` (PEM), instead of the system's. Reloaded when it changes."),
    _row("jwt-issuer", values.text(metavar="ISSUER"), "", "The `iss` that a token must carry.", shown_default="any"),
    _row("jwt-audience", values.texts(metavar="AUDIENCE"), "", "The `aud` that a token must carry; any of the list.", shown_default="any"),
    _row("jwt-leeway", values.duration(longest_s=3600), "30s", "How far clocks may differ when `exp`, `nbf` and `iat` are checked; 0 = not at all."),
    _row("static-token-file", places.file_path(), "off", "The shared token of the mode `static`. Reloaded when it changes."),
    _row("static-token", values.text(metavar="TOKEN"), "", "The shared token itself. Alone it switches the mode `static` on.", shown_default="none", legacy=(STATIC_TOKEN_VARIABLE,), secret=True),
    _row("token-review-audiences", values.texts(metavar="AUDIENCE"), "", "Audiences that a Kubernetes token must be for.", shown_default="the API server's own"),
    _row("token-review-ttl", values.duration(longest_s=3600), "30s", "How long an answer of the TokenReview or SubjectAccessReview API is believed; 0 = asked each time."),
    _row("token-review-stale", values.duration(longest_s=86400), "5m", "How much longer a yes of these APIs is believed while the API server does not answer; 0 = not at all."),
    _row("identity-header", values.header_name(), "off", "The header in which a proxy in front says who has signed in, for `forwarded`: such as `X-Auth-Request-Email`. Believed of `trusted-proxies` alone, and no sandbox is sent it."),
    _row("groups-header", values.header_name(), "off", "The header in which it says that person's groups, a list with commas; likewise."),
    _row("cors-preflight", values.choice("off", "pass"), "off", "Whether a CORS preflight, which browsers send without a credential, goes to the sandbox all the same: unauthenticated, without body and cookies. `pass` lets anyone learn which sandboxes exist, and send them OPTIONS."),
    _row("policy-file", places.file_path(), "off", "Grants for principals (YAML), revoked tokens. Reloaded when it changes."),
    _row("subject-access-review", values.boolean(), "false", "Ask Kubernetes RBAC whether the caller may `connect` `sandboxes/proxy`."),
    _row("auth-grace", values.duration(off_s=math.inf), "60s", "How long an open stream or tunnel outlives its credential; 0 = not at all; `off` = it isn't ended."),
)

_row = partial(Setting, "browsers")
BROWSERS = (
    _row("session-key-file", places.file_path(), "off", "Switches sessions on: secrets of 32 bytes or more, one a line, by which session cookies are signed; the first signs, all verify. The same for every replica. Reloaded when it changes."),
    _row("session-ttl", values.duration(zero=False, longest_s=30 * 24 * 3600), "8h", "How long a session lasts; a link may ask for less."),
    _row("session-origins", places.origins(), "", "Other origins whose pages may use a session as the sandbox's own pages do, such as that of a platform that shows sandboxes.", shown_default="none"),
    _row("session-iframe", values.boolean(), "false", "Whether a session works in a frame in another site's page (cookie with `SameSite=None; Partitioned`)."),
    _row("session-path-mode", values.boolean(), "false", "Whether sandboxes that are named by path have sessions too. They share one origin, so each one's pages can use the others' sessions."),
    _row("login-url", places.page_url(), "off", "Where a person's browser without a credential is sent (303) to sign in, with the address to come back to as `rd`. Everything that isn't a person opening a page gets 401."),
    _row("public-ports", values.boolean(), "false", "Whether everybody may call, without a credential, the ports that a Sandbox's annotation `router.agents.x-k8s.io/public-ports` opens."),
    _row("home", values.boolean(), "false", "Whether the base domain itself shows people the sandboxes that they may open."),
)

_row = partial(Setting, "waking")
WAKING = (
    _row("wake", values.choice("off", "annotated", "all"), "off", "Which suspended Sandboxes a request wakes: none, those with the annotation `router.agents.x-k8s.io/wake: on-request`, or all. Only with `discovery: kubernetes`."),
    _row("wake-timeout", values.duration(zero=False, longest_s=3600), "60s", "How long a request may wait for a sandbox that wakes, within its own time."),
    _row("wake-rate", values.integer(least=1, most=10**4), "20", "Wakes a second that each router begins, with bursts of twice as many."),
    _row("wake-rate-per-namespace", values.integer(least=1, most=10**4), "5", "The same for one namespace, so that one tenant's sandboxes don't take every turn."),
    _row("wake-websockets", values.boolean(), "false", "Whether a WebSocket or another upgrade wakes too. With it, a forgotten browser tab that reconnects keeps its sandbox up."),
)

_row = partial(Setting, "time")
TIME = (
    _row("header-timeout", values.duration(), "10s", "How long a request head may take to arrive, and how long a new connection may ask for nothing; 0 = no limit."),
    _row("connect-timeout", values.duration(zero=False), "5s", "How long one attempt to connect to a sandbox may take."),
    _row("connect-budget", values.duration(zero=False), "10s", "How long all attempts to connect may take together."),
    _row("proxy-timeout", values.duration(), "180s", "How long the sandbox may take to begin its answer; caps `X-Sandbox-Timeout`; 0 = no limit.", legacy=("PROXY_TIMEOUT_SECONDS",)),
    _row("stream-idle-timeout", values.duration(), "300s", "How long a request or answer that has begun may go without a byte in either direction; 0 = no limit."),
    _row("keepalive-timeout", values.duration(), "620s", "How long an idle client connection is kept for its next request; keep it above the load balancer's own; 0 = no limit."),
    _row("tunnel-idle-timeout", values.duration(), "1h", "How long a WebSocket or other upgrade may go without a byte in either direction; 0 = no limit.", legacy=("WEBSOCKET_IDLE_TIMEOUT_SECONDS",)),
    _row("tunnel-max-lifetime", values.duration(), "24h", "How long a WebSocket or other upgrade may last as a whole; 0 = no limit.", legacy=("WEBSOCKET_MAX_LIFETIME_SECONDS",)),
    _row("awake-limit", values.duration(longest_s=30 * 24 * 3600), "12h", "How long `POST /.sandbox-router/awake` may keep a sandbox awake at a time; 0 = not at all."),
    _row("drain-delay", values.duration(longest_s=3600), "5s", "How long the router still serves after SIGTERM while it says that it is not ready, so that load balancers notice; 0 = not at all."),
    _row("shutdown-timeout", values.duration(zero=False, longest_s=24 * 3600), "30s", "How long open requests and tunnels have to end after `drain-delay`; keep the pod's grace period above the sum of both."),
)

_row = partial(Setting, "limits")
LIMITS = (
    _row("max-header-bytes", values.byte_size(least=256, most=16 * 2**20), "65536", "The largest request head (more is 431) and response head (more is 502)."),
    _row("max-request-line-bytes", values.byte_size(least=128, most=16 * 2**20), "16384", "The longest request line; more is 414. Where `max-header-bytes` is smaller, that is the limit."),
    _row("max-body-bytes", values.byte_size(least=0, zero_is_off=True), "0", "The largest request body; more is 413; 0 = no limit."),
    _row("max-connections", values.integer(least=1, most=10**7), "10000", "Client connections at once, of all workers together; a TLS handshake counts as one. For one more, a connection that has never asked for anything is closed, else the longest idle; when all are busy it is refused with 503."),
    _row("max-handshakes", values.integer(least=1, most=10**6), "1000", "TLS handshakes that are worked on at once, of some 60 KiB each. More clients wait for their turn, and a handshake that takes longer than two seconds ends then. Each of several workers has its part."),
    _row("max-buffered-bytes", values.byte_size_or_auto(least=2**20), "auto", "What all connections together may hold in memory: bytes that one side has sent and the other doesn't take, and unfinished heads. Over it large transfers take turns, and who holds without moving is ended; `auto` = a quarter of the container's memory limit, 256 MiB without one."),
    _row("max-requests-per-sandbox", values.integer(most=10**7, zero_is_off=True), "0", "Open requests to one sandbox; more is 429; 0 = no limit."),
    _row("max-tunnels-per-client", values.integer(most=10**7, zero_is_off=True), "0", "Open WebSockets and other upgrades of one client; more is 429; 0 = no limit.", legacy=("WEBSOCKET_MAX_CONNECTIONS_PER_CLIENT",)),
    _row("connect-per-sandbox", values.integer(most=10**7, zero_is_off=True), "32", "Open TCP connections to one sandbox that `connect` has made; more is 429; 0 = no limit."),
    _row("max-idle-upstream", values.integer(most=10**6), "64", "Idle connections kept for each sandbox, more while its recent use needs them; 0 = connect anew each time.", legacy=("MAX_KEEPALIVE_CONNECTIONS",)),
    _row("max-idle-upstream-total", values.integer(least=1, most=10**6), "4096", "Idle connections to all sandboxes of one worker together; the longest idle go first."),
    _row("upstream-idle-timeout", values.duration(), "60s", "How long an idle connection to a sandbox is kept; 0 = no limit."),
)

_row = partial(Setting, "logs")
LOGS = (
    _row("access-log", values.boolean(), "true", "One line for each request."),
    _row("log-level", values.choice("debug", "info", "warning", "error"), "info", "The least severe messages that are logged."),
    _row("log-format", values.choice("json", "text"), "json", "One JSON object a line, or text for people."),
    _row("tracing", values.truth_or_auto(), "auto", "OpenTelemetry traces; `auto` = when `OTEL_EXPORTER_OTLP_ENDPOINT` is set. Needs the extra `otel`."),
    _row("metrics-namespaces", places.labels(or_words=("all", "none")), "all", "The namespaces of sandboxes that metrics name; the others share `other`. `none` keeps series few with thousands of namespaces."),
)

# fmt: on

GROUPS: dict[str, tuple[Setting, ...]] = {
    "listeners": LISTENERS,
    "tls": TLS,
    "discovery": DISCOVERY,
    "routing": ROUTING,
    "auth": AUTH,
    "browsers": BROWSERS,
    "waking": WAKING,
    "time": TIME,
    "limits": LIMITS,
    "logs": LOGS,
}
TABLE: dict[str, Setting] = {row.key: row for rows in GROUPS.values() for row in rows}
FILE_KEYS: tuple[str, ...] = tuple(key for key, row in TABLE.items() if not row.secret)
"""The keys that a flag, a `SANDBOX_ROUTER_*` variable or the file may set."""
