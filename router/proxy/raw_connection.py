"""RawConnections: who may turn a WebSocket into a TCP connection to the sandbox's port, and how that begins.

    GET /.sandbox-router/tcp    Upgrade: websocket

The connection to the sandbox stands before the 101 is sent, so whatever fails until then is an ordinary error response.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from router.errors import BadRequest, MethodNotAllowed, SandboxUnreachable
from router.proxy.exchange import Exchange
from router.proxy.exchange_states import Sending
from router.proxy.options import ProxyOptions
from router.proxy.raw_tunnel import RawTunnel
from router.proxy.request import Request
from router.proxy.sandbox_connection import SandboxConnection
from router.proxy.wire.navigation import value_of
from router.proxy.wire.request_head import RequestHead

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY: Final = b"binary"
_FORM: Final = "This path takes a WebSocket handshake of version 13 (RFC 6455 §4.1)"


def check_handshake(request: Request) -> None:
    """Refuses what can't become a raw connection. Raises MethodNotAllowed, BadRequest."""
    head = request.head
    if head.method != b"GET":
        raise MethodNotAllowed(allow="GET")
    if head.version != 11 or head.has_body:
        raise BadRequest(f"{_FORM}: HTTP/1.1 without a body.")
    offered = [each.strip(b" \t").lower() for each in (head.upgrade or b"").split(b",")]
    if b"websocket" not in offered:
        raise BadRequest(f"{_FORM}: there is no `Upgrade: websocket`.")
    if value_of(head, b"sec-websocket-version") != b"13":
        raise BadRequest(f"{_FORM}: Sec-WebSocket-Version is not 13.")
    _key(head)


def explain_refusal(error: SandboxUnreachable, request: Request) -> None:
    """Adds what most often is the cause where a port refuses; who has come that far may know."""
    if request.outcome.upstream_error == "connect_refused":
        error.detail += (
            f". Its port {request.outcome.port} refused the connection: a server that is bound to the pod's"
            " loopback (127.0.0.1, localhost) can't be reached, bind it to 0.0.0.0."
        )


class RawConnection:
    """Stands where a sandbox's connection would: gives the exchange a tunnel instead of a response."""

    __slots__ = ("_options", "_sandbox")

    def __init__(self, sandbox: SandboxConnection, options: ProxyOptions) -> None:
        self._sandbox = sandbox
        self._options = options

    def carry(self, exchange: Exchange, *, is_reused: bool) -> None:
        """Tells the client that the connection stands; from then on only bytes cross."""
        sandbox, client = self._sandbox, exchange.client
        if sandbox.transport is None or sandbox.transport.is_closing():
            reason = "the sandbox closed the connection at once"
            exchange.fail(SandboxUnreachable.of(exchange.outcome.sandbox, reason=reason))
            return
        exchange.sandbox = sandbox
        exchange.sending = Sending.SENT
        client.begin_relay()
        exchange.begins_tunnel()
        tunnel = RawTunnel(owner=exchange, client=client, sandbox=sandbox, options=self._options)
        tunnel.open(_switching(exchange.head))


def _switching(head: RequestHead) -> bytes:
    """Returns the 101 to a handshake that was checked."""
    accept = base64.b64encode(hashlib.sha1(_key(head) + _GUID).digest())  # noqa: S324 - RFC 6455 §4.2.2
    offered = [each.strip(b" \t") for each in (head.subprotocols or b"").split(b",")]
    protocol = b"Sec-WebSocket-Protocol: binary\r\n" if _BINARY in offered else b""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n%b\r\n" % (accept, protocol)
    )


def _key(head: RequestHead) -> bytes:
    """Returns the handshake's key. Raises BadRequest."""
    key = value_of(head, b"sec-websocket-key") or b""
    try:
        is_valid = len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        is_valid = False
    if not is_valid:
        raise BadRequest(f"{_FORM}: Sec-WebSocket-Key is not 16 bytes in base64.")
    return key
