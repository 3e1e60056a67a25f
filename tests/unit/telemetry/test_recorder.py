import io
import json

from router.proxy.ports import Telemetry
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.telemetry.access_log import AccessLog
from router.telemetry.activity import Activity
from router.telemetry.metrics import Metrics
from router.telemetry.recorder import RouterTelemetry


def number(metrics, name, *labels):
    return dict(metrics.snapshot()[name])[labels][0]


class Spans:
    def __init__(self):
        self.seen = []

    def request_finished(self, outcome):
        self.seen.append(outcome)


def test_it_is_what_the_proxy_asks_for():
    telemetry: Telemetry = RouterTelemetry(counters=Metrics(version="1").counters, access_log=None)

    assert telemetry is not None


async def test_one_outcome_becomes_numbers_a_line_and_a_span(make_outcome):
    metrics, sink, spans = Metrics(version="1"), io.BytesIO(), Spans()
    access_log = AccessLog(sink=sink)
    telemetry = RouterTelemetry(counters=metrics.counters, access_log=access_log, tracer=spans)
    outcome = make_outcome()

    telemetry.request_started()
    telemetry.request_finished(outcome)
    await access_log.close()

    assert number(metrics, "sandbox_router_requests_total", "GET", "200", "team-a") == 1
    assert json.loads(sink.getvalue())["status"] == 200
    assert spans.seen == [outcome]


def test_without_access_log_and_tracer_the_numbers_remain(make_outcome):
    metrics = Metrics(version="1")
    telemetry = RouterTelemetry(counters=metrics.counters, access_log=None)

    telemetry.request_started()
    assert number(metrics, "sandbox_router_inflight_requests") == 1
    telemetry.request_finished(make_outcome())

    assert number(metrics, "sandbox_router_inflight_requests") == 0
    assert number(metrics, "sandbox_router_requests_total", "GET", "200", "team-a") == 1


def test_every_event_has_its_number(make_outcome):
    metrics = Metrics(version="1")
    telemetry = RouterTelemetry(counters=metrics.counters, access_log=None)

    telemetry.request_started()
    telemetry.tunnel_opened()
    telemetry.upstream_retried()
    telemetry.route_evicted()
    for _ in range(3):
        telemetry.connection_opened()
    telemetry.connection_closed()
    telemetry.connection_refused()

    assert number(metrics, "sandbox_router_open_tunnels") == 1
    assert number(metrics, "sandbox_router_upstream_retries_total") == 1
    assert number(metrics, "sandbox_router_cache_invalidations_total") == 1
    assert number(metrics, "sandbox_router_client_connections") == 2
    assert number(metrics, "sandbox_router_connections_refused_total") == 1

    telemetry.request_finished(make_outcome(is_tunnel=True, status=101))

    assert number(metrics, "sandbox_router_open_tunnels") == 0


BOX = Endpoint(SandboxRef("team-a", "box"), "pod", State.READY, sandbox_uid="uid-a")


def test_each_use_is_remembered_and_never_made_older(make_outcome):
    activity = Activity()
    telemetry = RouterTelemetry(
        counters=Metrics(version="1").counters, access_log=None, activity=activity
    )

    for used_at in (5.0, 9.0, 7.0):
        telemetry.request_finished(make_outcome(used=BOX, used_at=used_at))
    telemetry.request_finished(make_outcome(used=None, used_at=11.0))

    (entry,) = activity.entries.values()
    assert (entry.ref, entry.uid, entry.used_at) == (BOX.ref, "uid-a", 9.0)


def test_its_repr_says_what_is_on():
    telemetry = RouterTelemetry(counters=Metrics(version="1").counters, access_log=None)

    assert repr(telemetry) == "<RouterTelemetry <Counters inflight=0 series=0> None tracer=None>"
