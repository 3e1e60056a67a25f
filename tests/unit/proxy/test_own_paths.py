"""What the router answers itself under its own prefix, to whom, and that no sandbox ever sees it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from router.errors import Forbidden, Overloaded, RouterError
from router.proxy.caller import Caller
from router.proxy.options import ProxyOptions
from router.proxy.own_paths import OwnPaths
from router.proxy.request import Request
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import parse_request
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.target import Target
from router.tasks import TaskSet
from router.timestamps import parse_timestamp
from tests.unit.proxy.stage import BOX, TO_BOX, Client, Stage

BY_HEADER = (b"/.sandbox-router/", TO_BOX)
BY_HOST = (b"/.sandbox-router/", b"Host: 8888-box.boxes.test\r\n")
BY_PATH = (b"/s/default/box/8888/.sandbox-router/", b"Host: router\r\n")


class Wishes:
    """In the Activity's place."""

    def __init__(self) -> None:
        self.noted: list[tuple[Endpoint, float]] = []
        self.is_safe = asyncio.Event()
        self.is_safe.set()
        self.error: RouterError | None = None

    async def keep_awake(self, endpoint: Endpoint, seconds: float) -> float:
        self.noted.append((endpoint, seconds))
        await self.is_safe.wait()
        if self.error is not None:
            raise self.error
        return seconds


class Place:
    def __init__(self, **options: Any) -> None:
        self.wishes = Wishes()
        self.tasks = TaskSet()
        own_paths = OwnPaths(awake=self.wishes, awake_limit_s=43_200.0, tasks=self.tasks)
        assert repr(own_paths) == "<OwnPaths awake_limit_s=43200>"
        self.stage = Stage(
            own_paths=own_paths, base_domain="boxes.test", path_prefix="/s", **options
        )

    async def answer(self, client: Client) -> tuple[int, dict[bytes, bytes], bytes]:
        """Returns status, headers and body of the final response."""
        await self.stage.until(lambda: b"\r\n\r\n" in client.wire.sent)
        head, _, body = client.received().partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines)
        return int(first.split()[1]), headers, body

    async def ask(
        self,
        body: bytes = b'{"seconds": 600}',
        *,
        method: bytes = b"POST",
        path: bytes = b"awake",
        way: tuple[bytes, bytes] = BY_HEADER,
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        client = self.stage.client()
        length = b"Content-Length: %d\r\n" % len(body) if body else b""
        client.send(
            b"%b %b%b HTTP/1.1\r\n%b%b\r\n%b" % (method, way[0], path, way[1], length, body)
        )
        return await self.answer(client)


@pytest.mark.parametrize("way", [BY_HEADER, BY_HOST, BY_PATH], ids=["header", "host", "path"])
async def test_a_sandbox_is_kept_awake_whichever_way_it_is_named(way: tuple[bytes, bytes]) -> None:
    place = Place()
    status, headers, body = await place.ask(way=way)
    told = json.loads(body)
    assert (status, told["seconds"]) == (200, 600)
    assert parse_timestamp(told["awake_until"]) > 0
    assert headers[b"Cache-Control"] == b"no-store"
    assert place.wishes.noted == [(BOX, 600.0)]
    assert place.stage.shelf.opened == [], "the sandbox hears nothing of it"
    assert place.stage.records.outcome.used is BOX


async def test_the_connection_carries_the_next_request() -> None:
    place = Place()
    client = place.stage.client()
    request = (
        b'POST /.sandbox-router/awake?x=1 HTTP/1.1\r\n%bContent-Length: 13\r\n\r\n{"seconds":1}'
    )
    for number in (1, 2):
        client.send(request % TO_BOX)
        status, _, _ = await place.answer(client)
        assert (status, len(place.wishes.noted)) == (200, number)


async def test_a_body_may_come_in_pieces_in_chunks_or_after_a_hundred() -> None:
    place = Place()
    client = place.stage.client()
    client.send(b"POST /.sandbox-router/awake HTTP/1.1\r\n%bContent-Length: 13\r\n\r\n{" % TO_BOX)
    for byte in b'"seconds":1}':
        await asyncio.sleep(0)
        client.send(bytes((byte,)))
    assert (await place.answer(client))[0] == 200
    client.send(
        b"POST /.sandbox-router/awake HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % TO_BOX
    )
    client.send(b'9\r\n{"seconds\r\n4\r\n":2}\r\n0\r\n\r\n')
    assert (await place.answer(client))[0] == 200
    client.send(
        b"POST /.sandbox-router/awake HTTP/1.1\r\n%bContent-Length: 13\r\n"
        b"Expect: 100-continue\r\n\r\n" % TO_BOX
    )
    assert (await place.answer(client))[0] == 100
    client.send(b'{"seconds":3}')
    assert (await place.answer(client))[0] == 200
    assert [seconds for _, seconds in place.wishes.noted] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "no JSON"),
        (b"seconds=5", "no JSON"),
        (b"[5]", "must name seconds"),
        (b"{}", "must name seconds"),
        (b'{"seconds": 5, "hours": 1}', "must name seconds"),
        (b'{"seconds": "5"}', "a number above 0"),
        (b'{"seconds": true}', "a number above 0"),
        (b'{"seconds": 0}', "a number above 0"),
        (b'{"seconds": -1}', "a number above 0"),
        (b'{"seconds": NaN}', "no JSON"),
        (b'{"seconds": 43201}', "at most 43200 here (awake-limit)"),
        (b'{"seconds": 1e300}', "at most 43200"),
        (b" " * 4097, "larger than 4096 bytes"),
    ],
)
async def test_a_bad_body_is_answered_with_what_is_wrong(body: bytes, says: str) -> None:
    place = Place()
    status, headers, answer = await place.ask(body)
    assert (status, headers[b"X-Sandbox-Router-Error"]) == (400, b"bad_request")
    assert says in json.loads(answer)["detail"]
    assert place.wishes.noted == []
    assert place.stage.records.outcome.used is None, "a refused request is no activity"


