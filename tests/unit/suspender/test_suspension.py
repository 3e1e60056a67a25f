from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from router.discovery.idle_timeout import IDLE_TIMEOUT_ANNOTATION
from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess
from router.suspender.candidates import Candidate, parse_candidate
from router.suspender.suspension import Outcome, Suspension
from tests.fakes.cluster_objects import sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import SANDBOXES, JsonObject


def yes() -> bool:
    return True


@asynccontextmanager
async def suspending(
    fake: FakeKubernetes, *, is_dry_run: bool = False
) -> AsyncIterator[Suspension]:
    async with KubernetesApi(access=ClusterAccess(server=fake.url)) as api:
        yield Suspension(api=api, is_dry_run=is_dry_run)


def create(fake: FakeKubernetes) -> Candidate:
    item = sandbox("box", is_ready=True, annotations={IDLE_TIMEOUT_ANNOTATION: "10m"})
    return parse_candidate(fake.store.create(SANDBOXES, item))


def mode(fake: FakeKubernetes) -> str | None:
    found: str | None = fake.store.get(SANDBOXES, "default", "box")["spec"].get("operatingMode")
    return found


def change(fake: FakeKubernetes, how: Callable[[JsonObject], None]) -> None:
    def changed(item: JsonObject) -> JsonObject:
        how(item)
        return item

    fake.store.update(SANDBOXES, "default", "box", changed)


async def test_it_changes_the_mode_and_nothing_else() -> None:
    async with FakeKubernetes() as fake, suspending(fake) as suspension:
        candidate = create(fake)
        before = fake.store.get(SANDBOXES, "default", "box")

        result = await suspension.suspend(candidate, yes)
        after = fake.store.get(SANDBOXES, "default", "box")

    assert result.outcome is Outcome.SUSPENDED
    assert after["spec"] == {**before["spec"], "operatingMode": "Suspended"}
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


async def test_a_mode_that_is_not_said_is_added() -> None:
    async with FakeKubernetes() as fake, suspending(fake) as suspension:
        create(fake)
        change(fake, lambda item: item["spec"].pop("operatingMode"))
        candidate = parse_candidate(fake.store.get(SANDBOXES, "default", "box"))

        result = await suspension.suspend(candidate, yes)

        assert (result.outcome, mode(fake)) == (Outcome.SUSPENDED, "Suspended")


def _resumed(item: JsonObject) -> None:
    item["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-01T00:00:05Z"


def _spared(item: JsonObject) -> None:
    del item["metadata"]["annotations"][IDLE_TIMEOUT_ANNOTATION]


def _given_longer(item: JsonObject) -> None:
    item["metadata"]["annotations"][IDLE_TIMEOUT_ANNOTATION] = "10h"


def _not_ready(item: JsonObject) -> None:
    item["status"]["conditions"][0]["status"] = "False"


@pytest.mark.parametrize("how", [_resumed, _spared, _given_longer, _not_ready])
async def test_what_changed_since_it_was_judged_is_left_alone(
    how: Callable[[JsonObject], None],
) -> None:
    async with FakeKubernetes() as fake, suspending(fake) as suspension:
        candidate = create(fake)
        change(fake, how)

        result = await suspension.suspend(candidate, yes)

        assert (result.outcome, mode(fake)) == (Outcome.CHANGED, "Running")
        assert ("patch", "sandboxes", "default") not in fake.requests


async def test_another_sandbox_of_that_name_is_left_alone() -> None:
    async with FakeKubernetes() as fake, suspending(fake) as suspension:
        candidate = create(fake)
        fake.store.delete(SANDBOXES, "default", "box")
        gone = await suspension.suspend(candidate, yes)
        create(fake)
        replaced = await suspension.suspend(candidate, yes)

        assert (gone.outcome, replaced.outcome) == (Outcome.CHANGED, Outcome.CHANGED)
        assert mode(fake) == "Running"


async def test_what_changes_between_reading_and_writing_is_a_conflict() -> None:
    async with FakeKubernetes() as fake, suspending(fake) as suspension:
        candidate = create(fake)

        def meanwhile() -> bool:
            change(fake, lambda item: item["metadata"]["annotations"].update(note="hello"))
            return True

        result = await suspension.suspend(candidate, meanwhile)

        assert (result.outcome, mode(fake)) == (Outcome.CONFLICT, "Running")


async def test_a_lease_that_was_lost_meanwhile_withholds_the_change() -> None:
    async with FakeKubernetes() as fake, suspending(fake) as suspension:
        candidate = create(fake)

        result = await suspension.suspend(candidate, lambda: False)

        assert (result.outcome, mode(fake)) == (Outcome.WITHHELD, "Running")


async def test_a_dry_run_writes_nothing() -> None:
    async with FakeKubernetes() as fake, suspending(fake, is_dry_run=True) as suspension:
        candidate = create(fake)

        result = await suspension.suspend(candidate, yes)

        assert (result.outcome, mode(fake)) == (Outcome.WOULD_SUSPEND, "Running")
        assert {verb for verb, _, _ in fake.requests} == {"get"}


@pytest.mark.parametrize(
    ("status", "message", "outcome"),
    [
        (403, "may not patch", Outcome.REFUSED),
        (422, "ValidatingAdmissionPolicy 'x' denied request", Outcome.REFUSED),
        (422, "the server rejected our request", Outcome.CONFLICT),
        (409, "the object has been modified", Outcome.CONFLICT),
        (429, "slow down", Outcome.UNAVAILABLE),
        (503, "starting", Outcome.UNAVAILABLE),
        (500, "etcd", Outcome.UNAVAILABLE),
    ],
)
async def test_each_refusal_has_its_outcome(status: int, message: str, outcome: Outcome) -> None:
    async with FakeKubernetes() as fake, suspending(fake) as suspension:
        candidate = create(fake)
        with fake.faults.refusing(status, message=message, verb="patch"):
            result = await suspension.suspend(candidate, yes)

    assert result.outcome is outcome
    assert message in result.reason


async def test_an_api_server_that_is_away_is_an_outcome_too() -> None:
    async with FakeKubernetes() as fake, suspending(fake) as suspension:
        candidate = create(fake)
        async with fake.away():
            result = await suspension.suspend(candidate, yes)

    assert result.outcome is Outcome.UNAVAILABLE


async def test_a_server_that_drops_the_mode_is_not_believed() -> None:
    class Deaf:
        async def get_json(self, path: str, params: Any, *, read_timeout_s: float) -> JsonObject:
            return item

        async def patch_json(self, path: str, operations: Any, *, timeout_s: float) -> JsonObject:
            return {"spec": {}}

    item = sandbox("box", is_ready=True, annotations={IDLE_TIMEOUT_ANNOTATION: "10m"})
    suspension = Suspension(api=Deaf(), is_dry_run=False)  # type: ignore[arg-type]

    result = await suspension.suspend(parse_candidate(item), yes)

    assert result.outcome is Outcome.REFUSED
    assert "CRD" in result.reason
