"""File discovery: sandboxes as an operator lists them in a YAML file, reloaded when it changes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from router.discovery.sandboxes_file import parse_sandboxes
from router.routing.endpoint import Endpoint
from router.routing.index import EndpointIndex
from router.watched_file import FileStatus, read_regular

logger = logging.getLogger("sandbox_router.discovery")

# A second write within one tick of the file system's clock leaves no trace in the times: a file this
# young is read again at the next poll.
_SETTLED_AFTER_S = 2.0

_Signature = tuple[str, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Reading:
    """One look at the file: what it said, or what was wrong with it."""

    signature: _Signature | None
    """What a cheap look compares; None when only the content tells."""
    digest: bytes
    endpoints: tuple[Endpoint, ...] = ()
    problem: str = ""


class FileDiscovery:
    """Keeps the index as the file says. A bad new file leaves the old table in force."""

    def __init__(
        self,
        *,
        path: Path,
        index: EndpointIndex,
        on_retired: Callable[[Endpoint], None],
        poll_interval_s: float = 1.0,
        default_namespace: str = "default",
    ) -> None:
        self.reloads_succeeded = 0
        """New contents taken over, the first included."""
        self.reloads_failed = 0
        """New contents (or losses of the file) that were not."""
        self.last_success_unix = 0.0
        self._path = path
        self._index = index
        self._on_retired = on_retired
        self._poll_interval_s = poll_interval_s
        self._default_namespace = default_namespace
        self._seen: _Reading | None = None
        index.set_awaited(None)
        self._looking = asyncio.Lock()

    def __repr__(self) -> str:
        problem = self._seen.problem if self._seen else "not read yet"
        return (
            f"<FileDiscovery {self._path} reloads={self.reloads_succeeded} "
            f"failures={self.reloads_failed} problem={problem!r}>"
        )

    def load_once(self) -> None:
        """Reads the file now. Raises ValueError that names file, line and what to do, with the table unchanged."""
        reading = self._look(None)
        if reading.problem:
            raise ValueError(reading.problem)
        self._take(reading)

    async def run(self) -> None:
        """Follows the file until cancelled."""
        while True:
            await self._poll()
            await asyncio.sleep(self._poll_interval_s)

    async def reload(self) -> bool:
        """Reads the file now, also when it looks unchanged. Returns True when a new table was put in force."""
        before = self.reloads_succeeded
        async with self._looking:
            seen = self._seen and replace(self._seen, signature=None)
            self._take(await asyncio.to_thread(self._look, seen))
        return self.reloads_succeeded > before

    async def _poll(self) -> None:
        async with self._looking:
            # In a thread: a disk that hangs must not stop the requests of this process.
            self._take(await asyncio.to_thread(self._look, self._seen))

    def missing(self) -> list[str]:
        """Returns what keeps the router from being ready: a table that never was loaded."""
        if self.reloads_succeeded:
            return []
        return [f"the sandboxes file {self._path} has not been loaded yet"]

    def _look(self, seen: _Reading | None) -> _Reading:
        """Returns what the file says now; `seen` itself when nothing changed. Touches no state: it runs in a thread."""
        try:
            signature = _signature(self._path)
            if seen is not None and signature is not None and signature == seen.signature:
                return seen
            content = read_regular(self._path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            problem = f"{self._path}: cannot be read: {why}"
            return seen if seen and seen.problem == problem else _Reading(None, b"", (), problem)
        digest = hashlib.sha256(content).digest()
        if seen is not None and digest == seen.digest:
            return replace(seen, signature=signature)
        try:
            endpoints = parse_sandboxes(
                content, source=str(self._path), default_namespace=self._default_namespace
            )
        except ValueError as error:
            return _Reading(signature, digest, (), str(error))
        return _Reading(signature, digest, endpoints)

    def _take(self, reading: _Reading) -> None:
        """Makes a reading the table, or tells once why it can't be. The age of the table grows while it isn't."""
        seen, self._seen = self._seen, reading
        is_news = seen is None or (seen.digest, seen.problem) != (reading.digest, reading.problem)
        if is_news and reading.problem:
            self.reloads_failed += 1
            logger.warning(
                "sandboxes file not loaded, the last good table stays",
                extra={"fields": {"file": str(self._path), "reason": reading.problem}},
            )
        elif is_news:
            self.reloads_succeeded += 1
            self._index.set_awaited(frozenset())
            for endpoint in self._index.replace(reading.endpoints):
                self._on_retired(endpoint)
            logger.info(
                "sandboxes file loaded",
                extra={"fields": {"file": str(self._path), "sandboxes": len(reading.endpoints)}},
            )
        if not reading.problem:
            if is_news:
                self.last_success_unix = time.time()
            self._index.set_synced()

    def status(self, name: str) -> FileStatus:
        """Returns how the last look ended, as other files tell it."""
        problem = self._seen.problem if self._seen else "not read yet"
        return FileStatus(name, not problem, self.last_success_unix, problem)


def _signature(path: Path) -> _Signature | None:
    """Returns what changes whenever the file does, or None while it is too young to tell. Raises OSError.

    A mounted Secret or ConfigMap is rotated by a symbolic link: the name stays, target and inode change.
    """
    status = os.stat(path)
    if time.time() - max(status.st_mtime, status.st_ctime) < _SETTLED_AFTER_S:
        return None
    return (
        os.path.realpath(path),
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
