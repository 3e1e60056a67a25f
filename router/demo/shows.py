"""The two shows of the demo: sandboxes that answer, and one that sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import ClassVar, Protocol

from router.auth.minting import SigningKey, grant_claim, mint
from router.demo import report
from router.demo.router_lines import RouterLines
from router.demo.sleep_tour import SleepTour, suspend
from router.demo.sleeper import BOOT_S, Sleeper, open_switch
from router.demo.stage import NAMESPACE, Launch, Place, Stage, port_of
from router.demo.tour import STEP_S, Row, take_tour

SLEEPING = "echo"
TOKEN_LIFE_S = 7 * 24 * 3600.0


class Show(Protocol):
    """What is started, asked and told of one show, in this order."""

    opening: ClassVar[str]

    async def start_sandboxes(self) -> Mapping[str, int]:
        """Returns the port of each sandbox once all of them listen. Raises StepFailed."""
        ...

    async def start_router(self, ports: Mapping[str, int], *, http_port: int) -> Place:
        """Returns where the router listens once it is ready. Raises StepFailed."""
        ...

    async def tour(self, place: Place, lines: RouterLines) -> list[Row]:
        """Returns what came back of each request."""
        ...

    async def make_ready_to_try(self, place: Place) -> None:
        """Brings everything to where the hints begin. Raises TimeoutError."""
        ...

    def hints(self, place: Place, *, python: str, page_url: str, again: str) -> str:
        """Returns what to try by hand; `again` is the command for another `page_url`."""
        ...


class Answering:
    """Three sandboxes that answer: a plain app, a stream, a WebSocket."""

    opening: ClassVar[str] = (
        "Starting three sandboxes, each its own process, and a router in front of them.\n"
    )

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def start_sandboxes(self) -> Mapping[str, int]:
        return await self._stage.start_sandboxes()

    async def start_router(self, ports: Mapping[str, int], *, http_port: int) -> Place:
        return await self._stage.start_router(ports, http_port=http_port)

    async def tour(self, place: Place, lines: RouterLines) -> list[Row]:
        return await take_tour(place)

    async def make_ready_to_try(self, place: Place) -> None:
        """It is all there."""

    def hints(self, place: Place, *, python: str, page_url: str, again: str) -> str:
        commands = report.commands(place, python=python)
        return report.hints(commands, page_url=page_url, again=f"{python} -m router {again}")


class Sleeping:
    """One sandbox that is always there, and one that is suspended and woken by requests."""

    opening: ClassVar[str] = (
        "Starting two sandboxes, each its own process, and a router in front of them that wakes the second one\n"
        f"(wake: all). To wake it is to start its process, which then takes {BOOT_S} s, in place of an image and a volume.\n"
    )

    def __init__(self, stage: Stage, resources: AsyncExitStack) -> None:
        """`resources` must be closed before the stage."""
        self._stage = stage
        self._resources = resources
        self._switch = stage.folder / "switch"
        self._sleeper: Sleeper
        self._guest = ""

    async def start_sandboxes(self) -> Mapping[str, int]:
        ports = await self._stage.start_sandboxes(["hello"])
        child = await self._stage.start_sandbox(SLEEPING)
        ports[SLEEPING] = await port_of(child)
        self._sleeper = Sleeper(SLEEPING, stage=self._stage, child=child, ports=ports)
        await self._resources.enter_async_context(open_switch(self._sleeper, self._switch))
        return ports

    async def start_router(self, ports: Mapping[str, int], *, http_port: int) -> Place:
        key = SigningKey.generate("HS256")
        secret_file = self._stage.folder / "jwt-secret"
        secret_file.write_bytes(key.material)
        self._guest = _token(key, "guest", wake=False)
        launch = Launch(
            program=("router.demo.waking_router", str(self._switch)),
            token=_token(key, "owner", wake=True),
            auth_flags=("--auth", "jwt", "--jwt-secret-file", str(secret_file)),
        )
        return await self._stage.start_router(ports, http_port=http_port, launch=launch)

    async def tour(self, place: Place, lines: RouterLines) -> list[Row]:
        tour = SleepTour(place, self._sleeper, guest=self._guest, line_with=lines.line_with)
        return await tour.take()

    async def make_ready_to_try(self, place: Place) -> None:
        async with asyncio.timeout(STEP_S):
            await suspend(self._sleeper, place)

    def hints(self, place: Place, *, python: str, page_url: str, again: str) -> str:
        commands = report.sleep_commands(
            place, sleeping=SLEEPING, switch=str(self._switch), guest=self._guest
        )
        return report.sleep_hints(commands, page_url=page_url, again=f"{python} -m router {again}")


def _token(key: SigningKey, subject: str, *, wake: bool) -> str:
    grant = grant_claim(namespace=NAMESPACE, name="*", uid="", ports=(), methods=(), wake=wake)
    return mint(key, grants=[grant], ttl_s=TOKEN_LIFE_S, subject=subject)
