import itertools
import platform
from collections import Counter

import pytest

from router import code_form
from router.telemetry.metric_labels import REQUEST_BUCKETS_S, ROUTER_ERROR_CODES
from router.telemetry.metrics import Metrics
from router.telemetry.namespace_labels import FORGOTTEN_AFTER_S, NamespaceLabels
from router.telemetry.snapshot import FORGOTTEN


@pytest.fixture
def metrics():
    return Metrics(version="1.2.3", namespaces=NamespaceLabels(limit=3))


def value(metrics, name, *labels):
    """The one number of a series; None when there is no such series."""
    series = dict(metrics.snapshot().get(name, [])).get(labels)
    return None if series is None else series[0]


def labels_of(metrics, name):
    return [labels for labels, _ in metrics.snapshot().get(name, [])]


def counted(metrics, name):
    """The labels of the series that aren't zero."""
    return [labels for labels, series in metrics.snapshot().get(name, []) if any(series)]


def histogram(metrics, name, *labels):
    """How many values there were, and their sum."""
    series = dict(metrics.snapshot()[name])[labels]
    return sum(series[:-1]), series[-1]


def finish(metrics, outcome):
    metrics.counters.inflight_requests += 1
    metrics.counters.request_finished(outcome)


# --- requests --------------------------------------------------------------------------------


def test_a_request_counts_by_method_status_and_namespace(metrics, make_outcome):
    finish(metrics, make_outcome())
    finish(metrics, make_outcome())
    finish(metrics, make_outcome(status=503))

    total = "sandbox_router_requests_total"
    assert value(metrics, total, "GET", "200", "team-a") == 2
    assert value(metrics, total, "GET", "503", "team-a") == 1


def test_a_duration_equal_to_a_bound_belongs_to_its_bucket(metrics, make_outcome):
    bound = REQUEST_BUCKETS_S[3]

    finish(metrics, make_outcome(total_s=bound))

    series = dict(metrics.snapshot()["sandbox_router_request_duration_seconds"])
    assert series["GET", "200", "team-a"][3] == 1
    assert series["GET", "200", "team-a"][-1] == bound


def test_a_duration_above_every_bound_is_counted_too(metrics, make_outcome):
    finish(metrics, make_outcome(total_s=1e9))

    series = dict(metrics.snapshot()["sandbox_router_request_duration_seconds"])
    assert series["GET", "200", "team-a"][-2:] == [1, 1e9]


def test_a_request_in_flight_is_a_gauge(metrics, make_outcome):
    metrics.counters.inflight_requests += 2
    metrics.counters.request_finished(make_outcome())

    assert value(metrics, "sandbox_router_inflight_requests") == 1


def test_bytes_count_each_way(metrics, make_outcome):
    finish(metrics, make_outcome(bytes_from_client=10, bytes_to_client=200))
    finish(metrics, make_outcome(bytes_from_client=1, bytes_to_client=2))

    assert value(metrics, "sandbox_router_bytes_total", "from_client") == 11
    assert value(metrics, "sandbox_router_bytes_total", "to_client") == 202


def test_connecting_and_waiting_are_measured_only_where_they_happened(metrics, make_outcome):
    finish(metrics, make_outcome())
    finish(metrics, make_outcome(connect_s=0.002, wait_s=0.0))

    connect = histogram(metrics, "sandbox_router_connect_duration_seconds", "connected")
    assert connect == (1, 0.002)
    assert histogram(metrics, "sandbox_router_wait_duration_seconds") == (1, 0.0)


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ({}, "connected"),
        ({"upstream_error": "closed_early"}, "connected"),
        ({"upstream_error": "connect_refused"}, "refused"),
        ({"upstream_error": "connect_timeout"}, "timeout"),
        ({"upstream_error": "connect_unreachable"}, "unreachable"),
        ({"upstream_error": "connect_error"}, "error"),
        ({"upstream_error": "resolve_error"}, "resolve_error"),
        ({"status": 499, "code": "client_closed"}, "abandoned"),
        ({"status": 200, "code": "client_closed", "first_byte_s": 0.1}, "connected"),
    ],
)
def test_a_connect_counts_by_how_it_ended_so_that_failures_are_not_slow_connects(
    metrics, make_outcome, facts, outcome
):
    finish(metrics, make_outcome(connect_s=1.5, **facts))

    name = "sandbox_router_connect_duration_seconds"
    assert counted(metrics, name) == [(outcome,)]
    assert histogram(metrics, name, outcome) == (1, 1.5)


