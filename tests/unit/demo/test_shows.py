"""The two shows: what they start, with which rights, and what they say to try."""

import os
from contextlib import AsyncExitStack

import jwt
import pytest

from router.demo.shows import Answering, Sleeping
from router.demo.stage import Place, Stage

PLACE = Place(8080, 9090, "the-token")


class NotedStage(Stage):
    """Starts sandboxes, and notes how the router would be started."""

    async def start_router(self, sandbox_ports, *, http_port, launch=None):
        self.launch = launch
        return PLACE


@pytest.fixture
async def stage():
    async with NotedStage(environment=os.environ, on_router_line=print) as stage:
        yield stage


async def test_the_first_show_starts_the_router_as_anybody_would(stage):
    show = Answering(stage)
    assert await show.start_router({"hello": 1}, http_port=0) == PLACE
    assert stage.launch is None
    assert "router.demo.say" in show.hints(
        PLACE, python="python", page_url="http://x/", again="token x"
    )


async def test_the_second_show_has_one_that_stays_and_one_that_sleeps(stage):
    async with AsyncExitStack() as resources:
        show = Sleeping(stage, resources)
        ports = await show.start_sandboxes()
        assert list(ports) == ["hello", "echo"]
        await show.start_router(ports, http_port=0)
        assert stage.launch.program == ("router.demo.waking_router", str(stage.folder / "switch"))
        assert (stage.folder / "switch").is_socket()
        hints = show.hints(PLACE, python="python", page_url="http://x/", again="token x")
        assert f"--unix-socket {stage.folder}/switch http://demo/suspend" in hints


async def test_one_token_has_the_right_to_wake_and_the_other_has_not(stage):
    async with AsyncExitStack() as resources:
        show = Sleeping(stage, resources)
        await show.start_router({"echo": 1}, http_port=0)
    secret = (stage.folder / "jwt-secret").read_bytes()
    owner, guest = (
        jwt.decode(token, secret, algorithms=["HS256"])
        for token in (stage.launch.token, show._guest)
    )
    assert owner["sandboxes"] == [{"namespace": "default", "name": "*", "wake": True}]
    assert guest["sandboxes"] == [{"namespace": "default", "name": "*"}]
    assert stage.launch.environment == {}
    assert "--auth jwt" in " ".join(stage.launch.command(PLACE, stage.sandboxes_file))
