"""The tour: right answers are called right, and each kind of wrong one is caught."""

import pytest

from router.demo.stage import Place, free_port
from router.demo.tour import take_tour


def wrong(rows):
    return [row.request for row in rows if not row.is_right]


async def test_a_router_that_does_its_work_gets_four_right_rows(stand_in):
    rows = await take_tour(stand_in.place)
    assert wrong(rows) == []
    assert [(row.sandbox, row.status) for row in rows] == [
        ("hello", 200),
        ("ticker", 200),
        ("echo", 101),
        ("hello", 401),
    ]
    assert rows[0].answer == "Hello from sandbox hello."
    assert rows[2].answer == '"Hello, sandbox" came back'


@pytest.mark.parametrize(
    ("fault", "value", "caught"),
    [
        ("says", "Hello from sandbox other.", "GET /"),
        ("holds_events_back", True, "GET /events?count=3"),
        ("echo_prefix", "echo: ", "WebSocket /ws"),
        ("refuses_upgrades", True, "WebSocket /ws"),
        ("lets_everybody_in", True, "GET / without token"),
    ],
)
async def test_a_fault_makes_its_own_row_wrong(stand_in, fault, value, caught):
    setattr(stand_in, fault, value)
    assert wrong(await take_tour(stand_in.place)) == [caught]


async def test_a_refused_upgrade_shows_its_status(stand_in):
    stand_in.refuses_upgrades = True
    assert (await take_tour(stand_in.place))[2].status == 503


async def test_a_router_that_is_gone_makes_every_row_wrong():
    rows = await take_tour(Place(free_port(0), 1, "a-token"))
    assert len(wrong(rows)) == 4
    assert {row.status for row in rows} == {0}
    assert "ClientConnectorError" in rows[0].answer
