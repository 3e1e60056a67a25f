"""The demo's waker: what its Unix socket answers, as the router understands it."""

from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from router.demo.switch_waker import SwitchWaker
from router.proxy.ports import WakeFailed
from router.routing.endpoint import Endpoint, SandboxRef, State

BOX = Endpoint(SandboxRef("default", "box"), "", State.SUSPENDED)


@asynccontextmanager
async def switch(path, answer: web.Response):
    asked = []

    async def wake(request):
        asked.append((request.method, request.path))
        return answer

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", wake)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    yield asked
    await runner.cleanup()


@pytest.mark.parametrize(("said", "did"), [("started\n", True), ("running\n", False)])
async def test_it_asks_for_the_sandbox_and_says_whether_this_call_did_it(tmp_path, said, did):
    path = tmp_path / "switch"
    async with switch(path, web.Response(text=said)) as asked:
        assert await SwitchWaker(str(path)).wake(BOX) is did
    assert asked == [("POST", "/wake/default/box")]


async def test_a_refusal_is_about_that_sandbox_alone(tmp_path):
    path = tmp_path / "switch"
    async with switch(path, web.Response(status=404, text="This sandbox never sleeps.\n")):
        with pytest.raises(WakeFailed, match="404 This sandbox never sleeps") as caught:
            await SwitchWaker(str(path)).wake(BOX)
    assert not caught.value.concerns_all


async def test_a_demo_that_is_gone_wakes_nobody(tmp_path):
    waker = SwitchWaker(str(tmp_path / "switch"))
    with pytest.raises(WakeFailed, match="the demo did not answer") as caught:
        await waker.wake(BOX)
    assert caught.value.concerns_all
    assert repr(waker) == f"<SwitchWaker {tmp_path}/switch>"
