"""RequestHead: a request's head, from bytes, strictly.

llhttp (httptools) checks the header lines. The request line is read here, because llhttp knows only a fixed list of methods,
refuses raw UTF-8 in targets and lets `HTTP/2.0` pass. The parser only ever sees whole heads, so no connection has to keep one.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

import httptools

from router.errors import (
    AmbiguousTarget,
    GrpcNotSupported,
    MalformedMessage,
    VersionNotSupported,
)
from router.proxy.wire.head_lines import (
    JUDGE,
    Action,
    HeadLines,
    Special,
    appending_reader,
    joined,
    note_connection,
    options,
    read_connection,
    read_content_length,
    read_transfer_encoding,
    special_lines,
)
from router.proxy.wire.header_rules import REQUEST_KINDS, Kind
from router.proxy.wire.scanning import IS_COMPILED, request_scanner
from router.routing.target import Asked

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VERSION = re.compile(rb"HTTP/[0-9](?:\.[0-9])?")
_COMMON_METHODS: Final = frozenset(
    {b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"}
)
_TARGET_BYTES: Final = bytes(c for c in range(0x21, 0x100) if c not in (0x7F, ord("#")))
# uri-host [":" port] (RFC 9110 §7.2) without userinfo, spaces or escapes.
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")

MAX_HOST_BYTES: Final = 320
"""A DNS name has 253 characters, an address and a port fewer."""
_GRPC = re.compile(rb"application/grpc(?=[+;, \t]|$)", re.IGNORECASE)

_FIRST_ROUTING: Final = Kind.SANDBOX_ID
_LAST_ROUTING: Final = Kind.SANDBOX_TIMEOUT  # the kinds between are in Asked's order
_NOTHING_ASKED: Final = Asked()


class RequestHead(HeadLines):
    """One request's head."""

    kind_table = REQUEST_KINDS

    method: bytes
    target: bytes
    """The request target as it will be forwarded: origin-form or `*`."""
    host: bytes = b""
    """From the Host header, or the authority of an absolute-form target."""
    has_host_line: bool = False
    asked: Asked = _NOTHING_ASKED
    upgrade: bytes | None = None
    """The protocols offered for an upgrade, without h2c; None when the request is no upgrade."""
    expects_continue: bool = False
    accepts_trailers: bool = False
    """TE: trailers was sent."""
    authorization: bytes | None = None
    sandbox_token: bytes | None = None
    subprotocols: bytes | None = None
    origin: bytes | None = None
    content_type: bytes | None = None
    traceparent: bytes | None = None
    has_body: bool = False
    """True when bytes of a body follow."""
    forwarded_for: bytes | None = None
    forwarded_host: bytes | None = None
    forwarded_proto: bytes | None = None
    forwarded_prefix: bytes | None = None
    client_cert: bytes | None = None
    cookie: bytes | None = None
    changes: dict[int, bytes] | None = None
    """Lines to send in place of those that came, by their place; b"" drops one."""
    added: bytes = b""
    """Lines to send behind those that came, each with its end."""

    def __repr__(self) -> str:
        return f"<RequestHead {self.method!r} {self.target[:60]!r} http={self.version} body={self.has_body}>"


class Known(Protocol):
    """What is known of a connection's last request. Values that come again become the very same objects."""

    host: bytes
    asked: Asked
    authorization: bytes | None
    sandbox_token: bytes | None
    client_cert: bytes | None
    cookie: bytes | None


KNOWN: Final = ("authorization", "sandbox_token", "client_cert", "cookie")
"""Names of Known's values that a kind of line has."""


def parse_request(block: bytes, known: Known | None = None) -> RequestHead:
    """Returns the head in `block`: from the request line up to and with the empty line.

    `known` is of the connection's last request, if anything is.
    Raises MalformedMessage, VersionNotSupported, AmbiguousTarget, GrpcNotSupported.
    """
    head = RequestHead()
    head.block = block
    if _SCANNER is None or not _SCANNER.read(head, block, known):
        read_request(head, block)
    # A call's outcome is in the trailers of HTTP/2, which nobody here has. gRPC-Web does without.
    if head.content_type is not None and _GRPC.match(head.content_type):
        raise GrpcNotSupported
    return head


