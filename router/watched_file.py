"""WatchedFiles: a few mounted files that belong together, read again whenever they change."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

logger = logging.getLogger("sandbox_router.watched_file")

MAX_FILE_BYTES = 8 * 1024 * 1024
_READ_ATTEMPTS = 5

T = TypeVar("T")
Stamp = tuple[tuple[int, ...] | None, ...]


class FilesChangingError(OSError):
    """The files were being replaced while they were read: try again at the next poll."""


class FileStatus(NamedTuple):
    """How the last look at something that is read again and again ended."""

    name: str
    """Which of the router's files it is, for a label: `policy`, `jwt_secret` and the like."""
    ok: bool
    """True when what is there now is in force; stays False until it is."""
    last_success_unix: float
    """When the content in force was last put in force or found to be what is there; 0 for never."""
    error: str
    """Why it isn't ok; "" when it is."""


class Reloadable(Protocol):
    """Something outside that is read again whenever it changes."""

    async def reload(self) -> bool:
        """Reads it now. Returns True when new content was put in force."""
        ...

    def status(self, name: str) -> FileStatus:
        """Returns how the last look ended."""
        ...


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
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.paths = tuple(paths)
        self.reloads_succeeded = 0
        self.reloads_failed = 0
        self.last_error = ""
        """Why the newest content is not in force; "" when it is."""
        self.last_success_unix = 0.0
        self._parse = parse
        self._apply = apply
        self._poll_interval_s = poll_interval_s
        self._clock = clock
        self._stamp: Stamp = ()
        self._digest = b""
        self._looking = asyncio.Lock()

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
        self.last_success_unix = self._clock()

    async def run(self) -> None:
        """Watches for ever; cancel it to stop."""
        while True:
            await asyncio.sleep(self._poll_interval_s)
            await self.poll()

    async def poll(self) -> bool:
        """Looks once. Returns True when new content was put in force."""
        async with self._looking:
            return await self._poll()

    async def reload(self) -> bool:
        """Reads the files now, also when they look unchanged. Returns True when new content was put in force."""
        async with self._looking:
            self._stamp = ()
            return await self._poll()

    def status(self, name: str) -> FileStatus:
        """Returns how the last look ended, under the name that the router has for these files."""
        return FileStatus(name, not self.last_error, self.last_success_unix, self.last_error)

    async def _poll(self) -> bool:
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
        self._succeeded()
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
            self._succeeded()
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
            contents = tuple(read_regular(path) for path in self.paths)
            if self._current_stamp() == before:
                return before, contents
        self._stamp = ()
        raise FilesChangingError(self._names())

    def _current_stamp(self) -> Stamp:
        return tuple(_stamp(path) for path in self.paths)

    def _succeeded(self) -> None:
        self.last_error = ""
        self.last_success_unix = self._clock()

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


def read_regular(path: Path) -> bytes:
    """Returns a file's content, at most MAX_FILE_BYTES. Raises OSError for what is no regular file, ValueError for one that is larger.

    A FIFO or a device in a file's place would keep the thread that reads it for as long as somebody likes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"{kind_of_file(mode)}, not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    return content


def kind_of_file(mode: int) -> str:
    """Returns what stands where a file was expected, for a message."""
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


async def reload_all(sources: Mapping[str, Reloadable]) -> list[FileStatus]:
    """Reads everything now, side by side, and returns how that ended; says in the log what changed and what failed."""
    changed = await asyncio.gather(*(source.reload() for source in sources.values()))
    statuses = [source.status(name) for name, source in sources.items()]
    logger.info(
        "files read again because it was asked for",
        extra={
            "fields": {
                "changed": [name for name, new in zip(sources, changed, strict=True) if new],
                "failed": [status.name for status in statuses if not status.ok],
                "files": len(statuses),
            }
        },
    )
    return statuses


def _digest(contents: tuple[bytes, ...]) -> bytes:
    """Returns the digest of all contents, lengths included."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.digest()
