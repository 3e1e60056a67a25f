"""HTTP/1.1 messages as tests write and read them, by a reading of RFC 9112 that shares nothing with the router's."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

TOKEN = "let-me-in-let-me-in"
AUTHORIZATION = f"Bearer {TOKEN}"

Header = tuple[str, str | bytes]
Framing = int | str
"""How a body ends: its length, "chunked" or "until close"."""


@dataclass
class Message:
    """A request or an answer as it was read from the wire."""

    line: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    """The sizes of a chunked body's chunks."""
    interim: list[Message] = field(default_factory=list)
    """The 1xx answers before this one."""

    @property
    def status(self) -> int:
        return int(self.line.split(b" ")[1])

    @property
    def method(self) -> bytes:
        return self.line.split(b" ")[0]

    @property
    def target(self) -> bytes:
        return self.line.split(b" ")[1]

    @property
    def code(self) -> str:
        """The router's own code; "" when the sandbox answered."""
        return (self.get("X-Sandbox-Router-Error") or b"").decode()

    @property
    def detail(self) -> str:
        """What the router says in its own answer."""
        detail: str = json.loads(self.body)["detail"]
        return detail

    def get(self, name: str) -> bytes | None:
        """Returns the header's only value, None without one."""
        values = self.all(name)
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None

    def all(self, name: str) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name.lower().encode()]

    def without(self, *names: str) -> list[tuple[bytes, bytes]]:
        """Returns the headers apart from these."""
        left_out = {name.lower().encode() for name in names}
        return [(key, value) for key, value in self.headers if key.lower() not in left_out]


def parse_head(head: bytes) -> Message:
    """Returns the message that begins with this head."""
    line, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    pairs = [line.partition(b":") for line in lines]
    assert all(colon for _, colon, _ in pairs), f"a header line without a colon: {head!r}"
    return Message(line=line, headers=[(name, value.strip(b" \t")) for name, _, value in pairs])


def body_framing(message: Message, *, is_answer: bool, asked_by: str) -> Framing:
    """Returns how the body ends (RFC 9112 §6.3)."""
    codings, lengths = message.all("Transfer-Encoding"), message.all("Content-Length")
    assert not (codings and lengths), f"both framings: {message.headers}"
    if is_answer and (asked_by == "HEAD" or message.status < 200 or message.status in (204, 304)):
        return 0
    if codings:
        assert codings == [b"chunked"], codings
        return "chunked"
    if lengths:
        assert len(lengths) == 1, lengths
        return int(lengths[0])
    return "until close" if is_answer else 0


def request(
    method: str = "GET",
    target: str | bytes = "/",
    *headers: Header,
    body: bytes = b"",
    version: str = "HTTP/1.1",
    sandbox: str | None = "box",
    host: str | None = "router.test",
    token: str | None = TOKEN,
) -> bytes:
    """Returns a request for a sandbox; a body gets its Content-Length unless a header frames it."""
    target = target.encode() if isinstance(target, str) else target
    lines = [b"%b %b %b" % (method.encode(), target, version.encode())]
    named: list[Header] = []
    if host is not None:
        named.append(("Host", host))
    if sandbox is not None:
        named.append(("X-Sandbox-ID", sandbox))
    if token is not None:
        named.append(("Authorization", f"Bearer {token}"))
    framed = {name.lower() for name, _ in headers} & {"content-length", "transfer-encoding"}
    if body and not framed:
        named.append(("Content-Length", str(len(body))))
    lines += [_line(name, value) for name, value in (*named, *headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def answer(
    status: int | str = 200,
    *headers: Header,
    body: bytes = b"",
    version: str = "HTTP/1.1",
    length: bool = True,
) -> bytes:
    """Returns an answer; `length` False leaves the body to be framed by a header or the end of the connection."""
    text = f"{status} OK" if isinstance(status, int) else status
    lines = [f"{version} {text}".encode()]
    framed = {name.lower() for name, _ in headers} & {"content-length", "transfer-encoding"}
    if length and not framed:
        lines.append(b"Content-Length: %d" % len(body))
    lines += [_line(name, value) for name, value in headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(*pieces: bytes, trailers: tuple[Header, ...] = ()) -> bytes:
    """Returns the pieces as a chunked body with its end."""
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)
    ending = b"".join(_line(name, value) + b"\r\n" for name, value in trailers)
    return chunks + b"0\r\n" + ending + b"\r\n"


def _line(name: str, value: str | bytes) -> bytes:
    return name.encode("latin-1") + b": " + (value if isinstance(value, bytes) else value.encode())
