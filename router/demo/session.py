"""The demo from its first line to Ctrl-C: start everything, take the tour, tell, keep serving."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from router.demo import report
from router.demo.child import StepFailed
from router.demo.door import open_door
from router.demo.stage import Place, Stage
from router.demo.tour import take_tour

HTTP_PORT = 8080
INTERRUPTED = 130


def run(*, once: bool, http_port: int | None = None) -> int:
    """Runs the demo in this process's main thread and returns its exit status.

    `once` ends after the table. The router listens on `http_port` (8080) if it is free, else on a free one; 0 asks for that.
    """
    preferred = HTTP_PORT if http_port is None else http_port
    try:
        return asyncio.run(_run(once=once, http_port=preferred))
    except StepFailed as error:
        _tell(report.failure(error))
        return 1
    except asyncio.CancelledError:
        _tell("Stopped before the demo was done.")
        return INTERRUPTED


async def _run(*, once: bool, http_port: int) -> int:
    task = asyncio.current_task()
    assert task is not None
    _on_signals(task.cancel)
    router_lines = _RouterLines()
    async with Stage(environment=os.environ, on_router_line=router_lines.take) as stage:
        _tell("Starting three sandboxes, each its own process, and a router in front of them.\n")
        sandbox_ports = await stage.start_sandboxes()
        for name, port in sandbox_ports.items():
            _tell(f"  sandbox {name:8} 127.0.0.1:{port}")
        place = await stage.start_router(sandbox_ports, http_port=http_port)
        taken = "" if http_port in (0, place.port) else f"   (port {http_port} is taken)"
        _tell(f"  the router       {place.url}{taken}\n  its admin port   {place.admin_url}\n")
        rows = await take_tour(place)
        _tell(report.table(rows) + "\n")
        wrong = [row for row in rows if not row.is_right]
        if wrong:
            why = f"{wrong[0].status or 'no answer'}, {wrong[0].answer}"
            raise stage.router.failure(f"get the right answer to {wrong[0].request}", why)
        if not once:
            await _serve(stage, place, router_lines)
    return 0


async def _serve(stage: Stage, place: Place, router_lines: _RouterLines) -> None:
    """Keeps everything running until a signal. Raises StepFailed when a process ends by itself."""
    _on_signals(stage.ending.set)
    async with open_door(place, sandbox="echo") as page_url:
        commands = report.commands(place, python=_python_as_typed())
        _tell(report.hints(commands, page_url=page_url))
        _tell("\nServing until Ctrl-C. The router's log so far, and as it goes on:\n")
        router_lines.show()
        await stage.until_ending()
        router_lines.hide()
    _tell("\nEnding the router and the sandboxes.")


class _RouterLines:
    """Keeps what the router logs until the table has been read, then shows it as it comes."""

    def __init__(self) -> None:
        self._kept: list[str] | None = []

    def take(self, line: str) -> None:
        if self._kept is None:
            _tell(line)
        else:
            self._kept.append(line)

    def show(self) -> None:
        kept, self._kept = self._kept or [], None
        for line in kept:
            _tell(line)

    def hide(self) -> None:
        self._kept = []


def _on_signals(act: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, act)


def _python_as_typed() -> str:
    """Returns this interpreter as short as it can be typed from the current directory."""
    python, here = Path(sys.executable), Path.cwd()
    return str(python.relative_to(here) if python.is_relative_to(here) else python)


def _tell(text: str) -> None:
    print(text, flush=True)
