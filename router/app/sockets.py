"""Sockets: what one worker listens on."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sockets:
    """Bound sockets of one worker, and where the whole router listens (never to be dialled)."""

    http: Sequence[socket.socket] = ()
    https: Sequence[socket.socket] = ()
    checks: Sequence[socket.socket] = ()
    """Where Envoy asks whether a request may pass, and where to."""
    own: Sequence[tuple[str, int]] = field(default=())
