"""The demo as a process of its own, and a shell beside it."""

import asyncio
import os
import re
import select
import sys
from contextlib import asynccontextmanager

DEADLINE_S = 60.0


class Demo:
    """The running command, and what it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.text = ""

    async def until(self, pattern: str) -> re.Match[str]:
        """Returns the first match in what was printed, as soon as it is there."""
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            while not (found := re.search(pattern, self.text, re.MULTILINE)):
                chunk = await self.process.stdout.read(65536)
                assert chunk, f"it ended without {pattern!r}:\n{self.text}"
                self.text += chunk.decode()
        return found

    async def end(self) -> int:
        """Returns the exit status once everything was printed."""
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            self.text += (await self.process.stdout.read()).decode()
            return await self.process.wait()


@asynccontextmanager
async def running(*arguments: str):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "demo", "--port", "0", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    demo = Demo(process)
    try:
        yield demo
    finally:
        if process.returncode is None:
            process.kill()
        await demo.end()


async def shell(*lines: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", "\n".join(lines)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(DEADLINE_S):
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def assert_all_end(handles: list[int]) -> None:
    for handle in handles:
        has_ended = select.select([handle], [], [], 15)[0]
        os.close(handle)
        assert has_ended, "a process outlived the demo"


def commands_in(text: str) -> list[str]:
    """Returns each command line that a demo printed to be pasted."""
    return re.findall(r"^  # .+\n  (.+)$", text, re.MULTILINE)
