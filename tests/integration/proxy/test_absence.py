"""Sandboxes that aren't there, and what is told about them to whom."""

import pytest

from router.auth.authenticator import Authenticated
from router.auth.principal import Grant, Principal
from router.routing.endpoint import State
from tests.fakes.deciders import DecidesEachTime
from tests.integration.proxy.messages import request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import until


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [
        (State.SUSPENDED, 409, "sandbox_suspended"),
        (State.FINISHED, 410, "sandbox_finished"),
    ],
)
async def test_absence_is_explained(router, pod, state, status, code):
    router.knows(pod, state=state, reason="PodFailed")
    told = await router.ask(request())
    assert (told.status, told.code) == (status, code)
    outcome = await router.outcome()
    assert (outcome.error_reason, outcome.namespace) == ("PodFailed", "default")


async def test_an_unknown_name_is_404(router):
    told = await router.ask(request(sandbox="unknown"))
    detail = "Sandbox not found in namespace default."
    assert (told.status, told.code, told.detail) == (404, "sandbox_not_found", detail)
    assert (await router.outcome()).namespace == ""


async def test_the_right_uid_passes(router, pod):
    router.knows(pod, uid="pod-1", sandbox_uid="sandbox-1")
    async with serving(pod):
        for uid in ("pod-1", "sandbox-1", ""):
            assert (await router.ask(request("GET", "/", ("X-Sandbox-UID", uid)))).status == 200


@pytest.mark.parametrize("state", list(State))
async def test_the_wrong_uid_is_404_whatever_the_state(router, pod, state):
    router.knows(pod, uid="pod-1", sandbox_uid="sandbox-1", state=state)
    told = await router.ask(request("GET", "/", ("X-Sandbox-UID", "gone")))
    assert (told.status, told.code) == (404, "sandbox_replaced")
    assert pod.connections == 0


async def test_the_wrong_uid_is_404_however_often_one_connection_asks(router, pod):
    router.knows(pod, uid="pod-1")
    client = await router.connect()
    client.send(request("GET", "/", ("X-Sandbox-UID", "gone")) * 3)
    for _ in range(3):
        told = await client.answer()
        assert (told.status, told.code) == (404, "sandbox_replaced")
    assert pod.connections == 0


async def test_a_uid_is_held_to_what_comes_after_waiting(router, pod):
    router.knows(pod, uid="", state=State.STARTING)
    client = await router.connect()
    client.send(request("GET", "/", ("X-Sandbox-UID", "pod-1")))
    await until(lambda: router.index.waiting() == 1)
    router.knows(pod, uid="pod-2")
    told = await client.answer()
    assert (told.status, told.code) == (404, "sandbox_replaced")


class Alice(DecidesEachTime):
    """An Authenticator that takes everybody for one caller, who may call one sandbox."""

    def __init__(self, *grants: Grant) -> None:
        self.principal = Principal(subject="alice", mode="jwt", grants=grants, issued_at=1.0)

    def authenticate(self, credentials):
        return Authenticated(self.principal, consumed_authorization=True)


async def test_missing_and_forbidden_sandboxes_look_the_same(start_router, pod):
    router = await start_router(authenticator=Alice(Grant("default", "box")))
    router.knows(pod)
    answers = []
    for number, state in enumerate(State):
        router.knows(pod, name=f"other-{number}", uid=f"pod-{number + 2}", state=state)
        answers.append(await router.ask(request(sandbox=f"other-{number}")))
    answers.append(await router.ask(request(sandbox="missing")))
    answers.append(
        await router.ask(request("GET", "/", ("X-Sandbox-UID", "guess"), sandbox="other-0"))
    )
    answers.append(await router.ask(request("GET", "/", ("X-Sandbox-Namespace", "missing"))))
    first = answers[0]
    assert (first.status, first.code) == (403, "forbidden")
    for told in answers:
        assert (told.line, told.headers, told.body) == (first.line, first.headers, first.body)
    assert router.index.waiting() == 0
    assert pod.connections == 0


@pytest.mark.parametrize(
    ("grant", "raw"),
    [
        (Grant("default", "box", ports=frozenset({1})), request()),
        (Grant("default", "box", methods=frozenset({b"GET"})), request("POST", "/")),
        (Grant("default", "box", uid="another"), request()),
        (Grant("default", "box-2"), request()),
        (Grant("other", "*"), request()),
    ],
)
async def test_a_grant_reaches_no_further_than_it_says(start_router, pod, grant, raw):
    router = await start_router(authenticator=Alice(grant))
    router.knows(pod)
    told = await router.ask(raw)
    assert (told.status, told.code) == (403, "forbidden")
    assert (await router.outcome()).authz == "denied"
    assert pod.connections == 0


async def test_nobody_waits_for_what_they_may_not_see(start_router, pod):
    router = await start_router(authenticator=Alice(Grant("other", "*")))
    router.knows(pod, state=State.STARTING)
    assert (await router.ask(request())).status == 403


async def test_a_sandbox_may_refuse_tokens_of_an_earlier_time(start_router, pod):
    router = await start_router(authenticator=Alice(Grant("default", "box")))
    router.knows(pod, tokens_not_before=2.0)
    told = await router.ask(request())
    assert (told.status, told.code) == (401, "unauthenticated")
    assert (await router.outcome()).authz == "unauthenticated"