def read_request(head: RequestHead, block: bytes) -> None:
    """Fills the head from its bytes: the reference, and the author of every error."""
    line_end = block.find(b"\r\n")
    _read_request_line(head, block[:line_end])
    try:
        # A new parser each time (0.3 µs): the old one would wait for the body, which never passes through it.
        httptools.HttpRequestParser(JUDGE).feed_data(b"GET / HTTP/1.1" + block[line_end:])
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as exc:
        raise MalformedMessage(f"Malformed request header: {exc}.") from exc
    lines = head._lines = block.split(b"\r\n")
    _read_special(head, lines)
    if head.content_length or head.is_chunked:
        head.has_body = True
    if head.version == 10:
        if head.is_chunked:
            raise MalformedMessage("Transfer-Encoding in an HTTP/1.0 request.")
        head.upgrade = None
    elif not head.host:
        raise MalformedMessage("A request needs one Host header.")


def _read_special(head: RequestHead, lines: list[bytes]) -> None:
    # The kinds of every request without a call each: bench/walk.py.
    asked: list[bytes | None] | None = None
    kinds = 0
    special = head._special = special_lines(lines, REQUEST_KINDS)
    for kind, _, value, _ in special:
        kinds |= 1 << kind
        if _FIRST_ROUTING <= kind <= _LAST_ROUTING:
            if asked is None:
                asked = [None] * 6
            at = kind - _FIRST_ROUTING
            if asked[at] is not None and asked[at] != value:
                raise AmbiguousTarget(
                    "The same routing header was given twice with different values."
                )
            asked[at] = value
        elif kind == Kind.AUTHORIZATION and head.authorization is None:
            head.authorization = value
        elif kind == Kind.COOKIE and head.cookie is None:
            head.cookie = value
        else:
            reader = _REQUEST_READERS[kind]
            if reader is not None:
                reader(head, value)
    head.kinds = kinds
    if head.has_connection and b"upgrade" in read_connection(head):
        head.upgrade = _offered_protocols(special)
    if asked is not None:
        head.asked = Asked(*asked)


def _read_request_line(head: RequestHead, line: bytes) -> None:
    parts = line.split(b" ")
    if len(parts) != 3:
        raise MalformedMessage("Malformed request line.")
    method, target, version = parts
    if version == b"HTTP/1.1":
        head.version = 11
    elif version == b"HTTP/1.0":
        head.version = 10
        head.keep_alive = False
    elif _VERSION.fullmatch(version) and _TOKEN.fullmatch(method):
        raise VersionNotSupported
    else:
        raise MalformedMessage("Malformed request line.")
    if method not in _COMMON_METHODS and not _TOKEN.fullmatch(method):
        raise MalformedMessage("Malformed method.")
    if not target or target.translate(None, _TARGET_BYTES):
        raise MalformedMessage("Malformed request target.")
    head.method = method
    head.target = target


def resolve_target_form(head: RequestHead) -> None:
    """Turns an absolute-form target into origin-form and refuses what is neither that nor `*`.

    Its authority is the host that counts, whatever Host says (RFC 9112 §3.2.2). CONNECT's authority-form stays, for the
    gateway to refuse. Raises MalformedMessage.
    """
    target = head.target
    if target.startswith(b"/") or (target == b"*" and head.method == b"OPTIONS"):
        return
    if head.method == b"CONNECT":
        return
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        raise MalformedMessage("The request target must begin with a slash.")
    cut = min((i for i in (rest.find(b"/"), rest.find(b"?")) if i >= 0), default=len(rest))
    authority, path = rest[:cut], rest[cut:]
    if len(authority) > MAX_HOST_BYTES or not _HOST.fullmatch(authority):
        raise MalformedMessage("Malformed authority in the request target.")
    head.host = authority
    if not path and head.method == b"OPTIONS":
        head.target = b"*"  # RFC 9112 §3.2.4
    else:
        head.target = path if path.startswith(b"/") else b"/" + path


# --- one reader per kind of request header ---------------------------------------------------


def offered_protocols(head: RequestHead) -> bytes | None:
    """Returns what an Upgrade header offers, whatever Connection says."""
    return _offered_protocols(head.special)


def _offered_protocols(special: list[Special]) -> bytes | None:
    """Returns the Upgrade values without h2c, which is never offered to a sandbox."""
    offered = options(joined(special, Kind.UPGRADE))
    return b", ".join(p for p in offered if p and p.lower() not in (b"h2c", b"h2")) or None


def _read_te(head: RequestHead, value: bytes) -> None:
    if b"trailers" in options(value.lower()):
        head.accepts_trailers = True


def _read_host(head: RequestHead, value: bytes) -> None:
    if head.host:
        raise MalformedMessage("A request needs one Host header.")
    if len(value) > MAX_HOST_BYTES or not _HOST.fullmatch(value):
        raise MalformedMessage("Malformed Host header.")
    head.host = value
    head.has_host_line = True


