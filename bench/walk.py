"""The walk of one GET through a live worker: every call of the router's own code, in order: `python -m bench.walk`.

The connection has been used before, its credential is known, and a connection to the sandbox is idle. In the compiled
form the calls between compiled functions can't be seen; what Python itself calls still can.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from bench import heads
from bench.forms import loaded_form
from bench.heads import Caller
from bench.plane_stage import Stage, perform
from bench.sandbox import ITEM_ANSWER

_USED_BEFORE = 3
_TURNS = 50


@dataclass(frozen=True, slots=True)
class Call:
    """One call: how deep, of which module's function."""

    depth: int
    module: str
    function: str


class Walk:
    """Notes the calls of functions of one package."""

    def __init__(self, package: str) -> None:
        self.calls: list[Call] = []
        self._start = f"{package}."
        self._open: list[FrameType] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(self._start):
            return
        if event == "call":
            self.calls.append(Call(len(self._open), module, frame.f_code.co_qualname))
            self._open.append(frame)
        elif event == "return" and self._open and self._open[-1] is frame:
            self._open.pop()

    @property
    def modules(self) -> list[str]:
        """In the order in which they are first entered."""
        return list(dict.fromkeys(call.module for call in self.calls))


async def of_one_get(stage: Stage) -> Walk:
    """The walk of a small GET whose credential and connections are all in use already."""
    client = stage.connect()
    requests = heads.different_gets(Caller("box-0", stage.token), _USED_BEFORE + 1)
    for request in requests[:-1]:
        client.arrive(request)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        (sandbox,) = stage.to_sandboxes
        sandbox.is_noted = client.is_noted = False
        stage.to_sandboxes.clear()
        sandbox.arrive(ITEM_ANSWER)
        stage.to_clients.clear()
    walk = Walk("router")
    with walk.watching():
        client.arrive(requests[-1])
        sandbox.arrive(ITEM_ANSWER)
    assert client.text().endswith(ITEM_ANSWER[-20:]), client.text()
    return walk


def to_text(calls: Iterable[Call]) -> str:
    """One line a call, indented by depth."""
    return "\n".join(f"{'  ' * call.depth}{call.module}.{call.function}" for call in calls)


def main() -> None:
    walk = perform(of_one_get)
    assert isinstance(walk, Walk)
    print(to_text(walk.calls))
    print(
        f"\n{len(walk.calls)} calls through {len(walk.modules)} modules ({loaded_form()} form): "
        f"{', '.join(walk.modules)}"
    )


if __name__ == "__main__":
    main()
