"""A new worker and the table of a sibling."""

from __future__ import annotations

from typing import Any

import pytest

from router.app.adoption import adopt_table
from router.app.channel import ChannelClosed
from router.app.sandboxes import Sandboxes
from router.routing.handover import HandedTable, Page
from router.routing.index import EndpointIndex
from router.routing.source import IndexSource


class Place:
    """A new worker's sandboxes; what it adopts is noted."""

    def __init__(self, *, is_complete: bool = False) -> None:
        self.adopted: list[HandedTable] = []
        index = EndpointIndex(waiting_room=1, waiting_room_per_namespace=1)
        index.set_awaited(frozenset() if is_complete else None)
        nothing: Any = None
        self.sandboxes = Sandboxes(
            source=IndexSource(index), discovery=nothing, index=index, adopt=self.adopted.append
        )


async def has_one(asked: Page) -> Page | None:
    return {"token": 1, "next": None, "endpoints": [], "aliases": [], "age_s": 3.0}


async def test_a_siblings_table_is_taken() -> None:
    place = Place()
    await adopt_table(place.sandboxes, has_one)
    assert place.adopted == [HandedTable((), {}, 3.0)]


async def test_our_own_whole_table_is_better() -> None:
    place = Place(is_complete=True)
    await adopt_table(place.sandboxes, has_one)
    assert place.adopted == []


async def test_where_nobody_has_one_the_start_goes_on() -> None:
    async def has_none(asked: Page) -> Page | None:
        return None

    place = Place()
    await adopt_table(place.sandboxes, has_none)
    await adopt_table(place.sandboxes, None)
    assert place.adopted == []


@pytest.mark.parametrize(
    "error", [ChannelClosed("gone"), TimeoutError(), RuntimeError("it failed there")]
)
async def test_a_sibling_that_fails_does_not_stop_the_start(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(asked: Page) -> Page | None:
        raise error

    place = Place()
    await adopt_table(place.sandboxes, fails)
    assert place.adopted == []
    assert "no table from another worker" in caplog.messages


async def test_discovery_that_needs_no_lists_asks_nobody() -> None:
    place = Place()
    place.sandboxes.adopt = None
    await adopt_table(place.sandboxes, has_one)
    assert place.adopted == []
