"""The head that a client is sent, made of the sandbox's: what stays on its hop, and what is held to the sandbox.

On the hot path: written as plain loops over byte strings (bench/results shows what a head costs).
"""

from __future__ import annotations

import re
from typing import Final

from router.proxy.wire.forwarding import front_prefix
from router.proxy.wire.head_lines import (
    Crossing,
    crossing,
    crossings,
    kind_set,
    without_nominated,
)
from router.proxy.wire.header_rules import Kind
from router.proxy.wire.origin_rules import ON_A_HOST_OF_ITS_OWN
from router.proxy.wire.peer import Peer, called_host
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.response_head import SCOPED_KINDS, ResponseHead
from router.proxy.wire.session_cookie import sets_reserved
from router.routing.path_scope import (
    scoped_location,
    scoped_refresh,
    scoped_set_cookie,
    scoped_worker_scope,
    without_domain,
)
from router.routing.target import NamedBy, Target, forwarded_target

PRIVATE: Final = b"Cache-Control: private\r\n"
VARY: Final = b"Vary: X-Sandbox-ID, X-Sandbox-Namespace, X-Sandbox-Port\r\n"
_CROSSINGS: Final = {
    Kind.CONTENT_LENGTH: Crossing.TRIMMED,
    **dict.fromkeys(SCOPED_KINDS, Crossing.AS_IT_CAME),
}
_WITHOUT_CHUNKED: Final = crossings(_CROSSINGS)
_WITH_CHUNKED: Final = crossings({**_CROSSINGS, Kind.TRANSFER_ENCODING: Crossing.AS_IT_CAME})
CACHING: Final = kind_set(Kind.CACHING)
_UNTOUCHED: Final = kind_set(Kind.CONTENT_LENGTH, *SCOPED_KINDS)
"""Kinds whose lines cross as they came unless something changes one."""
_JUDGED: Final = kind_set(*SCOPED_KINDS) & ~CACHING
_BY_STATUS: Final = kind_set(Kind.CONTENT_LENGTH, Kind.UPGRADE)
# Looking an enum's member up on its class is a call.
HEADER: Final = NamedBy.HEADER
_NO_CHANGES: Final[dict[int, bytes]] = {}
# With a value, `private` is about single headers.
_PRIVATE_ALREADY = re.compile(rb"(?:^|[,\s])(?:no-store|private)(?:[,;\s]|$)", re.IGNORECASE)
_NO_STORE = re.compile(rb"(?:^|[,\s])no-store(?:[,;=\s]|$)", re.IGNORECASE)


class ResponseScope:
    """What of its request a response is judged by: how the sandbox was named, and by which hosts it is known."""

    __slots__ = ("named_by", "own_authorities", "request_path", "root", "url_root")

    def __init__(
        self,
        *,
        named_by: NamedBy,
        root: bytes,
        url_root: bytes,
        request_path: bytes,
        own_authorities: tuple[bytes, ...],
    ) -> None:
        self.named_by = named_by
        self.root = root
        """Path mode: the sandbox's root in the client's URL space, to which its cookies are held; else empty."""
        self.url_root = url_root
        """What is missing in front of the sandbox's own URLs; empty for nothing."""
        self.request_path = request_path
        """The path that the sandbox was asked for, without its query."""
        self.own_authorities = own_authorities
        """Hosts whose URLs are the sandbox's, to be led through the router."""

    @classmethod
    def of(
        cls,
        target: Target,
        head: RequestHead,
        peer: Peer,
        sandbox_host: bytes,
        *,
        keeps_path: bool = False,
    ) -> ResponseScope:
        """Returns the scope of the response to a request; `keeps_path` when the sandbox saw its root in the path."""
        root = front_prefix(head, peer) + target.path_root if target.path_root else b""
        url_root = b"" if keeps_path else root
        own = (sandbox_host, head.host, called_host(head, peer)) if url_root else (sandbox_host,)
        return cls(
            named_by=target.named_by,
            root=root,
            url_root=url_root,
            request_path=forwarded_target(target, head.target, keeps_path=keeps_path).partition(
                b"?"
            )[0],
            own_authorities=tuple(host for host in own if host),
        )

    def value_of(self, kind: int, value: bytes) -> bytes:
        """Returns the value that a line of this kind gets, b"" to drop the line."""
        if kind == Kind.LOCATION:
            return scoped_location(value, root=self.url_root, own_authorities=self.own_authorities)
        if kind == Kind.REFRESH:
            return scoped_refresh(value, root=self.url_root, own_authorities=self.own_authorities)
        if kind == Kind.CACHING:
            return value
        if kind == Kind.SET_COOKIE and sets_reserved(value):
            return b""
        if self.named_by is NamedBy.HOST:
            return ON_A_HOST_OF_ITS_OWN[kind](value)
        if kind == Kind.SET_COOKIE:
            if not self.root:
                return without_domain(value)
            return scoped_set_cookie(value, root=self.root, request_path=self.request_path)
        if kind == Kind.WORKER_SCOPE and self.root:
            return scoped_worker_scope(value, root=self.root)
        return b""


