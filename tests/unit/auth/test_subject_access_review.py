"""RBAC: adds rights to Kubernetes users, to nobody else, and fails closed."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from typing import Any

import pytest

from router.auth.authorizer import Permit
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.policy import CurrentPolicy, Policy, PrincipalMatch, Rule
from router.auth.principal import Grant, Principal
from router.auth.subject_access_review import (
    MAX_PER_CALLER,
    NEGATIVE_TTL_S,
    SubjectAccessReviewAuthorizer,
)
from router.errors import AuthUnavailable, Forbidden, Unauthenticated
from router.routing.endpoint import Endpoint, SandboxRef, State
from tests.unit.auth.kubernetes import FakeReviewer
from tests.unit.auth.tokens import Clock

BOX = SandboxRef("team-a", "box")
CLAIM = SandboxRef("team-a", "claim")
ENDPOINT = Endpoint(BOX, "pod-1", State.READY, ("192.0.2.1",))
RUNNER = Principal(
    "system:serviceaccount:team-a:runner",
    "token-review",
    groups=("system:authenticated",),
    extra=(("k", ("v",)),),
    user_uid="u-1",
)
ALLOWED = (RUNNER.subject, "team-a", "box")


@pytest.fixture
def api() -> FakeReviewer:
    return FakeReviewer()


@pytest.fixture
def authorizer(
    api: FakeReviewer, policy: CurrentPolicy, clock: Clock
) -> SubjectAccessReviewAuthorizer:
    return SubjectAccessReviewAuthorizer(
        grants=GrantAuthorizer(policy=policy), reviewer=api, ttl_s=30.0, clock=clock
    )


async def _authorize(
    authorizer: SubjectAccessReviewAuthorizer,
    principal: Principal = RUNNER,
    endpoint: Endpoint = ENDPOINT,
    names: tuple[SandboxRef, ...] = (BOX,),
) -> Permit:
    permit = authorizer.authorize(principal, endpoint, names, 80, b"GET")
    return permit if isinstance(permit, Permit) else await permit


async def _admit(
    authorizer: SubjectAccessReviewAuthorizer,
    principal: Principal = RUNNER,
    names: tuple[SandboxRef, ...] = (BOX,),
) -> None:
    admitted = authorizer.admit(principal, names, 80, b"GET")
    if admitted is not None:
        await admitted


async def test_a_user_whom_rbac_allows_gets_a_permit_for_that_very_pod(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.allowed = {ALLOWED}

    permit = await _authorize(authorizer)

    assert permit.endpoint is ENDPOINT
    assert api.bodies == [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": RUNNER.subject,
                "uid": "u-1",
                "groups": ["system:authenticated"],
                "extra": {"k": ["v"]},
                "resourceAttributes": {
                    "namespace": "team-a",
                    "verb": "connect",
                    "group": "agents.x-k8s.io",
                    "resource": "sandboxes",
                    "subresource": "proxy",
                    "name": "box",
                },
            },
        }
    ]


async def test_a_user_whom_rbac_does_not_allow_is_forbidden(
    authorizer: SubjectAccessReviewAuthorizer,
) -> None:
    with pytest.raises(Forbidden):
        await _authorize(authorizer)
    with pytest.raises(Forbidden):
        await _admit(authorizer)

    assert authorizer.denied == 2


@pytest.mark.parametrize("mode", ["jwt", "mtls"])
async def test_a_subject_that_is_only_spelled_like_a_user_is_never_asked_about(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer, mode: str
) -> None:
    api.allowed = {ALLOWED}
    caller = dataclasses.replace(RUNNER, mode=mode)

    with pytest.raises(Forbidden):
        await _admit(authorizer, caller)
    with pytest.raises(Forbidden):
        await _authorize(authorizer, caller)

    assert api.bodies == []


async def test_grants_decide_first_and_at_once(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer, policy: CurrentPolicy
) -> None:
    rule = Rule(PrincipalMatch(subject=RUNNER.subject), (Grant("team-a", "*"),), 1, 1)
    policy.replace(Policy(rules=(rule,)))

    assert authorizer.admit(RUNNER, (BOX,), 80, b"GET") is None
    assert isinstance(authorizer.authorize(RUNNER, ENDPOINT, (BOX,), 80, b"GET"), Permit)
    assert api.bodies == []
    assert authorizer.allowed == 1


async def test_a_right_on_any_of_the_names_counts(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.allowed = {ALLOWED}

    await _admit(authorizer, names=(CLAIM, BOX))
    await _authorize(authorizer, names=(CLAIM, BOX))

    asked = [body["spec"]["resourceAttributes"]["name"] for body in api.bodies]
    assert asked == ["claim", "box"]


async def test_a_yes_is_remembered_and_then_given_at_once(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer, clock: Clock
) -> None:
    api.allowed = {ALLOWED}
    await _admit(authorizer)

    assert not inspect.isawaitable(authorizer.authorize(RUNNER, ENDPOINT, (BOX,), 80, b"GET"))
    clock.now += 30.0
    api.allowed = set()

    with pytest.raises(Forbidden):
        await _authorize(authorizer)


async def test_a_no_is_remembered_for_seconds_only(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer, clock: Clock
) -> None:
    for _ in range(3):
        with pytest.raises(Forbidden):
            await _authorize(authorizer)
    assert len(api.bodies) == 1
    api.allowed = {ALLOWED}

    clock.now += NEGATIVE_TTL_S

    assert await _authorize(authorizer)


async def test_many_first_calls_are_one_review(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.allowed = {ALLOWED}

    await asyncio.gather(*(_authorize(authorizer) for _ in range(500)))

    assert authorizer.calls_started == 1
    assert authorizer.allowed == 500


async def test_what_is_allowed_to_one_user_is_not_to_another(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.allowed = {ALLOWED}
    await _authorize(authorizer)

    for other in (
        dataclasses.replace(RUNNER, subject="system:serviceaccount:team-b:runner"),
        dataclasses.replace(RUNNER, groups=()),
        dataclasses.replace(RUNNER, user_uid="u-2"),
        dataclasses.replace(RUNNER, extra=()),
    ):
        authorizer.explain(other, (BOX,), ENDPOINT, 80, b"GET")
        assert authorizer._known(other, (BOX,), "proxy") is False


async def test_no_answer_is_503_and_not_a_right(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.is_down = True

    for call in (_admit, _authorize):
        with pytest.raises(AuthUnavailable):
            await call(authorizer)
    assert authorizer.calls_failed == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({}, AuthUnavailable),
        ({"status": {}}, AuthUnavailable),
        ({"status": {"allowed": "true"}}, AuthUnavailable),
        ({"status": {"allowed": True, "denied": True}}, Forbidden),
    ],
)
async def test_only_a_plain_yes_is_a_yes(
    authorizer: SubjectAccessReviewAuthorizer,
    api: FakeReviewer,
    answer: dict[str, Any],
    error: type[Exception],
) -> None:
    api.answer = answer

    with pytest.raises(error):
        await _authorize(authorizer)


async def test_a_sandbox_that_refuses_older_tokens_does_so_whatever_rbac_says(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.allowed = {ALLOWED}
    strict = dataclasses.replace(ENDPOINT, tokens_not_before=100.0)

    with pytest.raises(Unauthenticated):
        await _authorize(authorizer, dataclasses.replace(RUNNER, issued_at=99.0), strict)


async def test_the_explanation_never_asks(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    def decision(principal: Principal = RUNNER) -> str:
        told = authorizer.explain(principal, (BOX,), ENDPOINT, 80, b"GET")
        return f"{told['decision']}: {told['by']}"

    assert decision() == "unknown: Kubernetes RBAC, not asked yet"
    assert decision(dataclasses.replace(RUNNER, mode="jwt")).startswith("forbidden")
    assert api.bodies == []
    with pytest.raises(Forbidden):
        await _authorize(authorizer)
    assert decision() == "forbidden: no grant covers it and Kubernetes RBAC says no"


async def test_the_explanation_tells_what_rbac_has_allowed(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.allowed = {ALLOWED}
    await _authorize(authorizer)

    assert authorizer.explain(RUNNER, (BOX,), ENDPOINT, 80, b"GET")["decision"] == "allowed"
    await authorizer.close()


def test_no_permit_may_be_kept(
    authorizer: SubjectAccessReviewAuthorizer, policy: CurrentPolicy
) -> None:
    policy.replace(Policy())

    assert authorizer.generation == -1


async def test_a_refusal_tells_the_log_that_rbac_was_asked(
    authorizer: SubjectAccessReviewAuthorizer,
) -> None:
    with pytest.raises(Forbidden) as caught:
        await _authorize(authorizer)

    assert caught.value.reason.endswith(
        "Kubernetes RBAC does not allow connect on sandboxes/proxy team-a/box"
    )


# --- floods and outages ----------------------------------------------------------------------


def _patient(api: FakeReviewer, clock: Clock) -> SubjectAccessReviewAuthorizer:
    return SubjectAccessReviewAuthorizer(
        grants=GrantAuthorizer(policy=CurrentPolicy()),
        reviewer=api,
        ttl_s=30.0,
        stale_s=300.0,
        clock=clock,
    )


async def test_while_the_api_server_is_away_a_right_stands_for_the_stale_time(
    api: FakeReviewer, clock: Clock
) -> None:
    authorizer = _patient(api, clock)
    api.allowed = {ALLOWED}
    await _authorize(authorizer)
    api.is_down = True

    clock.now += 30 + 299
    await _authorize(authorizer)
    assert authorizer.stale_answers == 1
    clock.now += 1

    with pytest.raises(AuthUnavailable):
        await _authorize(authorizer)


async def test_a_right_on_another_name_stands_although_the_first_cannot_be_asked_about(
    api: FakeReviewer, clock: Clock
) -> None:
    authorizer = _patient(api, clock)
    api.allowed = {ALLOWED}
    await _authorize(authorizer)
    api.is_down = True
    clock.now += 31

    permit = await _authorize(authorizer, names=(CLAIM, BOX))

    assert permit.endpoint is ENDPOINT


async def test_one_caller_who_invents_names_leaves_places_to_the_others(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    async def refused(name: str) -> str:
        try:
            await _admit(authorizer, names=(SandboxRef("team-a", name),))
        except (Forbidden, AuthUnavailable) as error:
            return error.code
        return "admitted"

    other = dataclasses.replace(RUNNER, subject="other", user_uid="u-2")
    api.allowed = {("other", "team-a", "box")}
    async with asyncio.TaskGroup() as group:
        flood = [group.create_task(refused(f"box-{number}")) for number in range(1000)]
        await asyncio.sleep(0)
        permit = group.create_task(_authorize(authorizer, principal=other))

    assert permit.result().principal is other
    assert [task.result() for task in flood].count("auth_unavailable") == 1000 - MAX_PER_CALLER


# --- waking ---------------------------------------------------------------------------------

ASLEEP = Endpoint(BOX, "", State.SUSPENDED, sandbox_uid="s-1")


async def _may_wake(
    authorizer: SubjectAccessReviewAuthorizer, principal: Principal = RUNNER
) -> bool:
    answer = authorizer.may_wake(principal, ASLEEP, (BOX,), 80, b"GET")
    return answer if isinstance(answer, bool) else await answer


async def test_rbac_is_asked_whether_a_user_may_create_a_wake(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.allowed = {ALLOWED}

    assert await _may_wake(authorizer)

    asked = api.bodies[0]["spec"]["resourceAttributes"]
    assert (asked["verb"], asked["resource"], asked["subresource"]) == (
        "create",
        "sandboxes",
        "wake",
    )
    assert authorizer.may_wake(RUNNER, ASLEEP, (BOX,), 80, b"GET") is True, "remembered"


async def test_the_right_to_wake_is_none_for_who_may_not_call_it_once_it_is_up(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    # The grant lets the caller know of the name, but is for a predecessor.
    old = dataclasses.replace(RUNNER, grants=(Grant("team-a", "box", uid="s-0"),))
    assert authorizer.admit(old, (BOX,), 80, b"GET") is None
    api.allowed, api.forbidden = {ALLOWED}, {"proxy"}

    assert not await _may_wake(authorizer, old)
    assert not await _may_wake(authorizer, old), "remembered"

    current = dataclasses.replace(RUNNER, grants=(Grant("team-a", "box", uid="s-1"),))
    assert await _may_wake(authorizer, current)


async def test_the_right_to_connect_is_no_right_to_wake(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.allowed = {ALLOWED}
    await _authorize(authorizer)
    api.allowed = set()
    assert not await _may_wake(authorizer)
    await _authorize(authorizer)


async def test_only_kubernetes_own_users_are_asked_about(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.allowed = {ALLOWED}
    assert not await _may_wake(authorizer, dataclasses.replace(RUNNER, mode="jwt"))
    assert await _may_wake(authorizer, Principal("x", "static"))
    assert api.bodies == []


async def test_a_raw_connection_needs_create_on_portforward_and_nothing_else_gives_it(
    authorizer: SubjectAccessReviewAuthorizer, api: FakeReviewer
) -> None:
    api.allowed.add(ALLOWED)
    await _authorize(authorizer)
    asked = len(api.bodies)
    answer = authorizer.authorize(RUNNER, ENDPOINT, (BOX,), 22, b"CONNECT")
    assert not isinstance(answer, Permit)
    await answer
    attributes = api.bodies[asked]["spec"]["resourceAttributes"]
    assert (attributes["verb"], attributes["subresource"]) == ("create", "portforward")
    explained = authorizer.explain(RUNNER, (BOX,), ENDPOINT, 22, b"CONNECT")
    assert explained["decision"] == "allowed"
