"""The head that a client is sent, made of the sandbox's: what stays on its hop, and what path mode rewrites.

On the hot path: written as plain loops over byte strings (bench/results shows what a head costs).
"""

from __future__ import annotations

from typing import Final

from router.proxy.wire.head_lines import (
    Crossing,
    Special,
    crossing,
    crossings,
    kind_set,
    without_nominated,
)
from router.proxy.wire.header_rules import Kind
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.response_head import ResponseHead
from router.routing.path_scope import scoped_location, scoped_set_cookie
from router.routing.target import Target, forwarded_target

_CROSSINGS: Final = {
    Kind.CONTENT_LENGTH: Crossing.TRIMMED,
    Kind.LOCATION: Crossing.AS_IT_CAME,
    Kind.SET_COOKIE: Crossing.AS_IT_CAME,
}
_WITHOUT_CHUNKED: Final = crossings(_CROSSINGS)
_WITH_CHUNKED: Final = crossings({**_CROSSINGS, Kind.TRANSFER_ENCODING: Crossing.AS_IT_CAME})
_SCOPED: Final = kind_set(Kind.LOCATION, Kind.SET_COOKIE)
_BY_STATUS: Final = kind_set(Kind.CONTENT_LENGTH, Kind.UPGRADE)


class PathScope:
    """Path mode: the sandbox's root in the client's URL space, to which its redirects and cookies are held."""

    __slots__ = ("own_authorities", "request_path", "root")

    def __init__(
        self, *, root: bytes, request_path: bytes, own_authorities: tuple[bytes, ...]
    ) -> None:
        self.root = root
        self.request_path = request_path
        """The path that the sandbox was asked for, without its query."""
        self.own_authorities = own_authorities

    @classmethod
    def of(cls, target: Target, head: RequestHead, peer: Peer, sandbox_host: bytes) -> PathScope:
        """Returns the scope of a request in path mode; its own authorities are the hosts that client and sandbox see."""
        own = (head.host, sandbox_host, head.forwarded_host if peer.is_trusted else None)
        return cls(
            root=target.path_root,
            request_path=forwarded_target(target, head.target).partition(b"?")[0],
            own_authorities=tuple(host for host in own if host),
        )


def crossing_response_head(
    head: ResponseHead,
    *,
    add_chunked: bool,
    drop_chunked: bool,
    connection: bytes,
    scope: PathScope | None,
) -> bytes:
    """Returns the head that the client is sent.

    `add_chunked` frames a body that had no length; `drop_chunked` is for HTTP/1.0 clients; `connection` is the value of the
    Connection header, empty for none.
    """
    if head.is_plain and not connection and not add_chunked and scope is None:
        return head.block
    changes = _decided(head, scope)
    if head.nominated and head.scan is None:
        changes = without_nominated(head, changes)
    return crossing(
        head,
        None if head.version == 11 else b"HTTP/1.1" + head.lines[0][8:],
        _WITHOUT_CHUNKED if drop_chunked else _WITH_CHUNKED,
        b"",
        changes,
        b"%b%b\r\n"
        % (
            b"Transfer-Encoding: chunked\r\n" if add_chunked else b"",
            b"Connection: %b\r\n" % connection if connection else b"",
        ),
    )


def _decided(head: ResponseHead, scope: PathScope | None) -> dict[int, bytes] | None:
    """Returns the lines to send in place of those that came, None for no such line."""
    kinds = 0 if scope is None else _SCOPED
    if head.status < 200 or head.status in (204, 426):
        kinds |= _BY_STATUS
    if not head.kinds & kinds:
        return None
    return {
        special[3]: _special_line(head, special, scope)
        for special in head.special
        if 1 << special[0] & kinds
    }


def _special_line(head: ResponseHead, special: Special, scope: PathScope | None) -> bytes:
    """Returns what becomes of the line; b"" drops it."""
    kind, name, value, _ = special
    if kind == Kind.CONTENT_LENGTH:
        # RFC 9110 §8.6: no length in a 1xx or 204. A proxy behind us could take such a 1xx for the whole answer.
        has_none = head.status < 200 or (head.status == 204 and head.content_length)
        return b"" if has_none else b"%b: %b" % (name, value)
    if kind == Kind.UPGRADE:
        return b"%b: %b" % (name, value) if head.status in (101, 426) else b""
    assert scope is not None
    if kind == Kind.LOCATION:
        value = scoped_location(value, root=scope.root, own_authorities=scope.own_authorities)
    else:
        value = scoped_set_cookie(value, root=scope.root, request_path=scope.request_path)
    return b"%b: %b" % (name, value)
