"""The table of sandboxes, as the gateway asks it."""

from __future__ import annotations

import pytest

from router.errors import SandboxNotReady
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from router.routing.source import IndexSource

REF = SandboxRef("default", "box")
CLAIM = SandboxRef("default", "claim")
BOX = Endpoint(REF, "pod-1", State.READY, ("10.0.0.5",))


@pytest.fixture
def index() -> EndpointIndex:
    index = EndpointIndex(waiting_room=1, waiting_room_per_namespace=1)
    index.upsert(BOX)
    index.set_alias(CLAIM, REF)
    return index


@pytest.fixture
def source(index: EndpointIndex) -> IndexSource:
    return IndexSource(index)


def test_a_target_leads_where_its_name_leads(source: IndexSource) -> None:
    assert source.find(REF) is BOX
    assert source.find(CLAIM) is BOX
    assert source.find(SandboxRef("default", "other")) is None


def test_a_pod_ip_from_the_client_decides_nothing(source: IndexSource) -> None:
    assert source.find(REF, "10.9.9.9") is BOX
    assert source.find(SandboxRef("default", "other"), "10.0.0.5") is None


def test_names_and_currentness_are_the_tables(source: IndexSource, index: EndpointIndex) -> None:
    assert source.names(BOX, CLAIM) == (CLAIM, REF)
    assert source.is_current(BOX)
    index.upsert(Endpoint(REF, "pod-2", State.READY, ("10.0.0.5",)))
    assert not source.is_current(BOX)


def test_who_waits_is_woken_by_a_change_and_too_many_are_refused(
    source: IndexSource, index: EndpointIndex
) -> None:
    woken: list[str] = []
    source.wait(REF, lambda: woken.append("first"))
    with pytest.raises(SandboxNotReady):
        source.wait(REF, lambda: woken.append("second"))
    index.remove(REF)
    assert woken == ["first"]


def test_an_evicted_route_is_held_back_for_a_while(source: IndexSource) -> None:
    assert source.hold_ends_in_s(REF) is None
    assert source.evict(BOX, "10.0.0.5") == (BOX,)
    held = source.find(REF)
    assert held is not None
    assert held.state is State.STARTING
    hold_s = source.hold_ends_in_s(REF)
    assert hold_s is not None
    assert hold_s > 0
    assert source.evict(BOX, "10.0.0.5") == (), "once"


def test_it_is_as_stale_as_the_table(source: IndexSource, index: EndpointIndex) -> None:
    index.set_synced()
    assert not source.is_stale(60.0)
    index.set_synced(-1000.0)
    assert source.is_stale(60.0)


def test_it_is_as_complete_as_the_table(source: IndexSource, index: EndpointIndex) -> None:
    index.set_awaited(frozenset({"team-b"}))
    assert source.is_complete("team-a")
    assert not source.is_complete("team-b")
    assert not source.is_complete()


def test_it_catches_up_when_its_discovery_says_so(index: EndpointIndex) -> None:
    assert IndexSource(index, is_catching_up=lambda: True).is_catching_up()
    assert not IndexSource(index).is_catching_up()


def test_its_repr_shows_the_table(source: IndexSource) -> None:
    assert repr(source).startswith("<IndexSource <EndpointIndex size=1 ")
