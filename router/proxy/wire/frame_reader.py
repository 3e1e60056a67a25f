"""FrameReader: the bytes that WebSocket frames carry, passed on as they come: no frame is collected (RFC 6455 §5)."""

from __future__ import annotations

from typing import Final

from router.proxy.wire.unmasking import unmask
from router.proxy.wire.websocket import CloseCode

_FINAL: Final = 0x80
_RESERVED: Final = 0x70
_CONTINUATION: Final = 0x0
_TEXT: Final = 0x1
_BINARY: Final = 0x2
_CLOSE: Final = 0x8
_PING: Final = 0x9
_PONG: Final = 0xA
_MOST_CONTROL_BYTES: Final = 125
_LONGEST_HEADER: Final = 14
_FRAMES_A_TURN: Final = 512
"""Frames of a read that are taken at once: forty thousand empty ones fit into one, and others wait meanwhile."""

NO_CODE: Final = 1005
"""What `close_code` is for a Close frame without one (RFC 6455 §7.1.5)."""


class FrameError(Exception):
    """The peer broke the protocol: `code` is what it is told."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(reason)


class FrameReader:
    """Takes frame headers off a stream of binary messages, whose boundaries mean nothing, and the mask off their payload.

    It holds a header's beginning and a control frame's payload, never more than 125 bytes, however long frames are.
    """

    __slots__ = (
        "_control",
        "_header",
        "_is_masked",
        "_left",
        "_mask",
        "_message_is_open",
        "_opcode",
        "close_code",
        "close_reason",
        "ping",
    )

    def __init__(self, *, is_masked: bool) -> None:
        """`is_masked` says that a client is read, whose frames must be masked; a server's must not."""
        self._is_masked = is_masked
        self._header = b""
        """The beginning of a frame's header."""
        self._left = 0
        """Bytes of the current frame's payload still to come."""
        self._mask = b""
        """The current frame's mask, turned so that it begins with what comes next."""
        self._opcode = _BINARY
        """The current frame's."""
        self._message_is_open = False
        """The last data frame wasn't the last of its message."""
        self._control = b""
        """What has come of a control frame's payload."""
        self.ping: bytes | None = None
        """The payload of the last ping that waits for its pong; whoever answers it sets None (RFC 6455 §5.5.3)."""
        self.close_code = 0
        """The Close frame's code once one has come, NO_CODE without one in it; then nothing more is taken."""
        self.close_reason = ""

    def __repr__(self) -> str:
        return f"<FrameReader left={self._left} close_code={self.close_code}>"

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        """Takes the stream's next bytes, and adds the payload in them to `pieces`. Returns how many bytes it has taken.

        It takes all, unless many frames end in them, or a Close frame. Raises FrameError.
        """
        at, size = 0, len(data)
        frames = 0
        while at < size and not self.close_code and frames < _FRAMES_A_TURN:
            if self._left:
                end = min(size, at + self._left)
                self._take_payload(data, at, end, pieces)
                at = end
            else:
                at = self._take_header(data, at)
            if not self._left and not self._header:
                frames += 1
                if self._opcode & 0x8:
                    self._control_is_whole()
        return at

    def _take_payload(self, data: bytes, begin: int, end: int, pieces: list[bytes]) -> None:
        size = end - begin
        self._left -= size
        if not self._is_masked:
            payload = data[begin:end]
        else:
            payload = unmask(data, self._mask, begin, end)
            turn = size & 3
            if turn and self._left:
                self._mask = self._mask[turn:] + self._mask[:turn]
        if self._opcode & 0x8:
            self._control += payload
        else:
            pieces.append(payload)

    def _take_header(self, data: bytes, at: int) -> int:
        """Takes a header, or what there is of one. Returns the offset behind it. Raises FrameError."""
        held = len(self._header)
        header = self._header + data[at : at + _LONGEST_HEADER - held]
        self._judge(header)
        end = _header_size(header)
        if len(header) < end:
            self._header = header
            return at + len(header) - held
        self._header = b""
        first = header[0]
        length = header[1] & 0x7F
        if length > _MOST_CONTROL_BYTES:
            length = int.from_bytes(header[2 : 4 if length == 126 else 10], "big")
            if length >> 63:
                raise FrameError(CloseCode.PROTOCOL_ERROR, "a length has its first bit set")
        self._left = length
        self._mask = header[end - 4 : end] if self._is_masked else b""
        self._opcode = first & 0x0F
        if self._opcode & 0x8:
            self._control = b""
        else:
            self._message_is_open = not first & _FINAL
        return at + end - held

    def _judge(self, header: bytes) -> None:
        """Raises FrameError for a header that breaks the rules, as far as it is known."""
        first = header[0]
        opcode = first & 0x0F
        if first & _RESERVED:
            raise FrameError(
                CloseCode.PROTOCOL_ERROR, "a reserved bit is set, and no extension was agreed on"
            )
        if opcode == _TEXT:
            raise FrameError(CloseCode.UNSUPPORTED_DATA, "only binary frames are bytes of TCP")
        if opcode not in (_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG):
            raise FrameError(CloseCode.PROTOCOL_ERROR, "an unknown opcode")
        if opcode == _CONTINUATION and not self._message_is_open:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "there is no message to continue")
        if opcode == _BINARY and self._message_is_open:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a message begins within another")
        if opcode & 0x8 and not first & _FINAL:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a control frame is fragmented")
        if len(header) == 1:
            return
        if bool(header[1] & 0x80) is not self._is_masked:
            raise FrameError(
                CloseCode.PROTOCOL_ERROR,
                "a client's frame is not masked" if self._is_masked else "a server's is masked",
            )
        if opcode & 0x8 and header[1] & 0x7F > _MOST_CONTROL_BYTES:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a control frame is too long")

    def _control_is_whole(self) -> None:
        """Notes what a whole control frame says. Raises FrameError."""
        payload, self._control = self._control, b""
        opcode, self._opcode = self._opcode, _BINARY
        if opcode == _PING:
            self.ping = payload
        elif opcode == _CLOSE:
            self.close_code, self.close_reason = _read_close(payload)


def _read_close(payload: bytes) -> tuple[int, str]:
    """Returns a Close frame's code and reason (RFC 6455 §7.4). Raises FrameError."""
    if not payload:
        return NO_CODE, ""
    code = int.from_bytes(payload[:2], "big")
    is_known = 1000 <= code <= 1014 and code not in (1004, 1005, 1006)
    if len(payload) == 1 or not (is_known or 3000 <= code <= 4999):
        raise FrameError(CloseCode.PROTOCOL_ERROR, "a Close frame has no valid code")
    try:
        reason = payload[2:].decode()
    except UnicodeDecodeError:
        raise FrameError(CloseCode.INVALID_TEXT, "a Close frame's reason is no UTF-8") from None
    return code, reason


def _header_size(header: bytes) -> int:
    """Returns how long the frame header that begins so is, as far as it is known."""
    if len(header) < 2:
        return 2
    length = header[1] & 0x7F
    extended = 2 if length == 126 else 8 if length == 127 else 0
    return 2 + extended + (4 if header[1] & 0x80 else 0)
