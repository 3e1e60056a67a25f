"""The settings as the data path takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from router.app.descriptors import connections_here
from router.app.memory_limit import buffered_bytes_allowed
from router.app.waking import needs_wakes
from router.auth.session_desk import SessionDesk
from router.proxy.budget import Budget
from router.proxy.options import NEVER, ProxyOptions
from router.proxy.places import Places
from router.proxy.pool import Pool
from router.proxy.session_paths import SessionPaths
from router.proxy.wire.forwarded_identity import IdentityHeaders
from router.proxy.wire.session_cookie import OF_A_HOST, OF_A_PATH, ON_LOOPBACK, SessionRules
from router.proxy.wire.stripping import Stripped
from router.routing.elsewhere import Elsewhere
from router.routing.names import Resolver
from router.settings import Settings

_WATCH_LAG_S: Final = 0.5
"""A client may use a sandbox's name before our watch has heard of it; a 404 would be final for it."""


def options_of(settings: Settings) -> ProxyOptions:
    """Returns how this worker carries requests; a duration of 0 (off) becomes one that never ends."""
    time_settings, limits = settings.time, settings.limits
    return ProxyOptions(
        header_timeout_s=time_settings.header_timeout_s or NEVER,
        proxy_timeout_s=time_settings.proxy_timeout_s or NEVER,
        stream_idle_timeout_s=time_settings.stream_idle_timeout_s or NEVER,
        keepalive_timeout_s=time_settings.keepalive_timeout_s or NEVER,
        tunnel_idle_timeout_s=time_settings.tunnel_idle_timeout_s or NEVER,
        tunnel_max_lifetime_s=time_settings.tunnel_max_lifetime_s or NEVER,
        connect_budget_s=time_settings.connect_budget_s or NEVER,
        wait_for_ready_s=settings.discovery.wait_for_ready_s,
        wakes=settings.waking.wake if needs_wakes(settings) else "",
        wake_timeout_s=settings.waking.wake_timeout_s,
        wake_websockets=settings.waking.wake_websockets,
        unknown_grace_s=_WATCH_LAG_S if settings.discovery.discovery == "kubernetes" else 0.0,
        max_staleness_s=settings.discovery.max_staleness_s,
        max_header_bytes=limits.max_header_bytes,
        max_request_line_bytes=limits.max_request_line_bytes,
        max_body_bytes=limits.max_body_bytes,
        max_buffered_bytes=buffered_bytes_allowed(limits.max_buffered_bytes, None)
        // settings.listeners.workers,
        max_requests_per_sandbox=limits.max_requests_per_sandbox,
        max_tunnels_per_client=limits.max_tunnels_per_client,
        connects=settings.routing.connect,
        connect_per_sandbox=limits.connect_per_sandbox,
        trusted_proxies=settings.routing.trusted_proxies,
        preserve_host=settings.routing.preserve_host,
        origin_policy=settings.routing.origin,
        path_mode=settings.routing.path_mode,
        public_ports=settings.browsers.public_ports,
        passes_preflights=settings.auth.cors_preflight == "pass",
        login_url=settings.browsers.login_url or "",
        sessions=session_rules_of(settings),
        identity_headers=_identity_headers(settings),
        stripped=_stripped(settings),
    )


def session_rules_of(settings: Settings) -> SessionRules | None:
    """Returns how browsers may use sessions; None where there are none."""
    browsers = settings.browsers
    if browsers.session_key_file is None:
        return None
    return SessionRules(
        iframe=browsers.session_iframe,
        path_mode=browsers.session_path_mode,
        origins=frozenset(origin.encode("ascii") for origin in browsers.session_origins),
    )


def session_paths_of(desk: SessionDesk | None, options: ProxyOptions) -> SessionPaths | None:
    """Returns where sessions begin and end; None where there are none."""
    if desk is None or options.sessions is None:
        return None
    return SessionPaths(desk=desk, rules=options.sessions)


def _stripped(settings: Settings) -> Stripped | None:
    """Returns what no sandbox is sent, the router's own cookies and what says who signed in among it."""
    headers = list(settings.routing.strip_headers)
    headers += [h for h in (settings.auth.identity_header, settings.auth.groups_header) if h]
    cookies = list(settings.routing.strip_cookies)
    if settings.browsers.session_key_file is not None:
        cookies += [name.decode("ascii") for name in (OF_A_HOST, OF_A_PATH, ON_LOOPBACK)]
    return Stripped.of(headers, cookies)


def _identity_headers(settings: Settings) -> IdentityHeaders | None:
    auth = settings.auth
    if "forwarded" not in auth.auth or auth.identity_header is None:
        return None
    groups = (auth.groups_header or "").encode("ascii")
    return IdentityHeaders(auth.identity_header.encode("ascii"), groups)


def places_of(settings: Settings, elsewhere: Elsewhere) -> Places:
    """Returns the pod's places for connections, as this worker sees them: what its open files are enough for, and what others took."""
    most = settings.limits.max_connections
    return Places(
        limit=most,
        here=connections_here(most),
        workers=settings.listeners.workers,
        elsewhere=elsewhere,
    )


def build_pool(
    settings: Settings,
    *,
    own_listeners: Callable[[], Iterable[tuple[str, int]]],
    resolver: Resolver,
    budget: Budget,
) -> Pool:
    """Returns the connections to sandboxes as the settings bound them."""
    return Pool(
        max_idle=settings.limits.max_idle_upstream,
        max_idle_total=settings.limits.max_idle_upstream_total,
        idle_timeout_s=settings.limits.upstream_idle_timeout_s,
        connect_timeout_s=settings.time.connect_timeout_s,
        max_head_bytes=settings.limits.max_header_bytes,
        budget=budget,
        own_listeners=own_listeners,
        resolver=resolver,
    )
