"""The demo from its first line to Ctrl-C: start everything, take the tour, tell, keep serving."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from router.demo import report
from router.demo.child import StepFailed
from router.demo.router_lines import RouterLines
from router.demo.shows import Answering, Show, Sleeping
from router.demo.stage import Place, Stage

HTTP_PORT = 8080
INTERRUPTED = 130


def run(*, once: bool, http_port: int | None = None, sleeps: bool = False) -> int:
    """Runs the demo in this process's main thread and returns its exit status.

    `sleeps` shows a sandbox that is suspended and woken. `once` ends after the table. The router listens on `http_port` (8080) if it is free, else on a free one; 0 asks for that.
    """
    preferred = HTTP_PORT if http_port is None else http_port
    try:
        return asyncio.run(_run(once=once, http_port=preferred, sleeps=sleeps))
    except StepFailed as error:
        _tell(report.failure(error))
        return 1
    except asyncio.CancelledError:
        _tell("Stopped before the demo was done.")
        return INTERRUPTED


async def _run(*, once: bool, http_port: int, sleeps: bool) -> int:
    task = asyncio.current_task()
    assert task is not None
    _on_signals(task.cancel)
    router_lines = RouterLines(_tell)
    async with (
        Stage(environment=os.environ, on_router_line=router_lines.take) as stage,
        AsyncExitStack() as resources,
    ):
        show: Show = Sleeping(stage, resources) if sleeps else Answering(stage)
        _tell(show.opening)
        sandbox_ports = await show.start_sandboxes()
        for name, port in sandbox_ports.items():
            _tell(f"  sandbox {name:8} 127.0.0.1:{port}")
        place = await show.start_router(sandbox_ports, http_port=http_port)
        taken = "" if http_port in (0, place.port) else f"   (port {http_port} is taken)"
        _tell(f"  the router       {place.url}{taken}\n  its admin port   {place.admin_url}\n")
        rows = await show.tour(place, router_lines)
        _tell(report.table(rows) + "\n")
        wrong = [row for row in rows if not row.is_right]
        if wrong:
            why = f"{wrong[0].status or 'no answer'}, {wrong[0].answer}"
            raise stage.router.failure(f"get the right answer to {wrong[0].request}", why)
        if not once:
            await show.make_ready_to_try(place)
            await _serve(show, stage, place, router_lines)
    return 0


async def _serve(show: Show, stage: Stage, place: Place, router_lines: RouterLines) -> None:
    """Keeps everything running until a signal. Raises StepFailed when a process ends by itself."""
    _on_signals(stage.ending.set)
    page_url, again = stage.home_link(place), report.link_command(place, stage.session_keys)
    _tell(show.hints(place, python=_python_as_typed(), page_url=page_url, again=again))
    _tell("\nServing until Ctrl-C. The router's log so far, and as it goes on:\n")
    router_lines.show()
    await stage.until_ending()
    router_lines.hide()
    _tell("\nEnding the router and the sandboxes.")


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
