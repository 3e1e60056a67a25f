from router.telemetry.snapshot import FORGOTTEN
from router.telemetry.worker_totals import WorkerTotals

TOTAL = "sandbox_router_requests_total"
OPEN = "sandbox_router_open_tunnels"
TEAM_A = ("GET", "200", "team-a")


def snapshot(requests, *, open_tunnels=0, forgotten=()):
    rows = [((name,), []) for name in forgotten]
    return {TOTAL: [(TEAM_A, [requests])], OPEN: [((), [open_tunnels])], FORGOTTEN: rows}


def requests(totals):
    return dict(totals.total().get(TOTAL, [])).get(TEAM_A, [None])[0]


def test_the_living_add_up():
    totals = WorkerTotals()
    for life in (1, 2):
        totals.born(life)
        totals.told(life, snapshot(10 * life, open_tunnels=1))

    assert requests(totals) == 30
    assert totals.total()[OPEN] == [((), [2])]


def test_what_a_dead_worker_counted_stays_and_what_it_held_is_gone():
    totals = WorkerTotals()
    totals.born(1)
    totals.told(1, snapshot(10, open_tunnels=3))

    totals.died(1)
    totals.died(1)
    totals.born(2)
    totals.told(2, snapshot(1, open_tunnels=1))

    assert requests(totals) == 11
    assert totals.total()[OPEN] == [((), [1])]


def test_a_worker_that_dies_during_a_scrape_counts_once_whatever_comes_first():
    totals = WorkerTotals()
    totals.born(1)
    totals.told(1, snapshot(10))

    totals.died(1)
    assert requests(totals) == 10, "before its last answer"
    totals.told(1, snapshot(12))
    assert requests(totals) == 10, "an answer that comes after its end"
    totals.born(2)
    assert requests(totals) == 10
    totals.told(2, snapshot(5))
    assert requests(totals) == 15


def test_a_namespace_that_one_worker_has_forgotten_is_shown_by_none():
    totals = WorkerTotals()
    for life in (1, 2, 3):
        totals.born(life)
        totals.told(life, snapshot(10))
    totals.died(3)

    totals.told(1, {**snapshot(0, forgotten=["team-a"]), TOTAL: []})
    assert requests(totals) is None

    for life in (1, 2):
        totals.told(life, snapshot(2))
    assert requests(totals) == 4, "it came back, and its dead are not counted again"


def test_its_repr_says_how_many_live():
    totals = WorkerTotals()
    totals.born(1)

    assert repr(totals) == "<WorkerTotals living=1>"
