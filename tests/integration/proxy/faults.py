"""Faults of networks and hosts, each for as long as its context lasts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import pytest


@dataclass
class Dials:
    """What was dialled while a fault lasted."""

    addresses: list[str] = field(default_factory=list)


@contextlib.contextmanager
def dialling_fails(address: str, number: int = errno.EHOSTUNREACH) -> Iterator[Dials]:
    """Makes each connect to `address` fail with this errno, as a network without a way to it does."""
    dials = Dials()

    def fail(host: str) -> None:
        if host == address:
            raise OSError(number, os.strerror(number))

    with _dialling_goes_through(lambda host: fail(host), dials):
        yield dials


@contextlib.contextmanager
def dialling_waits(for_what: asyncio.Event, address: str = "127.0.0.1") -> Iterator[Dials]:
    """Makes connects to `address` last until the event is set."""
    dials = Dials()

    async def wait(host: str) -> None:
        if host == address:
            await for_what.wait()

    with _dialling_goes_through(wait, dials):
        yield dials


@contextlib.contextmanager
def _dialling_goes_through(step: Callable[[str], object], dials: Dials) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def instead(factory, host=None, port=None, **options):
        if host is not None:
            dials.addresses.append(f"{host}:{port}")
            if (waiting := step(host)) is not None:
                await waiting
        return await connect(factory, host, port, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "create_connection", instead)
        yield


@contextlib.asynccontextmanager
async def silent_port() -> AsyncIterator[int]:
    """Yields a port of 127.0.0.1 where a connect is neither accepted nor refused: its queue is full."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as open_ones:
        listener = open_ones.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        while True:
            waiting = open_ones.enter_context(socket.socket())
            waiting.setblocking(False)
            try:
                async with asyncio.timeout(0.1):
                    await loop.sock_connect(waiting, listener.getsockname())
            except TimeoutError:
                break
        yield listener.getsockname()[1]
