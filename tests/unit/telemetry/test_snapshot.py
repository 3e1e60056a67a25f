import copy

import orjson

from router.telemetry.metrics import Metrics
from router.telemetry.snapshot import FORGOTTEN, merge, without_forgotten, without_gauges

TOTAL = "sandbox_router_requests_total"
DURATION = "sandbox_router_request_duration_seconds"


def worker(make_outcome, *, requests, sandboxes=0, age_s=None):
    metrics = Metrics(version="1")
    metrics.read_at_scrape("sandbox_router_index_sandboxes", lambda: {("ready",): sandboxes})
    metrics.read_at_scrape("sandbox_router_index_age_seconds", lambda: age_s)
    for number in range(requests):
        metrics.counters.inflight_requests += 1
        metrics.counters.request_finished(make_outcome(total_s=float(number)))
    metrics.counters.client_connections = requests
    return metrics.snapshot()


def test_counters_gauges_and_histograms_of_workers_add_up(make_outcome):
    merged = merge([worker(make_outcome, requests=2), worker(make_outcome, requests=3)])

    labels = ("GET", "200", "team-a")
    assert dict(merged[TOTAL])[labels] == [5]
    assert sum(dict(merged[DURATION])[labels][:-1]) == 5
    assert dict(merged[DURATION])[labels][-1] == 0 + 1 + 0 + 1 + 2
    assert merged["sandbox_router_client_connections"] == [((), [5])]


def test_what_every_worker_has_the_same_of_does_not_add_up(make_outcome):
    merged = merge(
        [
            worker(make_outcome, requests=0, sandboxes=40, age_s=2.0),
            worker(make_outcome, requests=0, sandboxes=41, age_s=7.5),
        ]
    )

    assert merged["sandbox_router_index_sandboxes"] == [(("ready",), [41])]
    assert merged["sandbox_router_index_age_seconds"] == [((), [7.5])]
    [(_, build)] = merged["sandbox_router_build_info"]
    assert build == [1]


def test_the_start_is_the_oldest_process_start():
    name = "process_start_time_seconds"

    assert merge([{name: [((), [200.0])]}, {name: [((), [100.0])]}]) == {name: [((), [100.0])]}


def test_a_series_that_one_worker_alone_has_is_kept(make_outcome):
    merged = merge([worker(make_outcome, requests=1), worker(make_outcome, requests=0)])

    assert dict(merged[TOTAL]) == {("GET", "200", "team-a"): [1]}


def test_merging_leaves_the_snapshots_as_they_were(make_outcome):
    one = worker(make_outcome, requests=1)
    before = copy.deepcopy(one)

    merge([one, one])

    assert one == before


def test_a_family_of_another_version_is_left_out():
    assert merge([{"sandbox_router_of_tomorrow_total": [((), [1])]}]) == {}


def test_nothing_merges_to_nothing():
    assert merge([]) == {}


def test_a_dead_workers_totals_live_on_and_its_gauges_do_not(make_outcome):
    remains = without_gauges(worker(make_outcome, requests=2, sandboxes=9))

    assert dict(remains[TOTAL])["GET", "200", "team-a"] == [2]
    assert DURATION in remains
    assert "sandbox_router_client_connections" not in remains
    assert "sandbox_router_index_sandboxes" not in remains


def test_a_snapshot_that_came_through_json_merges_like_any_other(make_outcome):
    snapshot = worker(make_outcome, requests=2, sandboxes=3, age_s=0.1)
    carried = orjson.loads(orjson.dumps(snapshot))

    assert merge([carried, carried]) == merge([snapshot, snapshot])


def test_what_one_process_has_forgotten_is_forgotten_in_the_whole(make_outcome):
    one = worker(make_outcome, requests=2)
    other = {**worker(make_outcome, requests=0), FORGOTTEN: [(("team-a",), [])]}

    merged = merge([one, other])

    assert merged[FORGOTTEN] == [(("team-a",), [])]
    kept = without_forgotten(merged)
    assert dict(kept[TOTAL]) == {}
    assert dict(kept[DURATION]) == {}
    assert kept["sandbox_router_bytes_total"] == merged["sandbox_router_bytes_total"]


def test_where_nothing_was_forgotten_the_snapshot_stays_as_it_is(make_outcome):
    snapshot = worker(make_outcome, requests=1)

    assert without_forgotten(snapshot) is snapshot
