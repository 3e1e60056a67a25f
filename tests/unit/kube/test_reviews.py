"""KubernetesReviewer against a real server: whole answers, and no secrets in what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from router.auth.policy import CurrentPolicy
from router.auth.principal import Principal
from router.auth.revocation import Revocation
from router.auth.token_review import TokenReviewVerifier
from router.auth.verifier import Reason, Refusal
from router.errors import AuthUnavailable, ReviewRefused
from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess
from router.kube.reviews import KubernetesReviewer
from tests.fakes.kubernetes_api import FakeKubernetes, User

ROUTER = "the-routers-own-token"
TOKEN = "the-callers-token"
REVIEW = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenReview",
    "spec": {"token": TOKEN, "audiences": ["router"]},
}


@asynccontextmanager
async def _reviewing(api: FakeKubernetes) -> AsyncIterator[KubernetesReviewer]:
    access = ClusterAccess(server=api.url, authorization=f"Bearer {ROUTER}")
    async with KubernetesApi(access=access) as client:
        yield KubernetesReviewer(api=client, timeout_s=0.5)


@pytest.fixture
async def api() -> AsyncIterator[FakeKubernetes]:
    tokens = {
        ROUTER: User("system:serviceaccount:agent-sandbox-system:sandbox-router"),
        TOKEN: User("system:serviceaccount:team-a:runner", ("runners",), ("router",), uid="u-1"),
    }
    async with FakeKubernetes(tokens=tokens) as fake:
        yield fake


async def test_a_token_review_tells_the_user(api: FakeKubernetes) -> None:
    async with _reviewing(api) as reviewer:
        answer = await reviewer.review(REVIEW)

    assert answer["status"]["user"]["username"] == "system:serviceaccount:team-a:runner"
    assert api.reviews == [REVIEW]


async def test_a_subject_access_review_is_asked_at_its_own_place(api: FakeKubernetes) -> None:
    api.grants_access = lambda spec: spec["user"] == "alice"
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "alice"},
    }

    async with _reviewing(api) as reviewer:
        answer = await reviewer.review(body)

    assert answer["status"]["allowed"] is True
    assert ("create", "subjectaccessreviews", None) in api.requests


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
async def test_a_refusal_is_unavailable_and_repeats_no_message(
    api: FakeKubernetes, status: int
) -> None:
    with api.faults.refusing(status, message=f"no: {TOKEN}"):
        async with _reviewing(api) as reviewer:
            with pytest.raises(AuthUnavailable) as caught:
                await reviewer.review(REVIEW)

    assert str(status) in caught.value.reason
    assert TOKEN not in caught.value.reason
    assert isinstance(caught.value, ReviewRefused) is (status in (401, 403))


async def test_a_server_that_is_gone_is_unavailable(api: FakeKubernetes) -> None:
    async with _reviewing(api) as reviewer:
        await api.__aexit__(None, None, None)
        with pytest.raises(AuthUnavailable):
            await reviewer.review(REVIEW)


async def test_five_hundred_first_uses_of_one_token_are_one_request_to_the_server(
    api: FakeKubernetes,
) -> None:
    revocation = Revocation(policy=CurrentPolicy(), auth_grace_s=60)
    async with _reviewing(api) as reviewer:
        verifier = TokenReviewVerifier(
            reviewer=reviewer,
            audiences=("router",),
            ttl_s=30.0,
            is_refused=revocation.is_refused,
        )

        async def verify() -> Principal | Refusal:
            verdict = verifier.verify(TOKEN.encode())
            return verdict if isinstance(verdict, (Principal, Refusal)) else await verdict

        verdicts = await asyncio.gather(*(verify() for _ in range(500)))

    assert len(api.reviews) == 1
    assert {verdict.subject for verdict in verdicts if isinstance(verdict, Principal)} == {
        "system:serviceaccount:team-a:runner"
    }


async def test_while_the_server_fails_nobody_is_let_in_and_afterwards_they_are(
    api: FakeKubernetes,
) -> None:
    revocation = Revocation(policy=CurrentPolicy(), auth_grace_s=60)
    async with _reviewing(api) as reviewer:
        verifier = TokenReviewVerifier(
            reviewer=reviewer, audiences=(), ttl_s=30.0, is_refused=revocation.is_refused
        )
        with api.faults.refusing(500):
            first = verifier.verify(TOKEN.encode())
            assert not isinstance(first, (Principal, Refusal))
            refusal = await first
        api.tokens[TOKEN] = User("alice")
        second = verifier.verify(TOKEN.encode())
        assert not isinstance(second, (Principal, Refusal))
        principal = await second

    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.UNAVAILABLE
    assert isinstance(principal, Principal)
