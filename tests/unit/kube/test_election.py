from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess
from router.kube.election import DEFAULT_TERMS, Election, LeaseLock, Terms
from router.timestamps import parse_timestamp
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import LEASES, JsonObject


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def lock_on(
    fake: FakeKubernetes, identity: str = "a", clock: Clock | None = None
) -> AsyncIterator[LeaseLock]:
    async with KubernetesApi(access=ClusterAccess(server=fake.url)) as api:
        yield LeaseLock(
            api=api,
            namespace="system",
            name="lease",
            identity=identity,
            terms=Terms(request_timeout_s=2.0),
            clock=clock or Clock(),
        )


async def claim(lock: LeaseLock) -> bool:
    found, _ = await lock.get("", "")
    ask = lock.update if found else lock.create
    return await ask("", "", None)


def spec(fake: FakeKubernetes) -> JsonObject:
    found: JsonObject = fake.store.get(LEASES, "system", "lease")["spec"]
    return found


async def test_a_lease_that_is_not_there_is_made() -> None:
    async with FakeKubernetes() as fake, lock_on(fake) as lock:
        granted = await claim(lock)

        assert (granted, lock.granted_at) == (True, 100.0)
        assert spec(fake)["holderIdentity"] == "a"
        assert spec(fake)["leaseDurationSeconds"] == 30
        assert parse_timestamp(spec(fake)["acquireTime"]) > 0


async def test_a_renewal_keeps_the_time_of_acquisition() -> None:
    async with FakeKubernetes() as fake, lock_on(fake) as lock:
        await claim(lock)
        first = spec(fake)

        await claim(lock)
        second = spec(fake)

        assert second["acquireTime"] == first["acquireTime"]
        assert second["renewTime"] > first["renewTime"]
        assert second["leaseTransitions"] == first["leaseTransitions"] == 1


async def test_of_two_that_ask_at_once_one_is_told_no() -> None:
    async with FakeKubernetes() as fake, lock_on(fake) as one, lock_on(fake, "b") as two:
        await claim(one)
        await two.get("", "")
        await claim(one)

        assert not await two.update("", "", None)
        assert (two.granted_at, two.problem) == (None, "")


async def test_a_lease_that_is_given_back_has_no_holder_and_keeps_its_count() -> None:
    async with FakeKubernetes() as fake, lock_on(fake) as lock:
        await claim(lock)
        await lock.give_back()

        assert lock.granted_at is None
        assert spec(fake) == {"leaseDurationSeconds": 30, "leaseTransitions": 1}
        _, record = await lock.get("", "")
        assert record.holder_identity is None


async def test_a_lease_is_given_back_also_behind_a_renewal_whose_answer_never_came() -> None:
    async with FakeKubernetes() as fake, lock_on(fake) as lock:
        await claim(lock)
        known = lock._lease
        await claim(lock)
        lock._lease = known
        await lock.give_back()

        assert "holderIdentity" not in spec(fake)


async def test_a_lease_that_somebody_else_took_meanwhile_is_left_to_them() -> None:
    async with FakeKubernetes() as fake, lock_on(fake) as one, lock_on(fake, "b") as two:
        await claim(one)
        await claim(two)
        await one.give_back()

        assert spec(fake)["holderIdentity"] == "b"


async def test_a_lease_that_is_not_ours_is_not_given_back() -> None:
    async with FakeKubernetes() as fake, lock_on(fake) as one, lock_on(fake, "b") as two:
        await claim(one)
        await two.give_back()

        assert spec(fake)["holderIdentity"] == "a"


async def test_what_somebody_else_holds_is_ours_no_more() -> None:
    async with FakeKubernetes() as fake, lock_on(fake) as one, lock_on(fake, "b") as two:
        await claim(one)
        await claim(two)

        await one.get("", "")

        assert one.granted_at is None


@pytest.mark.parametrize("status", [401, 403, 409, 422, 429, 500, 503])
async def test_every_refusal_is_a_no_that_the_library_understands(status: int) -> None:
    async with FakeKubernetes() as fake, lock_on(fake) as lock:
        with fake.faults.refusing(status, message="no", plain_text=status == 503):
            found, refusal = await lock.get("", "")
            granted = await lock.create("", "", None)

    assert (found, granted) == (False, False)
    assert f'"code": {status}'.encode() in refusal.body


async def test_a_server_that_is_away_is_a_no_too() -> None:
    async with FakeKubernetes() as fake, lock_on(fake) as lock:
        await claim(lock)
        async with fake.away():
            found, _ = await lock.get("", "")
            granted = await lock.update("", "", None)
            await lock.give_back()

    assert (found, granted) == (False, False)
    assert lock.problem


async def test_a_lease_is_held_no_longer_than_its_term() -> None:
    clock = Clock()
    async with FakeKubernetes() as fake, lock_on(fake, clock=clock) as lock:
        election = Election(
            api=SimpleNamespace(),  # type: ignore[arg-type]
            namespace="system",
            name="lease",
            identity="a",
            clock=clock,
        )
        election._lock = lock
        await claim(lock)
        held = [election.is_held()]
        clock.now += DEFAULT_TERMS.renew_deadline_s - 0.1
        held.append(election.is_held())
        clock.now += 0.2
        held.append(election.is_held())

    assert held == [True, True, False]


def test_terms_as_shipped_stop_the_old_holder_before_a_new_one_begins() -> None:
    assert DEFAULT_TERMS.renew_deadline_s < DEFAULT_TERMS.lease_duration_s
    assert DEFAULT_TERMS.request_timeout_s < DEFAULT_TERMS.retry_period_s
