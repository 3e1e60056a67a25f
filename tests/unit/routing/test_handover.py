"""A table on its way to another worker: nothing is lost, and nothing of a half one is taken."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest

from router.routing import handover
from router.routing.endpoint import NO_PORTS, Endpoint, SandboxRef, State, Wishes
from router.routing.handover import Donor, HandedTable, Page, fetch
from router.routing.index import EndpointIndex

BOX = Endpoint(SandboxRef("team-a", "box"), "pod-1", State.READY, ("10.0.0.5", "fd00::5"), "box-1")
RICH = Endpoint(
    SandboxRef("team-b", "rich"),
    "",
    State.SUSPENDED,
    (),
    "rich-1",
    "as it says",
    {8888: 40001},
    wishes=Wishes("keep", public_ports=frozenset({3000, 8080})),
    tokens_not_before=1_764_547_200.5,
)
LOCKED = Endpoint(SandboxRef("team-b", "locked"), "", State.STARTING, tokens_not_before=math.inf)
MINE = SandboxRef("team-a", "mine")


@pytest.fixture
def index() -> EndpointIndex:
    index = EndpointIndex(waiting_room=1, waiting_room_per_namespace=1, clock=lambda: 100.0)
    index.set_awaited(frozenset())
    index.set_synced(93.0)
    return index


class Wire:
    """Between a new worker and a donor: JSON, as in the product."""

    def __init__(self, donor: Donor) -> None:
        self._donor = donor
        self.pages: list[Page] = []

    async def ask(self, asked: Page) -> Page | None:
        page = self._donor.page(orjson.loads(orjson.dumps(asked)))
        if page is not None:
            page = orjson.loads(orjson.dumps({**page, "donor": 1}))
            self.pages.append(page)
        return page


async def test_a_table_arrives_as_it_was(index: EndpointIndex) -> None:
    index.replace([BOX, RICH, LOCKED])
    index.set_alias(MINE, BOX.ref)
    handed = await fetch(Wire(Donor(index)).ask)
    assert handed == HandedTable((BOX, RICH, LOCKED), {MINE: BOX.ref}, 7.0)
    assert handed.endpoints[0].ports is NO_PORTS


async def test_a_large_table_comes_in_pages(
    index: EndpointIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "PAGE", 10)
    boxes = [Endpoint(SandboxRef("a", f"box-{n}"), f"pod-{n}", State.STARTING) for n in range(41)]
    index.replace(boxes)
    donor = Donor(index)
    wire = Wire(donor)
    handed = await fetch(wire.ask)
    assert handed is not None
    assert handed.endpoints == tuple(boxes)
    assert [len(page["endpoints"]) for page in wire.pages] == [10, 10, 10, 10, 1]
    assert donor._snapshots == {}, "nothing is kept behind the last page"


async def test_changes_on_the_way_do_not_shift_the_pages(
    index: EndpointIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "PAGE", 1)
    index.replace([BOX, RICH])
    wire = Wire(Donor(index))

    async def ask(asked: Page) -> Page | None:
        page = await wire.ask(asked)
        index.remove(BOX.ref)
        return page

    handed = await fetch(ask)
    assert handed is not None
    assert handed.endpoints == (BOX, RICH)


async def test_an_evicted_route_is_handed_on_as_discovery_has_it(index: EndpointIndex) -> None:
    index.replace([BOX])
    index.evict(BOX, "10.0.0.5")
    handed = await fetch(Wire(Donor(index)).ask)
    assert handed is not None
    assert handed.endpoints == (BOX,)


@pytest.mark.parametrize("awaited", [None, frozenset({"team-a"})])
async def test_a_table_that_is_not_whole_is_not_given_away(
    index: EndpointIndex, awaited: frozenset[str] | None
) -> None:
    index.replace([BOX])
    index.set_awaited(awaited)
    assert await fetch(Wire(Donor(index)).ask) is None


async def test_half_a_table_is_none(index: EndpointIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "PAGE", 1)
    index.replace([BOX, RICH])
    donor = Donor(index)
    wire = Wire(donor)

    async def ask(asked: Page) -> Page | None:
        page = await wire.ask(asked)
        donor._snapshots.clear()
        return page

    assert await fetch(ask) is None


def test_few_tables_are_held_for_those_who_never_ask_again(
    index: EndpointIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "PAGE", 1)
    index.replace([BOX, RICH])
    donor = Donor(index)
    firsts: list[Any] = [donor.page({}) for _ in range(5)]
    assert len(donor._snapshots) == 2
    assert donor.page(firsts[0]) is None
    assert donor.page(firsts[4]) is not None