BY_HEADER: Final = ResponseScope(
    named_by=NamedBy.HEADER, root=b"", url_root=b"", request_path=b"", own_authorities=()
)
"""The scope of a response of which only its caching is judged, where the sandbox was named by header."""


def crossing_response_head(
    head: ResponseHead,
    *,
    drop_chunked: bool,
    scope: ResponseScope | None,
    add_chunked: bool = False,
    connection: bytes = b"",
    is_private: bool = False,
) -> bytes:
    """Returns the head that the client is sent.

    `add_chunked` frames a body that had no length; `drop_chunked` is for HTTP/1.0 clients; `connection` is the value of the
    Connection header, empty for none. `scope` may be None when the head does not need it. `is_private` is for what a browser
    got by its session: no cache that others use too may keep it.
    """
    if head.is_plain and not connection and not add_chunked and not is_private:
        return head.block
    tail = b"Transfer-Encoding: chunked\r\n" if add_chunked else b""
    if connection:
        tail += b"Connection: %b\r\n" % connection
    if is_private:
        if head.status >= 200 and not _is_kept_by_browsers_alone(head):
            tail = PRIVATE + tail
    elif scope is not None and scope.named_by is HEADER and _may_be_kept(head):
        tail = VARY + tail
    judged = _JUDGED
    if head.status < 200 or head.status in (204, 426):
        judged |= _BY_STATUS
    changes = _changes(head, scope, judged) if head.kinds & judged else _NO_CHANGES
    if not changes and head.version == 11 and not head.kinds & ~_UNTOUCHED:
        return b"%b%b\r\n" % (head.block[:-2], tail) if tail else head.block
    if head.nominated and head.scan is None:
        changes = without_nominated(head, changes)
    return crossing(
        head,
        None if head.version == 11 else b"HTTP/1.1" + head.lines[0][8:],
        _WITHOUT_CHUNKED if drop_chunked else _WITH_CHUNKED,
        b"",
        changes,
        tail + b"\r\n",
    )


def _changes(head: ResponseHead, scope: ResponseScope | None, judged: int) -> dict[int, bytes]:
    """Returns the lines to send in place of those that came, by their place; b"" drops one. `judged` are sets of kinds."""
    changes: dict[int, bytes] = {}
    for kind, name, value, at in head.special:
        if not 1 << kind & judged:
            continue
        if kind < Kind.LOCATION:
            told = _by_status(head, kind, value)
        else:
            told = b"" if scope is None else scope.value_of(kind, value)
        if told != value or kind == Kind.UPGRADE:
            changes[at] = b"%b: %b" % (name, told) if told else b""
    return changes


def _by_status(head: ResponseHead, kind: int, value: bytes) -> bytes:
    """Returns the value of a line that not every status may have, b"" to drop it."""
    if kind == Kind.UPGRADE:
        return value if head.status in (101, 426) else b""
    # RFC 9110 §8.6: no length in a 1xx or 204. A proxy behind us could take such a 1xx for the whole answer.
    return b"" if head.status < 200 or (head.status == 204 and head.content_length) else value


def _is_kept_by_browsers_alone(head: ResponseHead) -> bool:
    """Returns True when the response itself says that no shared cache may keep it (RFC 9111 §5.2.2)."""
    return any(
        kind == Kind.CACHING
        and name.lower() == b"cache-control"
        and _PRIVATE_ALREADY.search(value) is not None
        for kind, name, value, _ in head.special
    )


def _may_be_kept(head: ResponseHead) -> bool:
    """Returns True when a cache could keep the response, which in header mode is one of many for the same URL."""
    if head.status < 200 or not head.kinds & CACHING:
        return False
    cache_control = False
    forbidden = False
    special = head._special
    for kind, name, value, _ in head.special if special is None else special:
        if kind != Kind.CACHING:
            continue
        if name.lower() != b"cache-control":
            return True
        cache_control = True
        forbidden = forbidden or value == b"no-store" or _NO_STORE.search(value) is not None
    return cache_control and not forbidden
