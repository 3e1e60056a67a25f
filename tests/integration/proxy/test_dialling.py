"""Ways to a sandbox: refused ports, dead hosts, and pods that change under way."""

import asyncio
import errno
from dataclasses import replace

import pytest

from router.auth.authorizer import Permit
from router.routing.endpoint import State
from tests.fakes.deciders import DecidesEachTime
from tests.integration.proxy.faults import dialling_fails, dialling_waits, silent_port
from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import Pod, bound_socket, pod_listening, serving
from tests.integration.proxy.running_router import BOX
from tests.integration.proxy.wire import settled, until


@pytest.fixture
def closed_port():
    """A bound socket whose port is refused until somebody listens on it."""
    with bound_socket() as sock:
        yield sock


async def test_a_refused_port_is_tried_again_until_it_listens(router, pod, closed_port):
    router.knows(port=closed_port.getsockname()[1])
    client = await router.connect()
    client.send(request("GET", "/late"))
    await until(lambda: router.metric("upstream_retries_total") >= 2)
    late = Pod()
    await late.listen(closed_port.dup())
    async with serving(late):
        assert (await client.answer()).body == b"/late"
    late.close()
    outcome = await router.outcome()
    assert outcome.retries >= 2
    assert (outcome.code, outcome.upstream_error) == ("", "")
    assert outcome.connect_s > 0.05


async def test_a_port_that_stays_refused_is_502_after_two_seconds(router, closed_port):
    router.knows(port=closed_port.getsockname()[1])
    client = await router.connect()
    client.send(request())
    await until(lambda: router.metric("upstream_retries_total") >= 1)
    await settled()
    assert client.unread == b""
    router.pass_time(2)
    told = await client.answer()
    assert (told.status, told.code) == (502, "sandbox_unreachable")
    assert told.detail == "Could not connect to the backend sandbox: box"
    outcome = await router.outcome()
    assert outcome.upstream_error == "connect_refused"
    assert "refused" in outcome.error_reason
    assert router.index.find(BOX).state is State.READY
    assert router.metric("cache_invalidations_total") == 0
    assert router.metric("upstream_errors_total", "default", "connect_refused") == 1


async def test_a_connection_survives_a_sandbox_that_cannot_be_reached(router, pod, closed_port):
    router.knows(port=closed_port.getsockname()[1], name="gone", uid="pod-9")
    client = await router.connect()
    async with serving(pod):
        client.send(request("POST", "/", sandbox="gone", body=b"x" * 1000))
        await until(lambda: router.metric("upstream_retries_total") >= 1)
        router.pass_time(2)
        assert (await client.answer("POST")).status == 502
        client.send(request("GET", "/next"))
        assert (await client.answer()).body == b"/next"


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN])
async def test_a_dead_host_loses_its_route(router, number):
    endpoint = router.knows(port=80, host="10.9.9.9")
    client = await router.connect()
    with dialling_fails("10.9.9.9", number) as dials:
        client.send(request())
        await until(lambda: router.index.held_count() == 1)
        assert router.index.find(BOX).state is State.STARTING
        assert router.metric("cache_invalidations_total") == 1
        assert dials.addresses == ["10.9.9.9:80"]
        client.reset()
        await router.outcome()
    assert endpoint.addresses == ("10.9.9.9",)


async def test_a_host_that_does_not_answer_loses_its_route(start_router):
    router = await start_router(connect_timeout_s=0.05)
    async with silent_port() as port:
        router.knows(port=port)
        client = await router.connect()
        client.send(request())
        await until(lambda: router.index.held_count() == 1)
        client.reset()
        outcome = await router.outcome()
    assert outcome.upstream_error == "connect_timeout"


async def test_a_request_to_a_dead_host_is_served_by_the_pod_that_follows(router, pod):
    router.knows(port=80, host="10.9.9.9", uid="dead")
    client = await router.connect()
    with dialling_fails("10.9.9.9"):
        client.send(request("POST", "/", body=b"once"))
        await until(lambda: router.index.held_count() == 1)
        router.knows(pod, uid="alive")
        async with serving(pod):
            assert (await client.answer("POST")).body == b"/"
    outcome = await router.outcome()
    assert (outcome.pod_uid, outcome.upstream_error) == ("alive", "")


async def test_a_pod_that_follows_after_the_connect_budget_still_serves_who_waits(
    start_router, pod
):
    router = await start_router(connect_budget_s=10, wait_for_ready_s=30)
    router.knows(port=80, host="10.9.9.9", uid="dead")
    client = await router.connect()
    with dialling_fails("10.9.9.9"):
        client.send(request())
        await until(lambda: router.index.waiting() == 1)
        router.clock.added_s += 12
        router.knows(pod, uid="alive")
        async with serving(pod):
            assert (await client.answer()).status == 200


async def test_the_wait_for_the_pod_that_follows_is_part_of_the_connect_budget(start_router):
    router = await start_router(connect_budget_s=0.3, connect_timeout_s=0.1, wait_for_ready_s=60)
    router.knows(port=80, host="10.9.9.9", uid="dead")
    client = await router.connect()
    with dialling_fails("10.9.9.9"):
        client.send(request())
        answer = await client.answer()
    assert (answer.status, answer.code) == (502, "sandbox_unreachable")


