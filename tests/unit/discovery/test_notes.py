from __future__ import annotations

import logging

import pytest

from router.discovery.notes import sandbox_notes
from router.discovery.sandboxes import parse_sandbox
from router.discovery.table import SandboxTable
from router.routing.endpoint import SandboxRef
from router.routing.index import EndpointIndex
from tests.fakes.cluster_objects import sandbox

REF = SandboxRef("default", "box")
BAD_TIME = {"router.agents.x-k8s.io/tokens-not-before": "2026-12-01"}


@pytest.fixture
def table() -> SandboxTable:
    index = EndpointIndex(waiting_room=1, waiting_room_per_namespace=1)
    return SandboxTable(index=index, on_retired=lambda endpoint: None)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.fields["reason"] for record in caplog.records]  # type: ignore[attr-defined]


def test_nothing_stands_out_about_an_ordinary_or_unknown_sandbox() -> None:
    assert sandbox_notes(parse_sandbox(sandbox("box"))) == ()
    assert sandbox_notes(None) == ()


def test_an_unreadable_time_is_noted_with_what_it_says_what_it_does_and_what_to_write() -> None:
    (note,) = sandbox_notes(parse_sandbox(sandbox("box", annotations=BAD_TIME)))

    assert note == (
        "every token is refused: the annotation router.agents.x-k8s.io/tokens-not-before is '2026-12-01'; "
        "it must be a time with its zone, like 2026-12-01T00:00:00Z"
    )


def test_the_log_tells_a_note_once_and_again_only_when_it_is_another(
    table: SandboxTable, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    table.upsert_sandbox(parse_sandbox(sandbox("box", annotations=BAD_TIME, version=1)))
    table.upsert_sandbox(
        parse_sandbox(sandbox("box", annotations=BAD_TIME, mode="Suspended", version=2))
    )
    assert len(told(caplog)) == 1

    worse = dict.fromkeys(BAD_TIME, "soon")
    table.upsert_sandbox(parse_sandbox(sandbox("box", annotations=worse, version=3)))

    assert "'soon'" in told(caplog)[1]
    assert table.notes(REF) == (told(caplog)[1],)


def test_a_corrected_annotation_leaves_no_note(table: SandboxTable) -> None:
    table.upsert_sandbox(parse_sandbox(sandbox("box", annotations=BAD_TIME, version=1)))
    table.upsert_sandbox(parse_sandbox(sandbox("box", version=2)))

    assert table.notes(REF) == ()