@pytest.mark.parametrize(
    ("method", "path", "status"), [(b"GET", b"awake", 405), (b"POST", b"nothing", 404)]
)
async def test_what_is_refused_in_the_end_waits_for_no_sandbox(
    method: bytes, path: bytes, status: int
) -> None:
    place = Place(limits=ProxyOptions(wait_for_ready_s=10.0))
    place.stage.index.upsert(replace(BOX, state=State.STARTING, addresses=()))
    assert (await place.ask(b"", method=method, path=path))[0] == status
    assert place.stage.index.waiting() == 0


async def test_a_body_in_more_chunks_than_one_turn_takes_is_read_to_its_end() -> None:
    place = Place()
    client = place.stage.client()
    text = b'{"seconds":2}'.ljust(4000)
    client.send(
        b"POST /.sandbox-router/awake HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % TO_BOX
        + b"".join(b"1\r\n%c\r\n" % byte for byte in text)
        + b"0\r\n\r\n"
    )
    assert (await place.answer(client))[0] == 200
    assert [seconds for _, seconds in place.wishes.noted] == [2.0]


async def test_chunks_without_end_are_refused_when_they_are_too_many() -> None:
    place = Place()
    client = place.stage.client()
    client.send(
        b"POST /.sandbox-router/awake HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % TO_BOX
    )
    client.send(b"1001\r\n" + b" " * 4097)
    assert (await place.answer(client))[0] == 400


@pytest.mark.parametrize("way", [BY_HEADER, BY_HOST, BY_PATH], ids=["header", "host", "path"])
@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        (b"GET", b"awake", 405, b"method_not_allowed"),
        (b"POST", b"awake/", 404, b"router_path_not_found"),
        (b"POST", b"tcp", 404, b"router_path_not_found"),
        (b"GET", b"", 404, b"router_path_not_found"),
    ],
)
async def test_the_whole_prefix_is_the_routers(
    method: bytes, path: bytes, status: int, code: bytes, way: tuple[bytes, bytes]
) -> None:
    place = Place()
    told, headers, _ = await place.ask(b"", method=method, path=path, way=way)
    assert (told, headers[b"X-Sandbox-Router-Error"]) == (status, code)
    assert headers.get(b"Allow") == (b"POST" if status == 405 else None)
    assert place.stage.shelf.opened == []


@pytest.mark.parametrize(
    "path", [b"/.sandbox-router", b"/.sandbox-routers/awake", b"/x/.sandbox-router/awake", b"/."]
)
async def test_every_other_path_is_the_sandboxs(path: bytes) -> None:
    place = Place()
    place.stage.client().send(b"GET %b HTTP/1.1\r\n%b\r\n" % (path, TO_BOX))
    assert place.stage.sandbox().received().startswith(b"GET %b " % path)


