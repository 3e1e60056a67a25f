"""DNS discovery: every valid name leads to its Service's name."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from router.discovery import dns as dns_module
from router.discovery.dns import DnsSource
from router.errors import SandboxNotReady
from router.proxy.ports import EndpointSource
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.target import Target

BOX = SandboxRef("team-a", "box")


def source(*, trust_pod_ip_header: bool = False) -> DnsSource:
    return DnsSource(cluster_domain="cluster.local", trust_pod_ip_header=trust_pod_ip_header)


def test_a_sandbox_is_at_its_services_name() -> None:
    assert source().find(BOX) == Endpoint(BOX, "", State.READY, ("box.team-a.svc.cluster.local",))


def test_dots_around_the_cluster_domain_are_no_matter() -> None:
    lenient = DnsSource(cluster_domain=".cluster.local.", trust_pod_ip_header=False)
    assert lenient.find(BOX) == source().find(BOX)


def test_a_pod_ip_decides_only_where_it_is_trusted() -> None:
    asked = Target(BOX, 8888, pod_ip="10.0.0.7")

    assert source().find(asked.ref, asked.pod_ip).addresses == ("box.team-a.svc.cluster.local",)
    assert source(trust_pod_ip_header=True).find(asked.ref, asked.pod_ip) == Endpoint(
        BOX, "", State.READY, ("10.0.0.7",)
    )


def test_without_a_pod_ip_the_name_decides() -> None:
    trusting = source(trust_pod_ip_header=True)
    assert trusting.find(BOX) is trusting.find(BOX)


def test_a_pod_ip_of_one_request_is_not_remembered_for_the_next() -> None:
    trusting = source(trust_pod_ip_header=True)
    trusting.find(BOX, "10.0.0.7")
    assert trusting.find(BOX).addresses == ("box.team-a.svc.cluster.local",)


def test_memory_is_bounded_however_many_names_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dns_module, "_CACHED_NAMES", 10)
    names = source()
    for number in range(35):
        ref = SandboxRef("team-a", f"box-{number}")
        assert names.find(ref).ref == ref
    assert len(names._made) <= 10


def test_a_sandbox_has_its_own_name_alone_and_keeps_its_route_whatever_happens() -> None:
    names = source()
    endpoint = names.find(BOX)
    assert names.names(endpoint, BOX) == (BOX,)
    assert names.evict(endpoint, endpoint.addresses[0]) == ()
    assert names.hold_ends_in_s(BOX) is None
    assert names.is_current(endpoint)
    assert not names.is_stale(1.0)


def test_nobody_waits_for_news_that_never_come() -> None:
    with pytest.raises(SandboxNotReady):
        source().wait(BOX, lambda: None)


def test_the_gateway_can_look_sandboxes_up_in_it() -> None:
    looked_up_in: EndpointSource = source()
    for method in (
        "find",
        "names",
        "is_current",
        "wait",
        "hold_ends_in_s",
        "evict",
        "is_stale",
        "is_complete",
        "is_catching_up",
    ):
        asked = set(inspect.signature(getattr(EndpointSource, method)).parameters) - {"self"}
        assert asked <= set(inspect.signature(getattr(looked_up_in, method)).parameters)


def test_there_is_no_table_that_could_be_missing_or_late() -> None:
    names = source()
    assert names.is_complete()
    assert names.is_complete("team-a")
    assert not names.is_catching_up()


async def test_it_is_ready_at_once_and_runs_until_cancelled() -> None:
    names = source()
    assert names.missing() == []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await names.run()