async def test_a_dead_host_that_stays_the_only_one_is_502(router):
    router.knows(port=80, host="10.9.9.9")
    client = await router.connect()
    with dialling_fails("10.9.9.9"):
        client.send(request())
        await until(lambda: router.index.waiting() == 1)
        router.pass_time(11)
        router.index.find(BOX)  # the hold is over: whoever waits is woken
        told = await client.answer()
    assert (told.status, told.code) == (502, "sandbox_unreachable")
    outcome = await router.outcome()
    assert outcome.upstream_error == "connect_unreachable"


async def test_the_route_of_a_dead_host_comes_back_by_itself(router, pod):
    router.knows(pod)
    client = await router.connect()
    with dialling_fails("127.0.0.1"):
        client.send(request("GET", "/1"))
        await until(lambda: router.index.held_count() == 1)
    router.clock.added_s += 5
    async with serving(pod):
        assert (await router.ask(request("GET", "/2"))).body == b"/2"
        assert (await client.answer()).body == b"/1"


async def test_a_failure_at_an_old_address_takes_no_new_route_away(router, pod):
    go_on = asyncio.Event()
    router.knows(port=80, host="10.9.9.9", uid="same")
    client = await router.connect()
    with dialling_fails("10.9.9.9"), dialling_waits(go_on, "10.9.9.9") as dials:
        client.send(request())
        await until(lambda: dials.addresses)
        router.knows(pod, uid="same")
        go_on.set()
        async with serving(pod):
            assert (await client.answer()).status == 200
    assert router.metric("cache_invalidations_total") == 0
    assert router.index.held_count() == 0


async def test_idle_connections_to_a_dead_host_are_closed_with_its_route(router, pod):
    client = await router.connect()
    async with serving(pod):
        await router.ask(request())
        busy = await router.connect()
        with dialling_fails("127.0.0.1"):
            busy.send(request("GET", "/", ("X-Sandbox-Port", "1")))
            await until(lambda: router.index.held_count() == 1)
        assert await pod.wires[0].end() == "eof"
        busy.reset()
    assert client.unread == b""


async def test_a_pod_replaced_while_it_is_dialled_gets_no_byte(router, pod):
    go_on = asyncio.Event()
    async with pod_listening() as new:
        with dialling_waits(go_on) as dials:
            client = await router.connect()
            client.send(request("POST", "/secret", body=b"secret"))
            await until(lambda: dials.addresses)
            router.knows(new, uid="pod-2")
            go_on.set()
            async with serving(new):
                assert (await client.answer("POST")).body == b"/secret"
        old = await pod.accept()
        assert await old.end() in ("eof", "reset")
        assert old.total == 0
    assert (await router.outcome()).pod_uid == "pod-2"


async def test_a_pod_that_leaves_while_it_is_dialled_is_404(router, pod):
    go_on = asyncio.Event()
    with dialling_waits(go_on) as dials:
        client = await router.connect()
        client.send(request())
        await until(lambda: dials.addresses)
        router.forgets()
        go_on.set()
        assert (await client.answer()).status == 404
    old = await pod.accept()
    await old.end()
    assert old.total == 0


class AsksSomebody(DecidesEachTime):
    """An Authorizer whose permit comes later."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answered = asyncio.Event()

    def admit(self, principal, names, port, method):
        return None

    async def authorize(self, principal, endpoint, names, port, method):
        self.asked.append(endpoint.uid)
        await self.answered.wait()
        return Permit(principal, endpoint, port)


async def test_a_pod_replaced_while_its_caller_is_authorised_is_authorised_anew(start_router, pod):
    authorizer = AsksSomebody()
    router = await start_router(authorizer=authorizer)
    router.knows(pod)
    client = await router.connect()
    client.send(request())
    await until(lambda: authorizer.asked == ["pod-1"])
    router.knows(pod, uid="pod-2")
    authorizer.answered.set()
    async with serving(pod):
        assert (await client.answer()).status == 200
    assert authorizer.asked == ["pod-1", "pod-2"]
    assert (await router.outcome()).pod_uid == "pod-2"


async def test_every_address_of_a_pod_is_tried_before_it_is_given_up(router, pod):
    endpoint = router.knows(pod)
    for lost in router.index.upsert(replace(endpoint, addresses=("10.9.9.9", "127.0.0.1"))):
        router.pool.retire(lost)
    with dialling_fails("10.9.9.9") as dials:
        async with serving(pod):
            assert (await router.ask(request())).status == 200
    assert dials.addresses == [f"10.9.9.9:{pod.port}", f"127.0.0.1:{pod.port}"]
    assert router.metric("cache_invalidations_total") == 0


async def test_a_lack_of_descriptors_is_503(router, pod):
    with dialling_fails("127.0.0.1", errno.EMFILE):
        told = await router.ask(request())
    assert (told.status, told.code) == (503, "overloaded")
    async with serving(pod):
        assert (await router.ask(request())).status == 200


async def test_an_ipv6_pod_is_reached(router):
    async with (
        pod_listening("::1") as six,
        serving(six, lambda asked: answer(body=asked.get("Host"))),
    ):
        router.knows(six, host="::1")
        assert (await router.ask(request())).body == b"[::1]:%d" % six.port