def test_the_first_byte_is_measured_for_what_is_no_tunnel(metrics, make_outcome):
    finish(metrics, make_outcome(first_byte_s=0.25))
    finish(metrics, make_outcome(first_byte_s=None))
    finish(metrics, make_outcome(first_byte_s=3.0, status=101, is_tunnel=True))

    assert histogram(metrics, "sandbox_router_first_byte_seconds") == (1, 0.25)


def test_a_tunnel_is_open_until_its_request_ends(metrics, make_outcome):
    metrics.counters.open_tunnels += 1
    assert value(metrics, "sandbox_router_open_tunnels") == 1

    finish(metrics, make_outcome(status=101, is_tunnel=True))

    assert value(metrics, "sandbox_router_open_tunnels") == 0


def test_an_answer_of_the_routers_own_counts_by_code(metrics, make_outcome):
    finish(metrics, make_outcome(status=404, code="sandbox_not_found"))

    assert value(metrics, "sandbox_router_router_errors_total", "sandbox_not_found") == 1


def test_an_end_that_is_no_answer_is_no_router_error(metrics, make_outcome):
    finish(metrics, make_outcome(status=499, code="client_closed"))

    assert ("client_closed",) not in labels_of(metrics, "sandbox_router_router_errors_total")
    assert value(metrics, "sandbox_router_requests_total", "GET", "499", "team-a") == 1


def test_an_upstream_error_counts_by_namespace_and_reason(metrics, make_outcome):
    finish(metrics, make_outcome(status=502, upstream_error="connect_refused"))

    name = "sandbox_router_upstream_errors_total"
    assert value(metrics, name, "team-a", "connect_refused") == 1


@pytest.mark.parametrize(
    "reason",
    ["the waiting room is full", "the namespace's share of the waiting room is full"],
)
def test_a_full_waiting_room_counts_by_namespace(metrics, make_outcome, reason):
    name = "sandbox_router_waiting_room_full_total"
    full = {"status": 503, "code": "sandbox_not_ready", "error_reason": reason}

    finish(metrics, make_outcome(**full))
    finish(metrics, make_outcome(**full, namespace=""))
    finish(metrics, make_outcome(status=503, code="sandbox_not_ready", error_reason="starting"))

    assert value(metrics, name, "team-a") == 1
    assert value(metrics, name, "unknown") == 1


@pytest.mark.parametrize(
    ("authz", "decision"),
    [
        ("allowed", "allow"),
        ("denied", "deny"),
        ("unauthenticated", "unauthenticated"),
        ("unavailable", "unavailable"),
        ("by chance", "other"),
    ],
)
def test_a_decision_is_told_in_the_words_of_existing_dashboards(
    metrics, make_outcome, authz, decision
):
    finish(metrics, make_outcome(authz=authz))
    finish(metrics, make_outcome(authz=authz))

    name = "sandbox_router_authz_decisions_total"
    assert value(metrics, name, "team-a", decision) == 2


def test_a_request_that_reached_no_decision_counts_none(metrics, make_outcome):
    finish(metrics, make_outcome(authz=""))

    assert counted(metrics, "sandbox_router_authz_decisions_total") == []


# --- nobody outside makes series -------------------------------------------------------------


