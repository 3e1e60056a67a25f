"""Kubernetes identities through the whole router, before an API server that is real enough to fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.fakes.cluster_objects import pod, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes, User
from tests.fakes.kubernetes_store import PODS, SANDBOXES
from tests.integration.auth.door import Answer, Door, open_door, read_answer, request
from tests.integration.auth.test_refusals import upgrade
from tests.unit.auth.tokens import SECRET, sign

ROUTER, RUNNER = "the-routers-token", "the-runners-token"
USER = "system:serviceaccount:team-a:runner"
ANNOTATION = "router.agents.x-k8s.io/tokens-not-before"
POLICY = """
rules:
  - principal: {group: runners}
    sandboxes: [{namespace: team-a, name: box-a}]
"""


class Cluster:
    """An API server with one ready Sandbox, team-a/box-a, and the router before it."""

    def __init__(self, api: FakeKubernetes, box: dict[str, Any]) -> None:
        self.api = api
        self.box = box
        self.door: Door

    async def ask(self, token: str, **details: Any) -> Answer:
        """Returns the answer to one request with this bearer token."""
        bearer = ("Authorization", f"Bearer {token}")
        return await self.door.ask(bearer, **{"port": self.door.sandbox.port, **details})

    def annotate(self, value: str) -> None:
        """Sets the time before which the Sandbox refuses tokens."""
        self.api.store.update(SANDBOXES, "team-a", "box-a", lambda box: _annotated(box, value))


def _annotated(box: dict[str, Any], value: str) -> dict[str, Any]:
    return {**box, "metadata": {**box["metadata"], "annotations": {ANNOTATION: value}}}


@asynccontextmanager
async def _cluster(tmp_path: Path, **flags: Any) -> AsyncIterator[Cluster]:
    tokens = {
        ROUTER: User("system:serviceaccount:agent-sandbox-system:sandbox-router"),
        RUNNER: User(USER, ("runners",), ("router",)),
    }
    async with FakeKubernetes(tokens=tokens) as api:
        box = api.store.create(SANDBOXES, sandbox("box-a", namespace="team-a", is_ready=True))
        api.store.create(PODS, pod("box-a", of=box, address="127.0.0.1", is_ready=True))
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig", user={"token": ROUTER})
        settings = {
            "auth": "token-review",
            "token_review_audiences": "router",
            "discovery": "kubernetes",
            "kubeconfig": kubeconfig,
            **flags,
        }
        cluster = Cluster(api, box)
        async with open_door(tmp_path, **settings) as cluster.door:
            async with asyncio.timeout(10):
                while cluster.door.worker.missing():
                    await asyncio.sleep(0.01)
            yield cluster


def _policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


async def test_a_kubernetes_user_gets_what_the_policy_grants_its_group(tmp_path: Path) -> None:
    async with _cluster(tmp_path, policy_file=_policy(tmp_path)) as cluster:
        answer = await cluster.ask(RUNNER)
        other = await cluster.ask(RUNNER, name="box-z")

    assert (answer.status, other.status) == (200, 403)
    assert RUNNER.encode() not in cluster.door.sandbox.heads[0]


async def test_an_unknown_token_is_401(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        answer = await cluster.ask("somebody-elses-token")

    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert cluster.door.reached() == 0


async def test_a_token_for_another_audience_is_401(tmp_path: Path) -> None:
    async with _cluster(tmp_path, token_review_audiences="another") as cluster:
        assert (await cluster.ask(RUNNER)).status == 401


async def test_while_the_api_server_fails_callers_get_503_and_not_in(tmp_path: Path) -> None:
    async with _cluster(tmp_path, policy_file=_policy(tmp_path)) as cluster:
        with cluster.api.faults.refusing(500, resource="tokenreviews"):
            failed = await cluster.ask(RUNNER)
        recovered = await cluster.ask(RUNNER)

    assert (failed.status, failed.code) == (503, "auth_unavailable")
    assert "retry-after" in failed.headers
    assert recovered.status == 200
    assert cluster.door.reached() == 1


async def test_while_the_api_server_fails_who_was_let_in_lately_stays_in(tmp_path: Path) -> None:
    async with _cluster(
        tmp_path, policy_file=_policy(tmp_path), token_review_ttl="0", token_review_stale="1h"
    ) as cluster:
        before = await cluster.ask(RUNNER)
        with cluster.api.faults.refusing(500, resource="tokenreviews"):
            known = await cluster.ask(RUNNER)
            stranger = await cluster.ask("somebody-elses-token")

    assert (before.status, known.status, stranger.status) == (200, 200, 503)


async def test_a_router_whose_reviews_are_refused_is_not_ready_and_says_why(
    tmp_path: Path,
) -> None:
    async with _cluster(tmp_path, policy_file=_policy(tmp_path)) as cluster:
        with cluster.api.faults.refusing(403, resource="tokenreviews"):
            refused = await cluster.ask(RUNNER)
            missing = cluster.door.worker.missing()

    assert (refused.status, refused.code) == (503, "auth_unavailable")
    assert missing == [
        "the API server refuses TokenReviews (TokenReview: HTTP 403 Forbidden): give the router's ServiceAccount the"
        " right to create tokenreviews.authentication.k8s.io"
    ]


async def test_where_others_get_in_refused_reviews_are_a_note_of_a_ready_router(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("the-operators-shared-token")
    flags = {"auth": "static,token-review", "static_token_file": tmp_path / "token"}
    async with _cluster(tmp_path, policy_file=_policy(tmp_path), **flags) as cluster:
        worker = cluster.door.worker
        assert (await cluster.ask(RUNNER)).status == 200
        with cluster.api.faults.refusing(403, resource="tokenreviews"):
            await cluster.ask("a-token-that-was-not-seen-before")
            missing, notes = worker.missing(), worker.notes()

    assert missing == []
    assert ["refuses TokenReviews" in note for note in notes] == [True]


async def test_five_hundred_first_uses_of_one_token_are_one_token_review(tmp_path: Path) -> None:
    async with (
        _cluster(tmp_path, policy_file=_policy(tmp_path)) as cluster,
        asyncio.TaskGroup() as group,
    ):
        asked = [group.create_task(cluster.ask(RUNNER)) for _ in range(500)]

    assert {task.result().status for task in asked} == {200}
    about_runner = [one for one in cluster.api.reviews if one["spec"].get("token") == RUNNER]
    assert len(about_runner) == 1


async def test_rbac_decides_where_no_grant_does(tmp_path: Path) -> None:
    def grants_access(spec: dict[str, Any]) -> bool:
        wanted = spec["resourceAttributes"]
        return (spec["user"], wanted["verb"], wanted["name"]) == (USER, "connect", "box-a")

    async with _cluster(tmp_path, subject_access_review="true") as cluster:
        cluster.api.grants_access = grants_access
        allowed = await cluster.ask(RUNNER)
        missing = await cluster.ask(RUNNER, name="box-z")
        with cluster.api.faults.refusing(500, resource="subjectaccessreviews"):
            failed = await cluster.ask(RUNNER, name="box-y")

    assert (allowed.status, missing.status, failed.status) == (200, 403, 503)
    assert cluster.door.reached() == 1


async def test_beside_gateway_tokens_the_issuer_tells_whose_token_it_is(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    grants = {"sandboxes": [{"namespace": "team-a", "name": "box-a"}]}
    ours = sign({**grants, "iss": "https://platform.example"}).decode()
    forged = sign({**grants, "iss": "https://platform.example"}, algorithm="ES256").decode()
    theirs = sign({"iss": "https://kubernetes"}, algorithm="RS256", headers={"kid": "k"}).decode()
    flags = {
        "auth": "jwt,token-review",
        "jwt_secret_file": secret,
        "jwt_issuer": "https://platform.example",
        "policy_file": _policy(tmp_path),
    }

    async with _cluster(tmp_path, **flags) as cluster:
        cluster.api.tokens[theirs] = cluster.api.tokens[RUNNER]
        statuses = [(await cluster.ask(token)).status for token in (ours, theirs, forged)]

    assert statuses == [200, 200, 401]
    asked_about = [review["spec"]["token"] for review in cluster.api.reviews]
    assert theirs in asked_about
    assert forged not in asked_about, "a forged token of ours is nobody else's business"


async def test_the_sandboxs_annotation_refuses_older_tokens_and_ends_their_tunnels(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    now = int(time.time())
    grants = {"sandboxes": [{"namespace": "team-a", "name": "box-a"}]}
    old, new = (sign({**grants, "iat": iat}).decode() for iat in (now - 3600, now))

    async with _cluster(tmp_path, auth="jwt", jwt_secret_file=secret) as cluster:
        door = cluster.door
        async with asyncio.timeout(15):
            reader, writer = await door.connect()
            protocols = f"sandbox-router.bearer.{old}".encode()
            writer.write(request(*upgrade(protocols), port=door.sandbox.port))
            assert (await read_answer(reader)).status == 101

            cluster.annotate(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 60)))
            ending = await reader.read()
            refused, allowed = await cluster.ask(old), await cluster.ask(new)

    assert int.from_bytes(ending[2:4], "big") == 1008
    assert (refused.status, refused.detail) == (
        401,
        "The token is older than this sandbox allows.",
    )
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    assert allowed.status == 200