async def test_it_needs_the_right_to_call_that_sandbox() -> None:
    class Nobody:
        generation = 0

        def authorize(self, *asked: Any) -> Any:
            raise Forbidden

        admit = authorize

    place = Place(authorizer=Nobody())
    status, headers, _ = await place.ask()
    assert (status, headers[b"X-Sandbox-Router-Error"]) == (403, b"forbidden")
    assert place.wishes.noted == []


@pytest.mark.parametrize(("state", "status"), [(State.SUSPENDED, 409), (State.FINISHED, 410)])
async def test_a_sandbox_that_is_not_there_is_answered_as_ever(state: State, status: int) -> None:
    place = Place()
    place.stage.index.upsert(Endpoint(SandboxRef("default", "box"), "", state))
    assert (await place.ask())[0] == status
    assert place.wishes.noted == []


async def test_a_starting_sandbox_is_waited_for() -> None:

    place = Place(limits=ProxyOptions(wait_for_ready_s=60.0))
    place.stage.index.upsert(Endpoint(SandboxRef("default", "box"), "", State.STARTING))
    asking = asyncio.get_running_loop().create_task(place.ask())
    await asyncio.sleep(0.02)
    assert not asking.done()
    place.stage.index.upsert(BOX)
    assert (await asking)[0] == 200
    assert place.wishes.noted == [(BOX, 600.0)]


async def test_a_client_that_leaves_before_its_answer_asked_for_nothing() -> None:
    place = Place()
    client = place.stage.client()
    client.send(
        b'POST /.sandbox-router/awake HTTP/1.1\r\n%bContent-Length: 13\r\n\r\n{"seconds":1}'
        % TO_BOX
    )
    client.leave()
    await asyncio.sleep(0.01)
    assert place.wishes.noted == []


async def test_the_answer_waits_until_the_wish_is_safe() -> None:
    place = Place()
    place.wishes.is_safe.clear()
    asking = asyncio.get_running_loop().create_task(place.ask())
    await asyncio.sleep(0.01)
    assert len(place.wishes.noted) == 1
    assert not asking.done()
    place.wishes.is_safe.set()
    assert (await asking)[0] == 200


async def test_a_wish_that_is_not_safe_is_not_promised() -> None:
    place = Place()
    place.wishes.error = Overloaded()
    status, headers, _ = await place.ask()
    assert (status, headers[b"X-Sandbox-Router-Error"]) == (503, b"overloaded")


@pytest.mark.parametrize("error", [None, Overloaded()], ids=["noted", "failed"])
async def test_a_client_that_leaves_while_its_wish_is_noted_is_answered_nothing(
    error: RouterError | None,
) -> None:
    place = Place()
    place.wishes.is_safe.clear()
    place.wishes.error = error
    client = place.stage.client()
    client.send(
        b'POST /.sandbox-router/awake HTTP/1.1\r\n%bContent-Length: 13\r\n\r\n{"seconds":1}'
        % TO_BOX
    )
    await place.stage.until(lambda: bool(place.wishes.noted))
    client.leave()
    place.wishes.is_safe.set()
    await place.stage.until(lambda: len(place.tasks) == 0)
    assert client.received() == b""
    assert len(place.stage.records.outcomes) == 1, "it ended once"


async def test_a_router_that_is_ending_takes_no_wish() -> None:
    place = Place()
    await place.tasks.close()
    status, headers, _ = await place.ask()
    assert (status, headers[b"X-Sandbox-Router-Error"]) == (503, b"draining")
    assert place.wishes.noted == []


async def test_a_public_port_is_no_right_to_keep_its_sandbox_awake() -> None:
    from router.auth.anonymous import PUBLIC
    from router.auth.authenticator import Authenticated
    from router.errors import Unauthenticated

    own = OwnPaths(awake=Wishes(), awake_limit_s=60.0, tasks=TaskSet())
    request = Request(
        parse_request(b"POST /.sandbox-router/awake HTTP/1.1\r\nHost: a\r\n\r\n"),
        Caller(Peer("192.0.2.1", is_tls=False, trusted=())),
        ClientAddresses(()),
        1.0,
    )
    request.target = Target(SandboxRef("default", "box"), 8888)
    request.authenticated = Authenticated(PUBLIC, consumed_authorization=False)
    with pytest.raises(Unauthenticated):
        own.check(request)