def test_a_namespace_that_the_table_does_not_know_is_unknown(metrics, make_outcome):
    finish(metrics, make_outcome(namespace="", authz="denied", upstream_error="reset"))

    assert labels_of(metrics, "sandbox_router_requests_total") == [("GET", "200", "unknown")]
    assert counted(metrics, "sandbox_router_authz_decisions_total") == [("unknown", "deny")]
    assert counted(metrics, "sandbox_router_upstream_errors_total") == [("unknown", "reset")]


def test_invented_methods_share_one_series(metrics, make_outcome):
    for number in range(50):
        finish(metrics, make_outcome(method=b"M%d" % number))
    finish(metrics, make_outcome(method=b"get"))

    total = "sandbox_router_requests_total"
    assert labels_of(metrics, total) == [("other", "200", "team-a")]
    assert value(metrics, total, "other", "200", "team-a") == 51


def test_statuses_that_no_registry_knows_share_one_series(metrics, make_outcome):
    for status in (0, -1, 99, 299, 599, 600, 1000):
        finish(metrics, make_outcome(status=status))

    assert labels_of(metrics, "sandbox_router_requests_total") == [("GET", "other", "team-a")]


def test_namespaces_beyond_the_limit_share_one_series(metrics, make_outcome):
    for number in range(20):
        finish(metrics, make_outcome(namespace=f"ns-{number}", upstream_error="reset"))
    finish(metrics, make_outcome(namespace="ns-0"))

    total = "sandbox_router_requests_total"
    namespaces = {labels[2] for labels in labels_of(metrics, total)}
    assert namespaces == {"ns-0", "ns-1", "ns-2", "other"}
    assert value(metrics, total, "GET", "200", "other") == 17
    assert value(metrics, total, "GET", "200", "ns-0") == 2
    assert value(metrics, "sandbox_router_upstream_errors_total", "other", "reset") == 17
    assert value(metrics, "sandbox_router_authz_decisions_total", "other", "allow") == 17


def test_an_unheard_of_upstream_error_is_other(metrics, make_outcome):
    finish(metrics, make_outcome(upstream_error="gremlins"))

    assert counted(metrics, "sandbox_router_upstream_errors_total") == [("team-a", "other")]


# --- what is there before anything happens ---------------------------------------------------


def test_a_new_router_shows_its_counters_as_zero(metrics):
    assert value(metrics, "sandbox_router_upstream_retries_total") == 0
    assert value(metrics, "sandbox_router_cert_reloads_total", "failure") == 0
    assert value(metrics, "sandbox_router_config_reloads_total", "policy-file", "failure") == 0
    assert value(metrics, "sandbox_router_watch_restarts_total", "pods", "expired") == 0
    assert value(metrics, "sandbox_router_auth_failures_total", "jwt", "expired") == 0
    assert value(metrics, "sandbox_router_access_log_dropped_total") == 0
    assert {code for (code,) in labels_of(metrics, "sandbox_router_router_errors_total")} == set(
        ROUTER_ERROR_CODES
    )


def test_the_versions_that_run_are_told(metrics):
    python = platform.python_version()

    assert value(metrics, "sandbox_router_build_info", "1.2.3", python, str(code_form.CURRENT)) == 1


def test_the_namespaces_of_the_table_show_zero_before_their_first_request(metrics, make_outcome):
    metrics.read_namespaces(lambda: {"team-a", "team-b"})

    for namespace in ("team-a", "team-b", "unknown"):
        assert value(metrics, "sandbox_router_upstream_errors_total", namespace, "reset") == 0
        assert value(metrics, "sandbox_router_authz_decisions_total", namespace, "deny") == 0
        assert value(metrics, "sandbox_router_waiting_room_full_total", namespace) == 0
    assert value(metrics, "sandbox_router_authz_decisions_total", "unknown", "unavailable") == 0
    assert histogram(metrics, "sandbox_router_connect_duration_seconds", "refused") == (0, 0.0)


