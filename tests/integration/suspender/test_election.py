"""The election among processes, by the library's own timers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess
from router.kube.election import Election, Terms
from router.timestamps import parse_timestamp
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import LEASES, JsonObject
from tests.fakes.running_discovery import until

# The library allows no shorter ones; its followers go by the wall clock.
TERMS = Terms(lease_duration_s=2.6, renew_deadline_s=1.4, retry_period_s=1.0, request_timeout_s=0.5)


class Clock:
    """Real time that a test may push ahead."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead_s


@asynccontextmanager
async def taking_part(
    fake: FakeKubernetes, identity: str, clock: Clock | None = None, terms: Terms = TERMS
) -> AsyncIterator[Election]:
    async with KubernetesApi(access=ClusterAccess(server=fake.url)) as api:
        election = Election(
            api=api,
            namespace="system",
            name="lease",
            identity=identity,
            clock=clock or Clock(),
            terms=terms,
        )
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(election.run())
            try:
                yield election
            finally:
                task.cancel()


def lease(fake: FakeKubernetes) -> JsonObject:
    spec: JsonObject = fake.store.get(LEASES, "system", "lease")["spec"]
    return spec


async def test_the_first_one_makes_the_lease_and_holds_it() -> None:
    async with FakeKubernetes() as fake, taking_part(fake, "a") as election:
        await until(election.is_held)

        assert lease(fake)["holderIdentity"] == "a"
        assert lease(fake)["leaseDurationSeconds"] == 3
        assert parse_timestamp(lease(fake)["renewTime"]) >= parse_timestamp(
            lease(fake)["acquireTime"]
        )


async def test_only_one_of_two_holds_it_and_it_is_free_when_it_was_given_back() -> None:
    async with FakeKubernetes() as fake:
        async with taking_part(fake, "a") as first:
            await until(first.is_held)
            async with taking_part(fake, "b") as second:
                await until(lambda: fake.requests.count(("get", "leases", "system")) > 3)
                assert (first.is_held(), second.is_held()) == (True, False)
        # As the command does: who still takes part would ask for it again.
        await first_gives_back(first, fake)

        assert not first.is_held()
        assert "holderIdentity" not in lease(fake)


async def test_a_lease_that_was_given_back_is_taken_at_once() -> None:
    async with FakeKubernetes() as fake:
        async with taking_part(fake, "a") as first:
            await until(first.is_held)
        await first_gives_back(first, fake)
        async with taking_part(fake, "b") as second:
            await until(second.is_held, timeout_s=1.0)

        assert lease(fake)["leaseTransitions"] == 2


async def first_gives_back(election: Election, fake: FakeKubernetes) -> None:
    async with KubernetesApi(access=ClusterAccess(server=fake.url)) as api:
        election._lock._api = api
        await election.give_back()


async def test_a_holder_that_is_gone_is_followed_when_its_term_is_over() -> None:
    async with FakeKubernetes() as fake:
        async with taking_part(fake, "a") as first:
            await until(first.is_held)
        async with taking_part(fake, "b") as second:
            await until(second.is_held, timeout_s=10.0)

        assert lease(fake)["holderIdentity"] == "b"


async def test_it_is_held_no_longer_than_its_term_whatever_the_library_believes() -> None:
    clock = Clock()
    async with FakeKubernetes() as fake, taking_part(fake, "a", clock) as election:
        await until(election.is_held)

        clock.ahead_s = TERMS.renew_deadline_s

        assert not election.is_held()


async def test_a_silent_api_server_ends_it_in_time_and_its_return_brings_it_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeKubernetes() as fake, taking_part(fake, "a") as election:
        await until(election.is_held)
        with caplog.at_level(logging.WARNING):
            async with fake.away():
                await until(lambda: not election.is_held())
        await until(election.is_held, timeout_s=10.0)

    assert "lease not renewed" in [record.message for record in caplog.records]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("status", [401, 403, 409, 422, 429, 500, 503])
async def test_no_answer_of_the_api_server_ends_the_election(status: int) -> None:
    async with FakeKubernetes() as fake, taking_part(fake, "a") as election:
        with fake.faults.refusing(status, message="no", plain_text=status == 503):
            await until(lambda: len(fake.requests) >= 2)
            assert not election.is_held()
        await until(election.is_held)


async def test_somebody_who_takes_it_away_ends_it_at_the_next_look() -> None:
    async with FakeKubernetes() as fake, taking_part(fake, "a") as election:
        await until(election.is_held)
        fake.store.update(
            LEASES,
            "system",
            "lease",
            lambda item: {**item, "spec": {**item["spec"], "holderIdentity": "b"}},
        )

        await until(lambda: not election.is_held())
