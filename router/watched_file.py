"""WatchedFiles: a few mounted files that belong together, read again whenever they change."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

logger = logging.getLogger("sandbox_router.watched_file")

MAX_FILE_BYTES = 8 * 1024 * 1024
_READ_ATTEMPTS = 5

T = TypeVar("T")
Stamp = tuple[tuple[int, ...] | None, ...]


class FilesChangingError(OSError):
    """The files were being replaced while they were read: try again at the next poll."""


class WatchedFiles(Generic[T]):
    """Polls files that are replaced together (a Secret's certificate with its key) and applies the new whole, or keeps the old.

    `parse` is pure and may be slow: once running, it is called in a thread. `apply` is called on the loop with its result.
    Both say what is wrong by ValueError or OSError; then what was in force stays in force.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        parse: Callable[[tuple[bytes, ...]], T],
        apply: Callable[[T], None],
        poll_interval_s: float = 1.0,
    ) -> None:
        self.paths = tuple(paths)
        self.reloads_succeeded = 0
        self.reloads_failed = 0
        self.last_error = ""
        """Why the newest content is not in force; "" when it is."""
        self._parse = parse
        self._apply = apply
        self._poll_interval_s = poll_interval_s
        self._stamp: Stamp = ()
        self._digest = b""

    def __repr__(self) -> str:
        names = ",".join(str(path) for path in self.paths)
        return (
            f"<WatchedFiles {names} succeeded={self.reloads_succeeded} failed={self.reloads_failed}"
            f" error={self.last_error!r}>"
        )

    def load_once(self) -> None:
        """Reads, parses and applies, blocking: for the start. Raises ValueError or OSError that names the file."""
        stamp, contents = self._read()
        try:
            value = self._parse(contents)
        except ValueError as error:
            raise ValueError(f"{self._names()}: {error}") from error
        self._apply(value)
        self._stamp, self._digest = stamp, _digest(contents)

    async def run(self) -> None:
        """Watches for ever; cancel it to stop."""
        while True:
            await asyncio.sleep(self._poll_interval_s)
            await self.poll()

    async def poll(self) -> bool:
        """Looks once. Returns True when new content was put in force."""
        try:
            found = await asyncio.to_thread(self._look)
            if found is None:
                return False
            stamp, digest, value = found
            self._apply(value)
        except FilesChangingError:
            return False
        except (ValueError, OSError) as error:
            self._failed(str(error))
            return False
        self._stamp, self._digest = stamp, digest
        self.reloads_succeeded += 1
        self.last_error = ""
        logger.info("file reloaded", extra={"fields": {"file": self._names()}})
        return True

    def _look(self) -> tuple[Stamp, bytes, T] | None:
        """Returns the new state when the files differ from what is in force, else None."""
        stamp = self._current_stamp()
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        stamp, contents = self._read()
        digest = _digest(contents)
        if digest == self._digest:
            self._stamp = stamp
            self.last_error = ""
            return None
        try:
            return stamp, digest, self._parse(contents)
        except FilesChangingError:
            self._stamp = ()
            raise

    def _read(self) -> tuple[Stamp, tuple[bytes, ...]]:
        """Returns all contents as they were at one moment: the stamps before and after are the same."""
        for _ in range(_READ_ATTEMPTS):
            before = self._current_stamp()
            contents = tuple(_read_bounded(path) for path in self.paths)
            if self._current_stamp() == before:
                return before, contents
        self._stamp = ()
        raise FilesChangingError(self._names())

    def _current_stamp(self) -> Stamp:
        return tuple(_stamp(path) for path in self.paths)

    def _failed(self, error: str) -> None:
        """Counts a bad new file once and says so once; the same bad content is not looked at again."""
        self.reloads_failed += 1
        self.last_error = error
        logger.error(
            "file not reloaded, the old content stays in force",
            extra={"fields": {"file": self._names(), "error": error}},
        )

    def _names(self) -> str:
        return ", ".join(str(path) for path in self.paths)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Returns what tells one version of a file from the next, through symbolic links; None when there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _read_bounded(path: Path) -> bytes:
    with open(path, "rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    return content


def _digest(contents: tuple[bytes, ...]) -> bytes:
    """Returns the digest of all contents, lengths included."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.digest()
