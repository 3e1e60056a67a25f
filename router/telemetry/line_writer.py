"""LineWriter: lines on their way to a file descriptor, from a thread of its own.

A pipe that nobody empties, or a slow disk, blocks that thread alone; what no longer fits in memory is dropped and counted.
Standard output and standard error have one each: whoever stops reading one of them silences only that one.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import queue
import select
import stat
import threading
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

logger = logging.getLogger("sandbox_router.server")

FILE_WRITE_BYTES = 256 * 1024
# Several workers share one pipe: only writes up to this size don't mix there (POSIX.1, write()).
SHARED_WRITE_BYTES = select.PIPE_BUF
STDERR = 2
_POLL_MS = 1000
_LONGEST_END_S = 4.0
_LOOK_S = 0.05


class LineWriter:
    """Takes whole lines from the loop's thread, hands them over in batches, and ends within a deadline."""

    def __init__(
        self,
        sink: BinaryIO | int,
        *,
        max_pending_bytes: int = 8 * 1024 * 1024,
        batch_bytes: int = 256 * 1024,
        batch_interval_s: float = 0.1,
        is_shared: bool = True,
        name: str = "line-writer",
    ) -> None:
        """`sink` is a binary file or a descriptor; it stays open. At most `max_pending_bytes` wait in memory.

        `is_shared` says that other processes write to the same pipe; that our own standard error does is seen by itself. Each handing over and each write makes two threads
        compete for the interpreter: few and large ones cost the loop's thread least.
        """
        self._is_shared = is_shared
        self._name = name
        self._sink = sink
        # Our own copy: nobody can close it, so its number never comes to mean a client's socket.
        self._descriptor = _own_descriptor(sink)
        self._max_pending_bytes = max_pending_bytes
        self._batch_bytes = batch_bytes
        self._batch_interval_s = batch_interval_s
        # One growing buffer: a list of lines costs 0.4 µs a line more, most of it cache misses (bench/telemetry.py).
        self._buffer = bytearray()
        self._buffered_lines = 0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._queue: queue.SimpleQueue[tuple[bytearray, int] | None] = queue.SimpleQueue()
        self._is_closed = False
        # Each of these is written by one thread alone, so no lock is needed.
        self._handed_bytes = 0
        self._handed_lines = 0
        self._not_taken = 0
        self._done_bytes = 0
        self._done_lines = 0
        self._failed = 0
        self._is_failing = False
        self._broke_a_line = False

    def __repr__(self) -> str:
        pending = self._handed_bytes - self._done_bytes + len(self._buffer)
        return f"<LineWriter pending={pending}B dropped={self.dropped} closed={self._is_closed}>"

    @property
    def dropped(self) -> int:
        """Lines that were not written: too many waited, or the sink refused them."""
        return self._not_taken + self._failed

    def write(self, line: bytes) -> None:
        """Takes one line, its line feed included. Never waits, never raises; belongs to the loop's thread."""
        if self._is_closed:
            self._not_taken += 1
            return
        self._buffer += line
        self._buffered_lines += 1
        if len(self._buffer) >= self._batch_bytes:
            self._hand_over()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._batch_interval_s, self._hand_over)

    def put(self, lines: bytes) -> None:
        """Takes one record's lines and hands them over at once, from any thread, one at a time; never waits, never raises.

        For what is rare: a write() costs a tenth.
        """
        if self._is_closed:
            self._not_taken += 1
            return
        self._buffer += lines
        self._buffered_lines += 1
        self._hand_over()

    async def close(self, *, timeout_s: float = 2.0) -> None:
        """Writes what is left, until nothing is taken for `timeout_s`, or 4 s in all; the rest is dropped. May be called twice."""
        if self._begin_end():
            await asyncio.to_thread(self._join, timeout_s)
            self._count_lost()

    def end(self, *, timeout_s: float = 2.0) -> None:
        """Does what close() does, where there is no loop; it blocks."""
        if self._begin_end():
            self._join(timeout_s)
            self._count_lost()

    def flush(self, *, timeout_s: float = 2.0) -> None:
        """Waits until all that was handed over is written, or nothing is taken for `timeout_s`; it blocks."""
        if not self._is_closed:
            self._wait(lambda: self._done_bytes >= self._handed_bytes, timeout_s)

    def _begin_end(self) -> bool:
        """Returns True when there is a thread to wait for."""
        if self._is_closed:
            return False
        self._hand_over()
        self._is_closed = True
        if self._thread is None:
            self._release()
            return False
        self._queue.put(None)
        return True

    def _join(self, timeout_s: float) -> None:
        thread = self._thread
        assert thread is not None
        self._wait(lambda: not thread.is_alive(), timeout_s)

    def _wait(self, is_over: Callable[[], bool], timeout_s: float) -> None:
        """Waits as long as the sink takes something now and then: a slow reader loses nothing, one that is gone costs little."""
        now = time.monotonic()
        longest, until, done = now + _LONGEST_END_S, now + timeout_s, self._done_bytes
        while not is_over() and now < min(longest, until):
            if self._thread is not None:
                self._thread.join(_LOOK_S)
            now = time.monotonic()
            if self._done_bytes != done:
                done, until = self._done_bytes, now + timeout_s

    def _count_lost(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._not_taken += self._handed_lines - self._done_lines
        if self.dropped:
            logger.warning("log lines were dropped", extra={"fields": {"lines": self.dropped}})

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, lines = self._buffer, self._buffered_lines
        if not lines:
            return
        self._buffer, self._buffered_lines = bytearray(), 0
        if self._handed_bytes - self._done_bytes + len(batch) > self._max_pending_bytes:
            self._not_taken += lines
            return
        self._handed_bytes += len(batch)
        self._handed_lines += lines
        if self._thread is None:
            # Begun late, so that a writer made before a fork has no thread yet.
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._write_at_the_end(batch, lines)
                return
            self._thread = thread
        self._queue.put((batch, lines))

    def _write_at_the_end(self, batch: bytearray, lines: int) -> None:
        """Writes what the interpreter's shutdown, which allows no new threads, is told; drops it when nobody reads."""
        descriptor = self._descriptor
        if descriptor is None or _wait_until_writable(descriptor):
            for piece in _pieces(batch, SHARED_WRITE_BYTES):
                self._write_or_drop(piece)
        else:
            self._failed += lines
        self._done_lines += lines
        self._done_bytes += len(batch)

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while (handed := self._queue.get()) is not None:
            batch, lines = handed
            for piece in _pieces(batch, self._piece_bytes()):
                self._write_or_drop(piece)
                self._done_bytes += len(piece)
            self._done_lines += lines
        self._release()

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _piece_bytes(self) -> int:
        if self._descriptor is None:
            return FILE_WRITE_BYTES
        try:
            status = os.fstat(self._descriptor)
            is_file = stat.S_ISREG(status.st_mode)
            is_shared = self._is_shared or os.path.samestat(status, os.fstat(STDERR))
        except OSError:
            is_file, is_shared = False, True
        return SHARED_WRITE_BYTES if is_shared and not is_file else FILE_WRITE_BYTES

    def _write_or_drop(self, piece: bytes) -> None:
        try:
            self._write_all(b"\n" + piece if self._broke_a_line else piece)
        except (OSError, ValueError) as error:
            self._failed += piece.count(b"\n")
            if not self._is_failing:
                self._is_failing = True
                logger.error("log lines can't be written", extra={"fields": {"error": str(error)}})
        else:
            self._broke_a_line = False
            if self._is_failing:
                self._is_failing = False
                logger.info("log lines are written again")

    def _write_all(self, data: bytes) -> None:
        """Writes everything. Raises OSError, ValueError (a closed file), and remembers when a line was broken by it."""
        descriptor = self._descriptor
        if descriptor is None:
            assert not isinstance(self._sink, int)
            self._sink.write(data)
            self._sink.flush()
            return
        view = memoryview(data)
        while view:
            try:
                written = os.write(descriptor, view)
            except BlockingIOError:  # somebody who shares the descriptor has made it so
                _wait_until_writable(descriptor)
            except OSError:
                self._broke_a_line = self._broke_a_line or len(view) < len(data)
                raise
            else:
                view = view[written:]


def _own_descriptor(sink: BinaryIO | int) -> int | None:
    """Returns a descriptor to write to, what the file object still buffers being written first; None for a file in memory."""
    if isinstance(sink, int):
        return os.dup(sink)
    try:
        descriptor = sink.fileno()
    except (OSError, io.UnsupportedOperation):
        return None
    sink.flush()
    return os.dup(descriptor)


def _wait_until_writable(descriptor: int) -> bool:
    """Waits a while, and returns False when that was not long enough."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(_POLL_MS))


def _pieces(batch: bytearray, limit: int) -> Iterator[bytes]:
    """Yields whole lines in pieces of at most `limit` bytes; a longer line is a piece of its own."""
    start, end = 0, len(batch)
    while start < end:
        stop = end
        if end - start > limit:
            stop = batch.rfind(b"\n", start, start + limit) + 1
            stop = stop or batch.find(b"\n", start) + 1 or end
        yield bytes(batch[start:stop])
        start = stop
