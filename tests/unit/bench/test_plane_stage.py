"""A worker without a network."""

from __future__ import annotations

import asyncio

import pytest

from bench.heads import Caller
from bench.plane_stage import Stage, Wire, perform
from bench.sandbox import ITEM_ANSWER


async def answered(stage: Stage, client: Wire) -> bytes:
    for _ in range(100):
        for wire in stage.to_sandboxes:
            wire.arrive(ITEM_ANSWER)
        stage.to_sandboxes.clear()
        if stage.to_clients:
            return client.text()
        await asyncio.sleep(0)
    raise AssertionError("no answer")


def test_a_request_goes_through_the_products_own_worker() -> None:
    async def act(stage: Stage) -> tuple[bytes, bytes]:
        client = stage.connect()
        client.arrive(Caller("box-0", stage.token).head("GET", "/items/1"))
        while not stage.to_sandboxes:
            await asyncio.sleep(0)
        asked = stage.to_sandboxes[0].text()
        return asked, await answered(stage, client)

    asked, answer = perform(act)

    assert asked.startswith(b"GET /items/1 HTTP/1.1\r\nHost: 127.0.0.1:8888\r\n")
    assert b"authorization" not in asked.lower()
    assert answer == ITEM_ANSWER


@pytest.mark.parametrize(("name", "status"), [("box-2", b"200"), ("box-3", b"404")])
def test_a_worker_knows_as_many_sandboxes_as_asked_for(name: str, status: bytes) -> None:
    async def act(stage: Stage) -> bytes:
        client = stage.connect()
        client.arrive(Caller(name, stage.token).head("GET", "/items/1"))
        return await answered(stage, client)

    assert perform(act, sandboxes=3)[9:12] == status


def test_a_wrong_token_is_refused_as_the_product_refuses_it() -> None:
    async def act(stage: Stage) -> bytes:
        client = stage.connect()
        client.arrive(Caller("box-0", "wrong").head("GET", "/items/1"))
        return await answered(stage, client)

    assert perform(act)[9:12] == b"401"


class Buffered(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.room = bytearray(4)
        self.got = b""

    def get_buffer(self, _hint: int) -> bytearray:
        return self.room

    def buffer_updated(self, size: int) -> None:
        self.got += self.room[:size]


def test_bytes_arrive_in_a_buffered_protocol_too(quiet: Wire) -> None:
    protocol = Buffered()
    quiet.set_protocol(protocol)

    quiet.arrive(b"longer than the buffer")

    assert protocol.got == b"longer than the buffer"


def test_a_wire_notes_once_that_it_was_written_to(quiet: Wire, noted: list[Wire]) -> None:
    quiet.write(b"one")
    quiet.writelines([b"two", b"three"])

    assert noted == [quiet]
    assert quiet.text() == b"twothree"
