"""Heads to fuzz with: made of usual and unusual parts, and of what the corpus has, then damaged."""

import random
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"

NAMES = b"""Host X-Sandbox-ID x-sandbox-namespace X-Sandbox-Port X-Sandbox-UID X-Sandbox-Pod-IP X-Sandbox-Timeout Authorization
X-Sandbox-Token traceparent tracestate Content-Length Transfer-Encoding Connection Keep-Alive TE Upgrade Expect X-Forwarded-For
X-Forwarded-Host X-Forwarded-Proto X-Forwarded-Port X-Forwarded-Prefix x_forwarded_prefix True-Client-IP Forwarded X-Real-IP Origin Sec-WebSocket-Protocol Cookie X_Sandbox_ID x-sandbox_id
Content_Length User-Agent Accept Accept-Encoding X-Forwarded-Client-Cert Proxy-Connection http2-settings a close keep-alive Close
Location Set-Cookie X-Sandbox-Router-Error Trailer Vary ETag Refresh Content-Location Alt-Svc X-Accel-Redirect Clear-Site-Data Server
Strict-Transport-Security Service-Worker-Allowed X-Auth-Request-User X-Original-URL""".split()
VALUES = [
    *b"""sb1 ns1 9000 a.example.com:80 h.example:80 [::1]:80 [::1] u@h h:123456 h: 0 5 05 +5 -1 5,5 999999999999999999 9999999999999999999
chunked Chunked keep-alive close Close KEEP-ALIVE upgrade websocket h2c 100-continue trailers null https://x http://h.example:80
127.0.0.1 timeout=5 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 a=1,b=2 /x http://box:80/y //box:80/z a=b;Path=/;Domain=x""".split(),
    b"",
    b"gzip, chunked",
    b"keep-alive, close",
    b"Bearer abc.def.ghi",
    b"x\ty",
    b"\x80\xff",
    b"1.2.3.4, 5.6.7.8",
    b"sid=1; Path=/; HttpOnly",
    b"v" * 300,
]
REQUEST_LINES = [
    b"GET / HTTP/1.1",
    b"POST /a?b=%20 HTTP/1.1",
    b"PUT /\xc3\xa9 HTTP/1.1",
    b"DELETE /x HTTP/1.1",
    b"HEAD /x HTTP/1.1",
    b"PATCH /x HTTP/1.1",
    b"OPTIONS /x HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"GET * HTTP/1.1",
    b"GET http://h/p HTTP/1.1",
    b"GET / HTTP/1.0",
    b"GET / HTTP/2.0",
    b"get / HTTP/1.1",
    b"FOO / HTTP/1.1",
    b"GET /#f HTTP/1.1",
    b"GET  / HTTP/1.1",
    b"CONNECT a:1 HTTP/1.1",
    b"GET /\x7f HTTP/1.1",
    b"GET / HTTP/1.1 ",
    b"GET /" + b"a" * 5000 + b" HTTP/1.1",
]
STATUS_LINES = [
    b"HTTP/1.1 200 OK",
    b"HTTP/1.1 200 OK",
    b"HTTP/1.1 200",
    b"HTTP/1.1 201 Created",
    b"HTTP/1.1 204 No Content",
    b"HTTP/1.1 304 x",
    b"HTTP/1.1 404 Not Found",
    b"HTTP/1.1 426 Upgrade Required",
    b"HTTP/1.1 500 ",
    b"HTTP/1.1 101 S",
    b"HTTP/1.1 100 C",
    b"HTTP/1.0 200 OK",
    b"HTTP/1.1 099 x",
    b"HTTP/1.1 999 \xff\t",
    b"HTTP/1.1 200OK",
    b"HTTP/1.1  200 OK",
    b"HTTP/1.1 200 O\x01K",
    b"HTTP/1.1 20 OK",
    b"HTTP/2 200",
    b"http/1.1 200 OK",
]
ODD_BYTES = [0, 9, 10, 13, 32, 45, 58, 95, 127, 128, 255]


class Heads:
    """An endless supply; the same seed makes the same heads."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._requests = read_corpus("requests")
        self._responses = read_corpus("responses")

    def request(self) -> bytes:
        return self._head(REQUEST_LINES, self._requests, is_request=True)

    def response(self) -> bytes:
        return self._head(STATUS_LINES, self._responses, is_request=False)

    def _head(self, starts: list[bytes], corpus: list[bytes], *, is_request: bool) -> bytes:
        r = self._random
        if r.random() < 0.3:
            block = r.choice(corpus)
            if r.random() < 0.5:
                block = self._spliced(block, r.choice(corpus))
        else:
            lines = [r.choice(starts[: len(starts) // 2]) if r.random() < 0.7 else r.choice(starts)]
            if is_request and r.random() < 0.9:
                lines.append(b"Host: h.example:80")
            count = r.randrange(62, 67) if r.random() < 0.02 else r.randrange(9)
            lines += [self._line() for _ in range(count)]
            block = b"\r\n".join([*lines, b"", b""])
        return self._damaged(block) if r.random() < 0.3 else block

    def _line(self) -> bytes:
        r = self._random
        name = r.choice(NAMES)
        if r.random() < 0.3:
            name = r.choice(
                (
                    name.lower(),
                    name.upper(),
                    name + b" ",
                    b" " + name,
                    b"x" * r.choice((254, 255, 256, 257)),
                )
            )
        return b"".join(
            (
                name,
                r.choice((b": ", b": ", b": ", b":", b":\t ", b" :")),
                r.choice(VALUES),
                r.choice((b"", b"", b"", b" ", b"\t")),
            )
        )

    def _spliced(self, block: bytes, other: bytes) -> bytes:
        r = self._random
        lines, more = block.split(b"\r\n")[:-2], other.split(b"\r\n")[1:-2]
        for line in r.sample(more, min(len(more), r.randrange(4))):
            lines.insert(r.randrange(1, len(lines) + 1), line)
        if len(lines) > 2 and r.random() < 0.5:
            del lines[r.randrange(1, len(lines))]
        return b"\r\n".join([*lines, b"", b""])

    def _damaged(self, block: bytes) -> bytes:
        r = self._random
        damaged = bytearray(block[:-4])
        for _ in range(r.randrange(1, 4)):
            at = r.randrange(len(damaged) + 1)
            byte = r.choice((r.randrange(256), r.choice(ODD_BYTES)))
            if r.random() < 0.4:
                damaged[at : at + 1] = bytes((byte,))
            elif r.random() < 0.5:
                damaged.insert(at, byte)
            else:
                del damaged[at : at + 1]
        # A head ends with its first empty line: that is how it was cut out of the stream.
        return bytes(damaged).split(b"\r\n\r\n")[0] + b"\r\n\r\n"


def read_corpus(kind: str) -> list[bytes]:
    """Returns the kept heads: usual ones, and those that once showed a fault."""
    return [path.read_bytes() for path in sorted((CORPUS / kind).iterdir())]
