from __future__ import annotations

import logging
from typing import Any

import pytest

from router.discovery.idle_timeout import IDLE_TIMEOUT_ANNOTATION
from router.discovery.notes import is_plain, notes_of
from router.discovery.pods import PodRecord, parse_pod
from router.discovery.sandboxes import parse_sandbox
from router.discovery.table import SandboxTable
from router.routing.endpoint import SandboxRef
from router.routing.index import EndpointIndex
from tests.fakes.cluster_objects import pod, sandbox

REF = SandboxRef("default", "box")
BAD_IDLE_TIMEOUT = {IDLE_TIMEOUT_ANNOTATION: "soon"}
BAD_TIME = {"router.agents.x-k8s.io/tokens-not-before": "2026-12-01"}


BOX = sandbox("box", uid="box-1")


def a_pod(name: str, **shape: Any) -> PodRecord:
    return parse_pod(pod(name, of=BOX, **{"is_ready": True, "address": "10.0.0.1"} | shape))


@pytest.fixture
def table() -> SandboxTable:
    index = EndpointIndex(waiting_room=1, waiting_room_per_namespace=1)
    table = SandboxTable(index=index, on_retired=lambda endpoint: None)
    table.settle(None)
    return table


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.fields["reason"] for record in caplog.records]  # type: ignore[attr-defined]


def test_nothing_stands_out_about_an_ordinary_or_unknown_sandbox() -> None:
    assert notes_of(REF, parse_sandbox(BOX), [a_pod("box")]) == ()
    assert notes_of(REF, None, [a_pod("box")]) == ()
    assert notes_of(REF, None, []) == ()


def test_an_unreadable_time_is_noted_with_what_it_says_what_it_does_and_what_to_write() -> None:
    (note,) = notes_of(REF, parse_sandbox(sandbox("box", annotations=BAD_TIME)), [])

    assert note == (
        "every token is refused: the annotation router.agents.x-k8s.io/tokens-not-before is '2026-12-01'; "
        "it must be a time with its zone, like 2026-12-01T00:00:00Z"
    )


def test_an_unreadable_path_mode_is_told_on_the_sandboxs_line_and_in_the_log(
    table: SandboxTable, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    bad = {"router.agents.x-k8s.io/path-mode": "Keep"}
    table.upsert_sandbox(parse_sandbox(sandbox("box", annotations=bad)))

    (note,) = table.notes(REF)
    assert note.endswith("path-mode is 'Keep'; it must be strip or keep")
    assert told(caplog) == [note]


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


def test_pods_that_cannot_be_told_apart_are_named_with_what_to_do() -> None:
    pods = [a_pod("warm-2"), a_pod("warm-1")]

    (note,) = notes_of(REF, parse_sandbox(BOX), pods)

    assert note == (
        "pods that carry its ownerReference and can't be told apart: warm-1, warm-2; none is called "
        "box, so none is dialled: delete those that are not its own"
    )


def test_a_pod_that_carries_the_reference_beside_the_sandboxs_own_is_named() -> None:
    (note,) = notes_of(REF, parse_sandbox(BOX), [a_pod("evil"), a_pod("box")])

    assert note == "pods that carry its ownerReference beside its own, never dialled: evil"


def test_the_pod_that_goes_beside_the_one_that_comes_is_nothing_to_note() -> None:
    assert notes_of(REF, parse_sandbox(BOX), [a_pod("old", is_deleting=True), a_pod("new")]) == ()


def test_a_predecessor_of_the_same_name_whose_end_was_not_seen_yet_is_nothing_to_note() -> None:
    pods = [a_pod("box", uid="old"), a_pod("box", uid="new", created="2026-11-02T00:00:00Z")]

    assert notes_of(REF, parse_sandbox(BOX), pods) == ()


def test_of_many_pods_a_few_are_named_and_the_rest_counted() -> None:
    (note,) = notes_of(REF, parse_sandbox(BOX), [a_pod(f"p-{number}") for number in range(9)])

    assert "p-0, p-1, p-2, p-3, p-4 and 4 more;" in note


def test_an_address_that_cannot_be_a_pods_is_named() -> None:
    (note,) = notes_of(REF, parse_sandbox(BOX), [a_pod("box", address="169.254.169.254")])

    assert note == (
        "its pod box reports the address 169.254.169.254, which can't be a pod's: it is not dialled"
    )


def test_an_idle_timeout_that_is_no_duration_is_named() -> None:
    box = parse_sandbox(sandbox("box", uid="box-1", annotations=BAD_IDLE_TIMEOUT))

    (note,) = notes_of(REF, box, [])

    assert note == (
        "it is never suspended for idleness: the annotation router.agents.x-k8s.io/idle-timeout is "
        "'soon'; it must be a duration like 45s, 30m or 8h"
    )


@pytest.mark.parametrize(
    ("annotations", "pods", "expected"),
    [
        ({}, [], True),
        ({}, [a_pod("box")], True),
        (BAD_TIME, [], False),
        (BAD_IDLE_TIMEOUT, [], False),
        ({IDLE_TIMEOUT_ANNOTATION: "30m"}, [], True),
        ({}, [a_pod("box"), a_pod("evil")], False),
        ({}, [a_pod("box", address="0.0.0.0")], False),
    ],
)
def test_the_quick_look_overlooks_nothing(
    annotations: dict[str, str], pods: list[PodRecord], expected: bool
) -> None:
    box = parse_sandbox(sandbox("box", uid="box-1", annotations=annotations))

    assert is_plain(box, pods) is expected
    assert (notes_of(REF, box, pods) == ()) is expected


def test_the_log_tells_of_a_copied_reference_when_the_pod_appears(
    table: SandboxTable, caplog: pytest.LogCaptureFixture
) -> None:
    table.upsert_sandbox(parse_sandbox(BOX))
    table.upsert_pod(a_pod("box", uid="own"))
    assert told(caplog) == []

    evil = a_pod("evil", uid="evil")
    table.upsert_pod(evil)
    table.upsert_pod(a_pod("box", uid="own", is_ready=False))

    assert told(caplog) == [
        "pods that carry its ownerReference beside its own, never dialled: evil"
    ]
    table.remove_pod(evil)
    assert table.notes(REF) == ()
