from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess
from router.settings.groups import Address
from router.suspender.routers import ListedRouters, RoutersUnknown, ServiceRouters
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import SLICES

SERVICE = "sandbox-router-admin"


def endpoint(address: str, uid: str = "", **conditions: bool) -> dict[str, Any]:
    reference = {"targetRef": {"kind": "Pod", "uid": uid}} if uid else {}
    return {"addresses": [address], "conditions": conditions, **reference}


def endpoint_slice(
    name: str, *endpoints: dict[str, Any], service: str = SERVICE, port: str = "admin"
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "system",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "port": 8080}, {"name": port, "port": 9090}],
    }


@asynccontextmanager
async def finding(fake: FakeKubernetes) -> AsyncIterator[ServiceRouters]:
    async with KubernetesApi(access=ClusterAccess(server=fake.url)) as api:
        yield ServiceRouters(api=api, namespace="system", name=SERVICE)


class TestServiceRouters:
    """By EndpointSlices."""

    async def test_every_pod_is_asked_ready_or_not_and_also_while_it_ends(self) -> None:
        async with FakeKubernetes() as fake, finding(fake) as finder:
            fake.store.create(
                SLICES,
                endpoint_slice(
                    "a",
                    endpoint("10.0.0.1", "u1", ready=True),
                    endpoint("10.0.0.2", "u2", ready=False),
                    endpoint("10.0.0.3", "u3", ready=False, terminating=True, serving=False),
                ),
            )
            fake.store.create(SLICES, endpoint_slice("b", endpoint("10.0.0.4", "u4")))
            fake.store.create(
                SLICES, endpoint_slice("c", endpoint("10.9.9.9", "x"), service="another")
            )

            found = (await finder.find()).found

        assert {router.name: router.addresses for router in found} == {
            f"u{n}": (f"10.0.0.{n}:9090",) for n in (1, 2, 3, 4)
        }

    async def test_a_pod_with_addresses_of_both_families_is_one_router(self) -> None:
        async with FakeKubernetes() as fake, finding(fake) as finder:
            fake.store.create(SLICES, endpoint_slice("a", endpoint("10.0.0.1", "u1")))
            fake.store.create(SLICES, endpoint_slice("b", endpoint("fd00::1", "u1")))

            (router,) = (await finder.find()).found

        assert router.addresses == ("10.0.0.1:9090", "[fd00::1]:9090")

    async def test_a_service_without_the_port_is_named(self) -> None:
        async with FakeKubernetes() as fake, finding(fake) as finder:
            fake.store.create(SLICES, endpoint_slice("a", endpoint("10.0.0.1"), port="web"))

            with pytest.raises(RoutersUnknown, match=f"system/{SERVICE} .* port named admin"):
                await finder.find()

    async def test_an_endpoint_without_an_address_is_no_knowledge(self) -> None:
        async with FakeKubernetes() as fake, finding(fake) as finder:
            fake.store.create(SLICES, endpoint_slice("a", {"addresses": []}))

            with pytest.raises(RoutersUnknown, match="no address"):
                await finder.find()

    async def test_no_slice_is_no_router(self) -> None:
        async with FakeKubernetes() as fake, finding(fake) as finder:
            assert (await finder.find()).found == ()

    async def test_an_api_that_refuses_or_is_away_is_no_knowledge(self) -> None:
        async with FakeKubernetes() as fake, finding(fake) as finder:
            with (
                fake.faults.refusing(403, message="may not list"),
                pytest.raises(RoutersUnknown, match="may not list"),
            ):
                await finder.find()
            async with fake.away():
                with pytest.raises(RoutersUnknown):
                    await finder.find()

    async def test_one_change_between_two_looks_is_seen_and_two_may_hide_a_router(self) -> None:
        async with FakeKubernetes() as fake, finding(fake) as finder:
            fake.store.create(SLICES, endpoint_slice("a", endpoint("10.0.0.1", "u1")))

            def change(*endpoints: dict[str, Any]) -> None:
                fake.store.update(
                    SLICES, "system", "a", lambda item: {**item, "endpoints": list(endpoints)}
                )

            seen = [(await finder.find()).is_continuous, (await finder.find()).is_continuous]
            change(endpoint("10.0.0.1", "u1"), endpoint("10.0.0.2", "u2"))
            seen.append((await finder.find()).is_continuous)
            change(endpoint("10.0.0.1", "u1"), endpoint("10.0.0.2", "u2"), endpoint("10.0.0.3"))
            change(endpoint("10.0.0.1", "u1"), endpoint("10.0.0.2", "u2"))
            seen.append((await finder.find()).is_continuous)

        assert seen == [False, True, True, False], "the first look has none before it"

    async def test_a_slice_that_went_or_that_changed_since_it_came_may_hide_a_router(self) -> None:
        async with FakeKubernetes() as fake, finding(fake) as finder:
            await finder.find()
            fake.store.create(SLICES, endpoint_slice("new", endpoint("10.0.0.1", "u1")))
            as_it_came = (await finder.find()).is_continuous
            fake.store.create(SLICES, endpoint_slice("newer", endpoint("10.0.0.2", "u2")))
            fake.store.update(SLICES, "system", "newer", lambda item: {**item, "endpoints": []})
            changed_already = (await finder.find()).is_continuous
            fake.store.delete(SLICES, "system", "new")
            gone = (await finder.find()).is_continuous

        assert (as_it_came, changed_already, gone) == (True, False, False)


class TestListedRouters:
    """By addresses."""

    async def test_each_is_a_router_under_its_address(self) -> None:
        finder = ListedRouters((Address("127.0.0.1", 9090), Address("::1", 9090)))

        found = await finder.find()

        assert [router.name for router in found.found] == ["127.0.0.1:9090", "[::1]:9090"]
        assert not found.is_continuous, "what came and went before the first look isn't known"
        assert (await finder.find()).is_continuous

    async def test_a_host_name_is_resolved(self) -> None:
        found = await ListedRouters((Address("localhost", 9090),)).find()

        assert [router.addresses for router in found.found] == [("127.0.0.1:9090",)]

    async def test_a_name_that_leads_nowhere_is_no_knowledge(self) -> None:
        with pytest.raises(RoutersUnknown, match=r"router\.invalid"):
            await ListedRouters((Address("router.invalid", 9090),)).find()
