"""What the admin port shows of one worker, and how its questions travel between processes."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.admin.activity import ActivityFilter
from router.admin.explain import Question
from router.admin.sandbox_listing import Filter, listing
from router.app.facts import (
    TABLE,
    WorkerFacts,
    filter_from,
    filter_text,
    question_from,
    question_text,
)
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.telemetry.activity import Activity, Moment, Use
from router.telemetry.metrics import Metrics

raw = st.binary(max_size=20)
questions = st.builds(
    Question,
    headers=st.lists(st.tuples(raw, raw), max_size=4).map(tuple),
    method=raw,
    path=raw,
    namespace=st.none() | raw,
    name=st.none() | raw,
    port=st.none() | raw,
)
filters = st.builds(
    Filter,
    namespace=st.none() | st.text(max_size=10),
    name=st.none() | st.text(max_size=10),
    state=st.none() | st.sampled_from(State),
    limit=st.integers(0, 10_000),
)


@given(questions)
def test_a_question_comes_through_another_process_byte_for_byte(question: Question) -> None:
    assert question_from(orjson.loads(orjson.dumps(question_text(question)))) == question


@given(filters)
def test_a_filter_comes_through_another_process_as_it_is(wanted: Filter) -> None:
    assert filter_from(orjson.loads(orjson.dumps(filter_text(wanted)))) == wanted


class Working:
    """In a Worker's place."""

    def __init__(self) -> None:
        self.metrics = Metrics(version="7")
        self.asked: list[Question] = []
        self.reloads = 0
        self.started_at = 5.0
        self.used = Activity(clock=lambda: 7.0)
        for name in ("box-a", "box-b"):
            self.used.first_used(Endpoint(SandboxRef("default", name), "pod", State.READY), 6.0)

    def missing(self) -> list[str]:
        return ["patience"]

    def notes(self) -> list[str]:
        return ["half blind"]

    async def list_sandboxes(self, wanted: Filter) -> dict[str, Any]:
        known = (
            Endpoint(SandboxRef("default", name), "uid-" + name, State.READY, ("10.0.0.5",))
            for name in ("box-a", "box-b")
        )
        return await listing(known, wanted)

    def activity(self, wanted: ActivityFilter) -> Moment:
        return self.used.moment((), namespace=wanted.namespace, name=wanted.name)

    def table_page(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "next": None}

    async def reload(self) -> None:
        self.reloads += 1

    async def explain(self, question: Question) -> dict[str, Any]:
        self.asked.append(question)
        return {"outcome": {"status": 200}}


QUESTION = Question(
    headers=((b"X-Sandbox-ID", b"box\xff"),),
    method=b"GET",
    path=b"/",
    namespace=None,
    name=b"box",
    port=None,
)
WANTED = Filter(name="box-b", limit=10)


@pytest.fixture
def worker() -> Working:
    return Working()


@pytest.fixture
def facts(worker: Working) -> WorkerFacts:
    return WorkerFacts(worker)  # type: ignore[arg-type]


async def test_each_fact_is_the_workers(facts: WorkerFacts, worker: Working) -> None:
    assert await facts.missing() == ["patience"]
    assert await facts.notes() == ["half blind"]
    assert await facts.health() == []
    assert await facts.explain(QUESTION) == {"outcome": {"status": 200}}
    assert worker.asked == [QUESTION]
    assert "box-b" in json.dumps(await facts.sandboxes(WANTED))
    assert "box-a" not in json.dumps(await facts.sandboxes(WANTED))


async def test_activity_is_the_workers_since_its_start(facts: WorkerFacts) -> None:
    seen = await facts.activity(ActivityFilter(name="box-a"))
    assert (seen.now, seen.started_at, seen.complete_since, seen.gaps) == (7.0, 5.0, 7.0, ())
    assert [use for uses in seen.slices for use in uses] == [
        Use("default", "box-a", "", 6.0, 0, 0, 0.0)
    ]


async def test_metrics_come_with_what_the_system_counts(facts: WorkerFacts) -> None:
    snapshot = await facts.snapshot()
    assert "sandbox_router_build_info" in snapshot
    assert any(name.startswith("process_") for name in snapshot)


@pytest.mark.parametrize(
    ("asked", "argument"),
    [
        ("missing", None),
        ("notes", None),
        ("snapshot", None),
        ("sandboxes", filter_text(WANTED)),
        ("explain", question_text(QUESTION)),
        ("activity", {"namespace": None, "name": "box-b"}),
    ],
)
async def test_the_supervisor_gets_the_same_as_json(
    facts: WorkerFacts, worker: Working, asked: str, argument: Any
) -> None:
    answer = orjson.loads(orjson.dumps(await facts.answer(asked, argument)))
    if asked == "missing":
        assert answer == ["patience"]
    elif asked == "notes":
        assert answer == ["half blind"]
    elif asked == "snapshot":
        assert "sandbox_router_build_info" in answer
    elif asked == "activity":
        assert answer["slices"][0] == [["default", "box-b", "", 6.0, 0, 0, 0.0]]
    elif asked == "sandboxes":
        assert "box-b" in json.dumps(answer)
    else:
        assert worker.asked == [QUESTION]


async def test_the_supervisor_may_have_the_files_read_again(
    facts: WorkerFacts, worker: Working
) -> None:
    assert await facts.answer("reload", None) is None
    assert worker.reloads == 1


async def test_a_sibling_may_have_the_table(facts: WorkerFacts) -> None:
    assert await facts.answer(TABLE, {"token": 3}) == {"token": 3, "next": None}


async def test_anything_else_is_no_question(facts: WorkerFacts) -> None:
    with pytest.raises(KeyError):
        await facts.answer("settings", None)
