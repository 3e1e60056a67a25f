import pytest

from router.admin.overview import Count, Rates
from router.telemetry.metrics import Metrics


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def overview(rates, metrics, missing=(), notes=()):
    return rates.overview(metrics.snapshot(), missing=missing, notes=notes)


def named(counts):
    return {count.name: count for count in counts}


def test_at_first_totals_are_known_and_rates_are_not(clock, make_outcome):
    metrics = Metrics(version="1")
    metrics.counters.request_finished(make_outcome())

    found = overview(Rates(clock=clock), metrics)

    assert found.requests == Count("", 1, None)
    assert named(found.responses)["2xx"] == Count("2xx", 1, None)


def test_rates_are_those_of_the_last_seconds_alone(clock, make_outcome):
    metrics, rates = Metrics(version="1"), Rates(clock=clock)
    overview(rates, metrics)
    for _ in range(100):
        metrics.counters.request_finished(make_outcome())
    clock.now += 2.0
    assert overview(rates, metrics).requests == Count("", 100, 50.0)

    for _ in range(10):
        clock.now += 2.0
        found = overview(rates, metrics)

    assert found.requests == Count("", 100, 0.0)


def test_a_counter_that_went_back_has_no_negative_rate(clock, make_outcome):
    metrics, rates = Metrics(version="1"), Rates(clock=clock)
    metrics.counters.request_finished(make_outcome())
    overview(rates, metrics)
    clock.now += 2.0

    assert overview(rates, Metrics(version="1")).requests == Count("", 0, 0.0)


def test_statuses_are_told_by_class_but_tunnels_and_clients_that_left(clock, make_outcome):
    metrics = Metrics(version="1")
    for status in (200, 204, 304, 404, 499, 503, 101):
        metrics.counters.request_finished(make_outcome(status=status))

    found = named(overview(Rates(clock=clock), metrics).responses)

    assert {name: count.total for name, count in found.items()} == {
        "2xx": 2,
        "3xx": 1,
        "4xx": 1,
        "5xx": 1,
        "101": 1,
        "499": 1,
    }


def test_errors_that_have_not_occurred_are_left_out_and_the_most_frequent_is_first(
    clock, make_outcome
):
    metrics = Metrics(version="1")
    for code in ("forbidden", "sandbox_not_found", "sandbox_not_found"):
        metrics.counters.request_finished(make_outcome(status=404, code=code))

    errors = overview(Rates(clock=clock), metrics).errors

    assert [(count.name, count.total) for count in errors] == [
        ("sandbox_not_found", 2),
        ("forbidden", 1),
    ]


def test_gauges_and_sentences_are_told_as_they_are(clock):
    metrics = Metrics(version="1")
    metrics.counters.open_tunnels = 3
    metrics.counters.inflight_requests = 4
    metrics.counters.client_connections = 5
    metrics.read_at_scrape("sandbox_router_waiting_requests", lambda: 6)
    metrics.read_at_scrape("sandbox_router_index_sandboxes", lambda: {("ready",): 7})
    metrics.read_at_scrape("sandbox_router_index_age_seconds", lambda: 8.5)

    found = overview(Rates(clock=clock), metrics, missing=["no table"], notes=["slow"])

    assert (found.open_tunnels, found.in_flight, found.clients, found.waiting) == (3, 4, 5, 6)
    assert found.sandboxes["ready"] == 7
    assert found.table_age_s == 8.5
    assert (found.missing, found.notes) == (["no table"], ["slow"])


def test_without_a_table_there_is_no_age(clock):
    assert overview(Rates(clock=clock), Metrics(version="1")).table_age_s is None
