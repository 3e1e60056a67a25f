"""LineSplitter: whole lines out of the pieces in which a watch arrives."""

from __future__ import annotations

LINE_LIMIT_BYTES = 8 * 1024 * 1024
"""etcd holds objects up to 1.5 MiB, several times that with custom limits; more is not a Kubernetes event."""


class BrokenWatchError(Exception):
    """What arrived is no stream of events; nothing after it can be trusted, so the next step is a new list."""


class LineSplitter:
    """Collects bytes and gives out the complete lines, without their newline. Empty lines are left out."""

    def __init__(self, *, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._pending_bytes = 0

    def __repr__(self) -> str:
        return f"<LineSplitter pending={self._pending_bytes}>"

    @property
    def pending_bytes(self) -> int:
        """Bytes of a line whose end has not come; at the end of the stream they are a line cut short."""
        return self._pending_bytes

    def feed(self, piece: bytes) -> list[bytes]:
        """Returns the lines that `piece` completes. Raises BrokenWatchError."""
        head, newline, rest = piece.partition(b"\n")
        if not newline:
            self._keep(piece)
            return []
        self._keep(head)
        first = b"".join(self._pieces)
        self._pieces.clear()
        self._pending_bytes = 0
        lines = [first, *rest.split(b"\n")]
        self._keep(lines.pop())
        return [line for line in lines if line]

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._pending_bytes += len(piece)
            if self._pending_bytes > self._limit_bytes:
                raise BrokenWatchError(f"a line of more than {self._limit_bytes} bytes")
