"""Sandboxes that start, and requests that wait for them."""

import pytest

from router.auth.principal import Grant
from router.routing.endpoint import State
from tests.integration.proxy.messages import request
from tests.integration.proxy.pod import pod_listening, serving
from tests.integration.proxy.test_absence import Alice
from tests.integration.proxy.wire import settled, until


async def waiting_client(router, number=1, **changes):
    client = await router.connect()
    client.send(request(**changes))
    await until(lambda: router.index.waiting() == number)
    return client


async def test_a_request_waits_until_its_sandbox_is_ready(router, pod):
    router.knows(pod, state=State.STARTING)
    client = await waiting_client(router)
    await settled()
    assert client.unread == b""
    router.knows(pod)
    async with serving(pod):
        assert (await client.answer()).status == 200
    outcome = await router.outcome()
    assert outcome.wait_s > 0
    assert router.metric("wait_duration_seconds") == 1


async def test_everybody_who_waits_is_served_at_once(router, pod):
    router.knows(pod, state=State.STARTING)
    clients = [await waiting_client(router, number + 1) for number in range(20)]
    router.knows(pod)
    assert router.index.waiting() == 0
    async with serving(pod):
        for client in clients:
            assert (await client.answer()).status == 200


async def test_a_sandbox_that_does_not_start_in_time_is_503_with_a_hint(start_router, pod):
    router = await start_router(wait_for_ready_s=0.05)
    router.knows(pod, state=State.STARTING, reason="ImagePullBackOff")
    told = await router.ask(request())
    assert (told.status, told.code, told.get("Retry-After")) == (503, "sandbox_not_ready", b"2")
    assert (await router.outcome()).error_reason == "ImagePullBackOff"


async def test_a_request_waits_no_longer_than_its_own_deadline(router, pod):
    router.knows(pod, state=State.STARTING)
    told = await router.ask(request("GET", "/", ("X-Sandbox-Timeout", "0.05")))
    assert (told.status, told.code) == (503, "sandbox_not_ready")


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [
        (State.SUSPENDED, 409, "sandbox_suspended"),
        (State.FINISHED, 410, "sandbox_finished"),
    ],
)
async def test_whoever_waits_is_told_at_once_when_it_is_in_vain(router, pod, state, status, code):
    router.knows(pod, state=State.STARTING)
    client = await waiting_client(router)
    router.knows(pod, state=state)
    told = await client.answer()
    assert (told.status, told.code) == (status, code)


async def test_whoever_waits_is_told_at_once_when_the_sandbox_is_deleted(router, pod):
    router.knows(pod, state=State.STARTING)
    client = await waiting_client(router)
    router.forgets()
    told = await client.answer()
    assert (told.status, told.code) == (404, "sandbox_not_found")


async def test_a_full_room_refuses_at_once_and_a_client_that_leaves_makes_a_place(
    start_router, pod
):
    router = await start_router(waiting_room=2)
    router.knows(pod, state=State.STARTING)
    first = await waiting_client(router, 1)
    second = await waiting_client(router, 2)
    told = await router.ask(request())
    assert (told.status, told.code, told.get("Retry-After")) == (503, "sandbox_not_ready", b"2")
    first.close()
    await until(lambda: router.index.waiting() == 1)
    third = await waiting_client(router, 2)
    router.knows(pod)
    async with serving(pod):
        assert (await second.answer()).status == (await third.answer()).status == 200


async def test_one_namespace_cannot_fill_the_room(start_router, pod):
    router = await start_router(waiting_room=10, waiting_room_per_namespace=1)
    router.knows(pod, state=State.STARTING)
    router.knows(pod, namespace="other", state=State.STARTING)
    await waiting_client(router, 1)
    assert (await router.ask(request())).status == 503
    client = await router.connect()
    client.send(request("GET", "/", ("X-Sandbox-Namespace", "other")))
    await until(lambda: router.index.waiting() == 2)


async def test_a_body_waits_with_its_request(router, pod):
    router.knows(pod, state=State.STARTING)
    client = await router.connect()
    client.send(request("POST", "/", body=b"x" * 1_000_000))
    await until(lambda: router.index.waiting() == 1)
    router.knows(pod)
    sandbox = await pod.accept()
    assert (await sandbox.request()).body == b"x" * 1_000_000


async def test_a_body_that_waits_is_held_in_bounded_memory(router, pod):
    router.knows(pod, state=State.STARTING)
    router.shrink_buffers()
    client = await router.connect(buffers=8192)
    client.send(request("POST", "/", ("Content-Length", str(10**8))), b"x" * 16_000_000)
    await until(lambda: router.index.waiting() == 1)
    await settled()
    assert client.transport.get_write_buffer_size() > 14_000_000


async def test_a_pod_replaced_while_it_starts_is_the_one_that_serves(router, pod):
    router.knows(pod, state=State.STARTING, uid="pod-1")
    client = await waiting_client(router)
    async with pod_listening() as new, serving(new):
        router.knows(new, uid="pod-2")
        assert (await client.answer()).status == 200
    assert (await router.outcome()).pod_uid == "pod-2"
    assert pod.connections == 0


async def test_a_claims_name_is_waited_for_like_the_sandboxes_own(router, pod):
    endpoint = router.knows(pod, state=State.STARTING)
    router.index.set_alias(endpoint.ref._replace(name="claim"), endpoint.ref)
    client = await waiting_client(router, sandbox="claim")
    router.knows(pod)
    async with serving(pod):
        assert (await client.answer()).status == 200


async def test_a_waiting_request_is_not_served_after_its_client_has_left(router, pod):
    router.knows(pod, state=State.STARTING)
    client = await waiting_client(router)
    client.close()
    await router.outcome()
    router.knows(pod)
    await settled()
    assert pod.connections == 0


async def test_a_place_is_asked_for_in_the_callers_name_so_that_each_has_a_share(
    start_router, pod, monkeypatch
):
    router = await start_router(authenticator=Alice(Grant("default", "box")))
    router.knows(pod, state=State.STARTING)
    callers = []
    enter = router.index._room.enter

    def noted(ref, wake, caller=None):
        callers.append(caller)
        return enter(ref, wake, caller)

    monkeypatch.setattr(router.index._room, "enter", noted)
    await waiting_client(router)
    router.knows(pod)
    assert callers == [Alice().principal.share()]
    assert callers[0] is not None
