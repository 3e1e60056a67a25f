"""A client that leaves, at every stage, takes its request with it."""

import asyncio

import pytest

from router.auth.anonymous import ANONYMOUS
from router.auth.authenticator import Authenticated
from router.routing.endpoint import State
from tests.fakes.deciders import DecidesEachTime
from tests.integration.proxy.faults import dialling_waits
from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.wire import settled, until

LEAVING = ["close", "reset", "half_close"]
CHUNKED = ("Transfer-Encoding", "chunked")


@pytest.fixture(params=LEAVING)
def leave(request):
    """How the client leaves."""

    def leave(client) -> None:
        getattr(client, request.param)()

    return leave


async def assert_cancelled(router, sandbox) -> None:
    """Holds the router to dropping the sandbox's connection at once, and to telling why."""
    await sandbox.rest()
    outcome = await router.outcome()
    assert (outcome.status, outcome.code) == (499, "client_closed")
    assert outcome.upstream_error == ""
    assert router.pool.active_count == router.pool.idle_count == 0


async def test_before_a_request(router, leave):
    client = await router.connect()
    await settled()
    leave(client)
    await until(lambda: len(router.clients) == 0)
    assert router.outcomes == []


async def test_inside_a_head(router, leave):
    client = await router.connect()
    client.send(request()[:30])
    await settled()
    leave(client)
    await until(lambda: len(router.clients) == 0)
    assert router.outcomes == []


async def test_while_the_sandbox_thinks(router, pod, leave):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    leave(client)
    await assert_cancelled(router, sandbox)


@pytest.mark.parametrize("framing", [("Content-Length", "100"), CHUNKED])
async def test_inside_its_own_body(router, pod, leave, framing):
    client = await router.connect()
    client.send(request("POST", "/", framing), b"3\r\nabc\r\n")
    sandbox = await pod.accept()
    await sandbox.head()
    await sandbox.read(8)
    leave(client)
    await assert_cancelled(router, sandbox)


@pytest.mark.parametrize("framing", [("Content-Length", "100"), CHUNKED, None])
async def test_inside_the_answer(router, pod, leave, framing):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(200, *([framing] if framing else []), length=False), b"3\r\nabc\r\n")
    await client.head()
    await client.read_through(b"abc")
    leave(client)
    await sandbox.rest()
    outcome = await router.outcome()
    assert (outcome.status, outcome.code) == (200, "client_closed")
    assert router.pool.active_count == 0


async def test_while_it_waits_for_100_continue(router, pod, leave):
    client = await router.connect()
    client.send(request("POST", "/", ("Expect", "100-continue"), ("Content-Length", "5")))
    sandbox = await pod.accept()
    await sandbox.head()
    leave(client)
    await assert_cancelled(router, sandbox)


async def test_while_the_sandbox_is_dialled(router, pod, leave):
    go_on = asyncio.Event()
    with dialling_waits(go_on) as dials:
        client = await router.connect()
        client.send(request())
        await until(lambda: dials.addresses)
        leave(client)
        outcome = await router.outcome()
        assert (outcome.status, outcome.code) == (499, "client_closed")
        go_on.set()
        await settled()
    assert pod.connections == 0


async def test_while_the_sandbox_starts(router, pod, leave):
    router.knows(pod, state=State.STARTING)
    client = await router.connect()
    client.send(request())
    await until(lambda: router.index.waiting() == 1)
    leave(client)
    outcome = await router.outcome()
    assert (outcome.status, outcome.code) == (499, "client_closed")
    assert router.index.waiting() == 0


class SlowToKnow(DecidesEachTime):
    """An Authenticator that has to ask somebody."""

    def __init__(self) -> None:
        self.asked = 0

    async def authenticate(self, credentials):
        self.asked += 1
        await asyncio.Event().wait()
        return Authenticated(ANONYMOUS, consumed_authorization=False)


async def test_while_its_credential_is_checked(start_router, pod, leave):
    authenticator = SlowToKnow()
    router = await start_router(authenticator=authenticator)
    router.knows(pod)
    client = await router.connect()
    client.send(request())
    await until(lambda: authenticator.asked)
    leave(client)
    outcome = await router.outcome()
    assert (outcome.status, outcome.code, outcome.authz) == (499, "client_closed", "")


async def test_at_once_after_its_request(start_router, pod, leave):
    router = await start_router(authenticator=SlowToKnow())
    router.knows(pod)
    client = await router.connect()
    client.send(request())
    leave(client)
    await until(lambda: len(router.clients) == 0)
    assert {outcome.code for outcome in router.outcomes} <= {"client_closed"}


async def test_with_requests_behind_the_one_in_progress(router, pod, leave):
    client = await router.connect()
    client.send(*(request("GET", f"/{n}") for n in range(5)))
    sandbox = await pod.accept()
    assert (await sandbox.request()).target == b"/0"
    leave(client)
    await sandbox.rest()
    await settled()
    assert len(router.outcomes) == 1
    assert pod.connections == 1


async def test_a_crash_is_noticed_although_what_it_sent_was_too_much_to_read(router, pod):
    router.shrink_buffers()
    client = await router.connect()
    client.send(request("GET", "/first"), request("GET", "/" + "x" * 1000) * 2000)
    sandbox = await pod.accept()
    await sandbox.request()
    await settled()
    client.reset()
    router.pass_time(1)
    await assert_cancelled(router, sandbox)


async def test_a_crash_is_noticed_although_the_sandbox_takes_no_more_of_the_upload(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", ("Content-Length", str(10**9))))
    sandbox = await pod.accept()
    sandbox.stop_reading()
    client.send(b"x" * 30_000_000)
    before = -1
    while (left := client.transport.get_write_buffer_size()) != before:
        before = left
        await asyncio.sleep(0.05)
    client.reset()
    router.pass_time(1)
    outcome = await router.outcome()
    assert (outcome.status, outcome.code) == (499, "client_closed")
    sandbox.start_reading()
    await sandbox.rest()


async def test_the_next_client_is_served_as_if_nothing_had_been(router, pod, leave):
    for _ in range(10):
        client = await router.connect()
        client.send(request())
        sandbox = await pod.accept()
        await sandbox.request()
        leave(client)
        await sandbox.rest()
        sandbox.close()
    client = await router.connect()
    client.send(request("GET", "/after"))
    sandbox = await pod.accept()
    assert (await sandbox.request()).target == b"/after"
    sandbox.send(answer(body=b"ok"))
    assert (await client.answer()).body == b"ok"
