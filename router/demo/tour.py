"""The tour: four requests through the router, and what came back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp

from router.demo.sandboxes import TICK_S
from router.demo.stage import Place

STEP_S = 10.0
TICKS = 3
MESSAGE = "Hello, sandbox"


@dataclass(frozen=True, slots=True)
class Row:
    """One request of the tour: what was asked, what came back, and whether that is what should have come."""

    request: str
    sandbox: str
    status: int
    answer: str
    is_right: bool
    took_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back of one request, and whether that is right."""

    status: int
    text: str
    is_right: bool


Step = Callable[[], Awaitable[Answer]]


async def take_tour(place: Place) -> list[Row]:
    """Returns one row a request, wrong answers and failures included."""
    async with aiohttp.ClientSession() as session:
        return [
            await row_of("GET /", "hello", lambda: get_hello(session, place)),
            await row_of(f"GET /events?count={TICKS}", "ticker", lambda: _stream(session, place)),
            await row_of("WebSocket /ws", "echo", lambda: _websocket(session, place)),
            await row_of("GET / without token", "hello", lambda: _refused(session, place)),
        ]


async def row_of(request: str, sandbox: str, step: Step, *, limit_s: float = STEP_S) -> Row:
    """Returns what came of one step, which asks through the router and judges the answer."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(limit_s):
            answer = await step()
    except TimeoutError:
        answer = Answer(0, f"nothing within {limit_s:g} s", is_right=False)
    except aiohttp.WSServerHandshakeError as error:
        answer = Answer(error.status, "the upgrade was refused", is_right=False)
    except (aiohttp.ClientError, OSError) as error:
        answer = Answer(0, f"{type(error).__name__}: {error}", is_right=False)
    took_s = time.perf_counter() - began
    return Row(request, sandbox, answer.status, answer.text, answer.is_right, took_s)


def headers_for(place: Place, sandbox: str) -> dict[str, str]:
    """Returns the credential, and the header that names the sandbox."""
    return {**place.credential, "X-Sandbox-ID": sandbox}


async def get_hello(session: aiohttp.ClientSession, place: Place) -> Answer:
    """Asks the sandbox hello for its page."""
    async with session.get(place.url, headers=headers_for(place, "hello")) as response:
        first_line = (await response.text()).partition("\n")[0]
    is_right = response.status == 200 and first_line == "Hello from sandbox hello."
    return Answer(response.status, first_line, is_right)


async def _stream(session: aiohttp.ClientSession, place: Place) -> Answer:
    url = f"{place.url}/events?count={TICKS}"
    async with session.get(url, headers=headers_for(place, "ticker")) as response:
        arrived_at = [
            time.perf_counter() async for line in response.content if line.startswith(b"data: ")
        ]
    if len(arrived_at) != TICKS:
        return Answer(response.status, f"{len(arrived_at)} events, not {TICKS}", is_right=False)
    spread_s = arrived_at[-1] - arrived_at[0]
    # Events that were held back and passed on together would arrive at one moment.
    is_streamed = spread_s > TICK_S * (TICKS - 1) / 2
    text = f"{TICKS} events, spread over {spread_s * 1000:.0f} ms as they were sent"
    return Answer(response.status, text, response.status == 200 and is_streamed)


async def _websocket(session: aiohttp.ClientSession, place: Place) -> Answer:
    url = f"{place.url}/ws".replace("http", "ws", 1)
    async with session.ws_connect(url, headers=headers_for(place, "echo")) as connection:
        await connection.send_str(MESSAGE)
        echoed = await connection.receive_str()
    return Answer(101, f'"{echoed}" came back', echoed == MESSAGE)


async def _refused(session: aiohttp.ClientSession, place: Place) -> Answer:
    async with session.get(place.url, headers={"X-Sandbox-ID": "hello"}) as response:
        code = response.headers.get("X-Sandbox-Router-Error", "no router error")
    is_right = response.status == 401 and code == "unauthenticated"
    return Answer(response.status, f"{code}, as it should be" if is_right else code, is_right)