def test_namespaces_that_are_not_to_be_named_show_their_zero_together():
    metrics = Metrics(version="1", namespaces=NamespaceLabels(wanted=()))
    metrics.read_namespaces(lambda: {"team-a", "team-b"})

    found = labels_of(metrics, "sandbox_router_waiting_room_full_total")
    assert sorted(found) == [("other",), ("unknown",)]


def test_thousands_of_namespaces_without_traffic_make_no_series(make_outcome):
    metrics = Metrics(version="1")
    metrics.read_namespaces(lambda: {f"team-{number}" for number in range(1000)})
    finish(metrics, make_outcome(namespace="team-7"))

    found = labels_of(metrics, "sandbox_router_waiting_room_full_total")
    assert found == [("unknown",), ("team-7",)]


# --- namespaces that are not to be named, or that left --------------------------------------


def test_a_namespace_that_is_not_to_be_named_counts_as_other(make_outcome):
    metrics = Metrics(version="1", namespaces=NamespaceLabels(wanted=["team-a"]))
    metrics.read_namespaces(lambda: {"team-a", "team-b", "team-c"})

    for namespace in ("team-a", "team-b", "team-c", "team-c", ""):
        finish(metrics, make_outcome(namespace=namespace, upstream_error="reset"))

    found = Counter(labels[2] for labels in labels_of(metrics, "sandbox_router_requests_total"))
    assert found == {"team-a": 1, "other": 1, "unknown": 1}
    assert value(metrics, "sandbox_router_requests_total", "GET", "200", "other") == 3
    assert value(metrics, "sandbox_router_upstream_errors_total", "other", "reset") == 3
    assert value(metrics, "sandbox_router_authz_decisions_total", "other", "allow") == 3


class Table:
    """A table of namespaces, and a clock."""

    def __init__(self, *names):
        self.names = set(names)
        self.now = 0.0

    def metrics(self):
        labels = NamespaceLabels(clock=lambda: self.now)
        metrics = Metrics(version="1", namespaces=labels)
        metrics.read_namespaces(lambda: self.names)
        return metrics


def as_dictionaries(snapshot):
    return {name: dict(rows) for name, rows in snapshot.items()}


BY_NAMESPACE = (
    "sandbox_router_requests_total",
    "sandbox_router_request_duration_seconds",
    "sandbox_router_authz_decisions_total",
    "sandbox_router_upstream_errors_total",
    "sandbox_router_waiting_room_full_total",
)


def test_a_namespace_that_left_the_table_loses_its_series_after_a_while(make_outcome):
    table = Table("stays", "leaves")
    metrics = table.metrics()
    full = {"code": "sandbox_not_ready", "error_reason": "the waiting room is full"}
    for namespace in ("stays", "leaves", "leaves"):
        for facts in ({}, {"authz": "denied", "upstream_error": "reset"}, full):
            finish(metrics, make_outcome(namespace=namespace, **facts))
    before = metrics.snapshot()
    table.names.remove("leaves")

    assert as_dictionaries(metrics.snapshot()) == as_dictionaries(before)
    table.now = FORGOTTEN_AFTER_S
    after = metrics.snapshot()

    assert after.pop(FORGOTTEN) == [(("leaves",), [])]
    assert before.pop(FORGOTTEN) == []
    for name, rows in before.items():
        kept = [row for row in rows if "leaves" not in row[0]]
        assert dict(after[name]) == dict(kept)
        assert (kept != rows) == (name in BY_NAMESPACE)


def test_a_namespace_that_comes_back_begins_anew(make_outcome):
    table = Table("comes")
    metrics = table.metrics()
    finish(metrics, make_outcome(namespace="comes"))
    table.names.clear()
    metrics.snapshot()
    table.now = FORGOTTEN_AFTER_S
    metrics.snapshot()
    table.names.add("comes")

    finish(metrics, make_outcome(namespace="comes"))

    assert value(metrics, "sandbox_router_requests_total", "GET", "200", "comes") == 1
    assert metrics.snapshot()[FORGOTTEN] == []


