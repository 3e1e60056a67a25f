"""Child: one process that the demo started, and its last words."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

KEPT_LINES = 30
LINE_LIMIT_BYTES = 1 << 20
PR_SET_PDEATHSIG = 1  # linux/prctl.h

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class StepFailed(Exception):
    """A step of the demo that did not work. Says which, why, and what the process in question last wrote."""

    def __init__(self, step: str, why: str, *, lines: Sequence[str] = ()) -> None:
        self.step = step
        self.why = why
        self.lines = tuple(lines)
        super().__init__(f"{step}: {why}")


class Child:
    """A running process in its own process group, so that Ctrl-C reaches it only through stop().

    Whoever starts it must keep watch() running as a task: it reads what the process writes.
    """

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        *,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.ended = asyncio.Event()
        self._process = process
        self._on_line = on_line
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        state = f"ended {self._process.returncode}" if self.ended.is_set() else "running"
        return f"<Child {self.name} pid={self.pid} {state}>"

    @classmethod
    async def start(
        cls,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        on_line: Callable[[str], None] | None = None,
    ) -> Child:
        """Returns the started process. Raises StepFailed when the program can't be run."""
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                limit=LINE_LIMIT_BYTES,
                start_new_session=True,
                preexec_fn=partial(_die_with, os.getpid()),
            )
        except OSError as error:
            raise StepFailed(f"start {name}", str(error)) from error
        return cls(name, process, on_line=on_line)

    @property
    def pid(self) -> int:
        """The process id, which is its process group's too."""
        return self._process.pid

    async def watch(self) -> None:
        """Reads the process's output until it ends."""
        assert self._process.stdout is not None
        try:
            async for raw in self._process.stdout:
                line = raw.decode("utf-8", "replace").rstrip()
                self.lines.append(line)
                self._news.set()
                if self._on_line is not None:
                    self._on_line(line)
            await self._process.wait()
        finally:
            self.ended.set()
            self._news.set()

    async def line(self, beginning: str, *, timeout_s: float) -> str:
        """Returns the rest of the first line with that beginning. Raises StepFailed when none comes in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    for line in self.lines:
                        if line.startswith(beginning):
                            return line.removeprefix(beginning)
                    self.must_run(f"start {self.name}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            why = f"it did not say {beginning!r} within {timeout_s:g} s"
            raise self.failure(f"start {self.name}", why) from None

    def must_run(self, step: str) -> None:
        """Raises StepFailed when the process has ended."""
        if self.ended.is_set():
            raise self.failure(step, f"it ended with {self._process.returncode}")

    def failure(self, step: str, why: str) -> StepFailed:
        """Returns the error that shows this process's last lines."""
        return StepFailed(step, why, lines=self.lines)

    async def stop(self, *, grace_s: float) -> None:
        """Asks the process to end, kills its whole group after `grace_s` seconds, and returns when it is gone."""
        try:
            async with asyncio.timeout(grace_s):
                self._signal(signal.SIGTERM)
                await self.ended.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self.ended.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                pass  # it ended a moment ago; watch() is about to notice


def _die_with(parent: int) -> None:
    """Asks Linux to end this process when its parent dies, even by SIGKILL. Runs between fork and exec."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)
