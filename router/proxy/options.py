"""ProxyOptions: how requests are carried and what bounds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from router.proxy.wire.forwarded_identity import IdentityHeaders
from router.proxy.wire.peer import Network
from router.proxy.wire.session_cookie import SessionRules
from router.proxy.wire.stripping import Stripped

NEVER: Final = float("inf")
"""A deadline that is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """How requests are carried and what bounds them.

    Durations in seconds, NEVER = off; sizes in bytes and counts, 0 = off where it can be.
    """

    header_timeout_s: float = NEVER
    proxy_timeout_s: float = NEVER
    stream_idle_timeout_s: float = NEVER
    keepalive_timeout_s: float = NEVER
    tunnel_idle_timeout_s: float = NEVER
    tunnel_max_lifetime_s: float = NEVER
    connect_budget_s: float = NEVER
    wait_for_ready_s: float = 0.0
    wakes: str = ""
    """Which suspended sandboxes requests wake: `annotated` or `all` of them, "" for none."""
    wake_timeout_s: float = NEVER
    wake_websockets: bool = False
    unknown_grace_s: float = 0.0
    """How long an unknown sandbox is waited for: a watch may learn of it a moment after its client did; 0 = not at all."""
    max_staleness_s: float = 0.0
    max_header_bytes: int = 65_536
    max_request_line_bytes: int = 16_384
    max_body_bytes: int = 0
    max_buffered_bytes: int = 0
    max_requests_per_sandbox: int = 0
    max_tunnels_per_client: int = 0
    connects: bool = False  # whether WebSockets become TCP connections to sandboxes
    connect_per_sandbox: int = 0
    trusted_proxies: Sequence[Network] = ()
    preserve_host: bool = False
    origin_policy: str = "rewrite"
    """What becomes of an Origin: `rewrite`, `keep` or `drop`."""
    path_mode: str = "strip"
    """What an app that is named by path sees: `strip` takes the sandbox's root off, `keep` leaves it; an Endpoint may say otherwise."""
    public_ports: bool = False
    passes_preflights: bool = False  # CORS preflights, which carry no credential
    login_url: str = ""  # where people sign in; "": nowhere
    sessions: SessionRules | None = None  # None: there are none
    identity_headers: IdentityHeaders | None = None  # None: no proxy says who signed in
    stripped: Stripped | None = None  # what a front adds for itself, and must not reach sandboxes