# --- numbers of other rooms ------------------------------------------------------------------


def test_a_reading_is_asked_anew_at_each_scrape(metrics):
    waiting = itertools.count(5)
    metrics.read_at_scrape("sandbox_router_waiting_requests", lambda: next(waiting))

    assert value(metrics, "sandbox_router_waiting_requests") == 5
    assert value(metrics, "sandbox_router_waiting_requests") == 6


def test_a_reading_may_have_labels(metrics):
    metrics.read_at_scrape(
        "sandbox_router_pool_connections", lambda: {("idle",): 3, ("active",): 4, ("lost",): 1}
    )

    name = "sandbox_router_pool_connections"
    assert dict(metrics.snapshot()[name]) == {("idle",): [3], ("active",): [4], ("other",): [1]}


def test_a_label_outside_its_closed_set_counts_as_other(metrics):
    name = "sandbox_router_watch_restarts_total"
    metrics.read_at_scrape(
        name, lambda: {("secrets", "boredom"): 1, ("nodes", "boredom"): 1, ("pods", "ended"): 1}
    )

    assert value(metrics, name, "other", "other") == 2
    assert value(metrics, name, "pods", "ended") == 1


def test_several_readings_of_one_family_add_up(metrics):
    name = "sandbox_router_config_reloads_total"
    metrics.read_at_scrape(name, lambda: {("policy-file", "success"): 2})
    metrics.read_at_scrape(
        name, lambda: {("jwks-file", "success"): 1, ("policy-file", "success"): 1}
    )

    assert value(metrics, name, "policy-file", "success") == 3
    assert value(metrics, name, "jwks-file", "success") == 1
    assert value(metrics, name, "sandboxes-file", "success") == 0


@pytest.mark.parametrize("answer", [None, float("nan"), float("inf")])
def test_a_number_that_is_not_known_yet_is_no_series(metrics, answer):
    metrics.read_at_scrape("sandbox_router_index_age_seconds", lambda: answer)

    assert value(metrics, "sandbox_router_index_age_seconds") is None


def test_what_metrics_counts_itself_cannot_be_read_elsewhere(metrics):
    with pytest.raises(ValueError):
        metrics.read_at_scrape("sandbox_router_inflight_requests", lambda: 1)
    with pytest.raises(KeyError):
        metrics.read_at_scrape("sandbox_router_nothing", lambda: 1)


def test_a_snapshot_does_not_change_afterwards(metrics, make_outcome):
    finish(metrics, make_outcome(connect_s=0.1))
    before = metrics.snapshot()
    again = metrics.snapshot()

    finish(metrics, make_outcome(connect_s=0.1))

    assert before == again


def test_its_repr_says_how_much_it_holds(metrics, make_outcome):
    finish(metrics, make_outcome())

    assert repr(metrics) == "<Metrics <Counters inflight=0 series=1>>"


def test_only_a_family_of_histograms_that_is_read_takes_histograms():
    with pytest.raises(ValueError, match="no histogram"):
        Metrics(version="1").read_histograms("sandbox_router_waiting_requests", dict)
    with pytest.raises(ValueError, match="no histogram"):
        Metrics(version="1").read_histograms("sandbox_router_first_byte_seconds", dict)


def test_wakes_count_by_how_they_ended_and_those_that_came_about_take_time(metrics):
    metrics.counters.wake_ended("woken", 3.0)
    metrics.counters.wake_ended("refused", None)
    counts = dict(metrics.snapshot()["sandbox_router_wakes_total"])
    assert counts[("woken",)] == counts[("refused",)] == [1]
    assert counts[("limited",)] == [0], "there from the start"
    assert histogram(metrics, "sandbox_router_wake_duration_seconds") == (1, 3.0)
