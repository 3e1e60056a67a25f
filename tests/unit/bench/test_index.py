from __future__ import annotations

import json

import pytest

from bench.index import AtRate, _median, plots, table
from bench.index_objects import FLIPPING, Step, address_of, pod, pod_uid, sandbox
from bench.index_probe import Readings, route_delays_ms
from router.discovery.composition import compose
from router.discovery.pods import parse_pod
from router.discovery.sandboxes import parse_sandbox
from router.routing.endpoint import State


@pytest.mark.parametrize("number", [0, FLIPPING, 99_999])
def test_the_simulated_objects_are_what_the_router_routes(number: int) -> None:
    box = parse_sandbox(json.loads(sandbox(number, 7)))
    ready = parse_pod(json.loads(pod(number, 3, Step.READY, 8)))

    endpoint = compose(box.ref, box, [ready], lambda each: each.addresses)

    assert endpoint is not None
    assert (endpoint.state, endpoint.uid) == (State.READY, pod_uid(number, 3))
    assert endpoint.addresses == (address_of(number, 3),)


@pytest.mark.parametrize("step", [Step.DELETING, Step.GONE, Step.PENDING, Step.STARTING])
def test_every_other_step_of_a_pods_life_is_not_routable(step: Step) -> None:
    box = parse_sandbox(json.loads(sandbox(20, 7)))
    other = parse_pod(json.loads(pod(20, 3, step, 8)))

    endpoint = compose(box.ref, box, [other], lambda each: each.addresses)

    assert endpoint is not None
    assert endpoint.state is State.STARTING


def test_a_pod_weighs_about_what_a_real_one_weighs() -> None:
    assert 3_500 < len(pod(20, 1, Step.READY, 10**9)) < 6_000


def test_the_delay_of_a_route_is_from_the_event_to_the_first_answer_of_the_new_pod() -> None:
    readings = Readings(answered_by=[(1.0, "a"), (1.2, "a"), (1.21, "b"), (1.4, "b"), (1.43, "a")])

    delays = route_delays_ms([1.2, 1.4, 1.5], readings)

    assert delays == pytest.approx([10.0, 30.0])


def test_percentiles_are_of_the_slowest() -> None:
    readings = Readings(latencies_s=[number / 1e3 for number in range(1, 101)])

    assert readings.percentile_ms(0.5) == pytest.approx(51)
    assert readings.percentile_ms(1.0) == pytest.approx(100)
    assert Readings().percentile_ms(0.5) == 0.0


def window(rate: int, *, p99_ms: float, wrong: int = 0) -> AtRate:
    return AtRate(rate, rate, 10.0, 1.0, p99_ms, 9.0, 10.0, 4.0, 8.0, wrong)


def test_rounds_are_told_as_medians_and_wrong_answers_as_a_sum() -> None:
    rounds = [window(500, p99_ms=3, wrong=1), window(500, p99_ms=9), window(500, p99_ms=4)]

    told = _median([*rounds, window(0, p99_ms=1, wrong=5)], 500)

    assert (told.p99_ms, told.wrong) == (4, 1)


def test_a_result_becomes_a_table_and_plots() -> None:
    rates = [window(rate, p99_ms=3) for rate in (0, 500)]
    result = {
        "sandboxes": 1000,
        "loading": {
            "ready_after_s": 1,
            "start_cpu_s": 0.5,
            "before_mb": 2,
            "peak_mb": 3,
            "settled_mb": 4,
        },
        "rates": [{name: getattr(rate, name) for name in AtRate.__slots__} for rate in rates],
        "events_per_cpu_second": 20_000,
        "relist": {"new_list_s": 6.5, "cpu_s": 1, "p99_ms": 2, "worst_ms": 3, "peak_mb": 4},
        "pages": {
            "ready_after_s": 12,
            "start_cpu_s": 9,
            "new_list_s": 7.5,
            "cpu_s": 5,
            "p99_ms": 2,
            "worst_ms": 3,
        },
        "memory_curve": [(0.0, 50.0), (1.0, 60.0)],
        "conditions": {
            "started_at": "now",
            "revision": "r",
            "cpu": "c",
            "cores": 2,
            "python": "3",
            "rounds": 1,
            "window_s": 1.0,
            "load_average_before": 0.1,
        },
    }

    assert "| 500 | 10.0 |" in table(result)
    assert "| as a stream (Kubernetes 1.32) | 1 | 0.5 | 6.5 | 1 | 2 | 3 |" in table(result)
    assert "| in pages of 100 | 12 | 9 | 7.5 | 5 | 2 | 3 |" in table(result)
    assert plots(result).count("<polyline") == 5