def _read_expect(head: RequestHead, value: bytes) -> None:
    if value.lower() == b"100-continue":
        head.expects_continue = True


def _refuse_another_authorization(head: RequestHead, value: bytes) -> None:
    raise MalformedMessage("More than one Authorization header.")


def _read_sandbox_token(head: RequestHead, value: bytes) -> None:
    if head.sandbox_token is not None:
        raise MalformedMessage("More than one X-Sandbox-Token header.")
    head.sandbox_token = value


def _first_reader(attribute: str) -> Any:
    def read(head: RequestHead, value: bytes) -> None:
        if getattr(head, attribute) is None:
            setattr(head, attribute, value)

    return read


_REQUEST_READERS: Final[list[Any]] = [None] * Kind.COUNT
_REQUEST_READERS[Kind.CONNECTION] = note_connection
_REQUEST_READERS[Kind.TE] = _read_te
_REQUEST_READERS[Kind.CONTENT_TYPE] = _first_reader("content_type")
_REQUEST_READERS[Kind.TRANSFER_ENCODING] = read_transfer_encoding
_REQUEST_READERS[Kind.CONTENT_LENGTH] = read_content_length
_REQUEST_READERS[Kind.HOST] = _read_host
_REQUEST_READERS[Kind.EXPECT] = _read_expect
_REQUEST_READERS[Kind.AUTHORIZATION] = _refuse_another_authorization
_REQUEST_READERS[Kind.SANDBOX_TOKEN] = _read_sandbox_token
_REQUEST_READERS[Kind.FORWARDED_FOR] = appending_reader("forwarded_for", Kind.FORWARDED_FOR)
_REQUEST_READERS[Kind.WEBSOCKET_PROTOCOL] = appending_reader(
    "subprotocols", Kind.WEBSOCKET_PROTOCOL
)
_REQUEST_READERS[Kind.CLIENT_CERT] = appending_reader("client_cert", Kind.CLIENT_CERT)
_REQUEST_READERS[Kind.COOKIE] = appending_reader("cookie", Kind.COOKIE, b"; ")
_REQUEST_READERS[Kind.FORWARDED_HOST] = _first_reader("forwarded_host")
_REQUEST_READERS[Kind.FORWARDED_PROTO] = _first_reader("forwarded_proto")
_REQUEST_READERS[Kind.FORWARDED_PREFIX] = _first_reader("forwarded_prefix")
_REQUEST_READERS[Kind.ORIGIN] = _first_reader("origin")
_REQUEST_READERS[Kind.TRACEPARENT] = _first_reader("traceparent")


# --- the compiled form -----------------------------------------------------------------------

ACTIONS: Final[dict[int, tuple[int, str | int]]] = {
    Kind.FORWARD: (Action.NOTHING, ""),
    Kind.DROP: (Action.NOTHING, ""),
    Kind.CONNECTION: (Action.CONNECTION, ""),
    Kind.TRANSFER_ENCODING: (Action.CODING, ""),
    Kind.CONTENT_LENGTH: (Action.LENGTH, ""),
    Kind.HOST: (Action.HOST, ""),
    Kind.AUTHORIZATION: (Action.ONCE, "authorization"),
    Kind.SANDBOX_TOKEN: (Action.ONCE, "sandbox_token"),
    Kind.FORWARDED_FOR: (Action.ONCE, "forwarded_for"),
    Kind.CLIENT_CERT: (Action.ONCE, "client_cert"),
    Kind.FORWARDED_HOST: (Action.FIRST, "forwarded_host"),
    Kind.FORWARDED_PROTO: (Action.FIRST, "forwarded_proto"),
    Kind.FORWARDED_PREFIX: (Action.FIRST, "forwarded_prefix"),
    Kind.CLAIM: (Action.NOTHING, ""),
    Kind.COOKIE: (Action.ONCE, "cookie"),
    Kind.CONTENT_TYPE: (Action.FIRST, "content_type"),
    Kind.ORIGIN: (Action.FIRST, "origin"),
    Kind.TRACEPARENT: (Action.FIRST, "traceparent"),
    Kind.TRACESTATE: (Action.NOTHING, ""),
    **{
        kind: (Action.ASKED, kind - _FIRST_ROUTING)
        for kind in range(_FIRST_ROUTING, _LAST_ROUTING + 1)
    },
}
"""What the scanner does with a kind's value: the same as its reader above. It leaves a head with any other kind to them."""

_SCANNER: Final = request_scanner(ACTIONS, KNOWN) if IS_COMPILED else None
