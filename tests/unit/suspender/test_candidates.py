from __future__ import annotations

import logging
from typing import Any

import pytest

from router.discovery.idle_timeout import IDLE_TIMEOUT_ANNOTATION, NEVER
from router.routing.endpoint import SandboxRef
from router.suspender.candidates import Candidate, CandidateStore, Standing, parse_candidate
from tests.fakes.cluster_objects import EXTENSIONS, new_uid, owner, sandbox


def item(timeout: str | None = "30m", **shape: Any) -> dict[str, Any]:
    annotations = {} if timeout is None else {IDLE_TIMEOUT_ANNOTATION: timeout}
    return sandbox("box", annotations=annotations, **{"is_ready": True, **shape})


def candidate(**shape: Any) -> Candidate:
    return parse_candidate(item(**{"uid": "u", **shape}))


class TestParsing:
    """What of an object suspending goes by."""

    def test_a_ready_sandbox_that_asks_for_it_is_at_work(self) -> None:
        found = candidate(version=7)

        assert (found.ref, found.uid) == (SandboxRef("default", "box"), "u")
        assert (found.idle_timeout_s, found.complaint) == (1800.0, "")
        assert found.standing is Standing.AT_WORK
        assert found.version == "7"
        assert found.ready_since is not None

    def test_a_mode_that_is_not_said_is_running(self) -> None:
        box = item()
        del box["spec"]["operatingMode"]

        found = parse_candidate(box)

        assert found.standing is Standing.AT_WORK
        assert not found.says_mode

    @pytest.mark.parametrize(
        ("shape", "standing"),
        [
            ({"mode": "Suspended"}, Standing.SUSPENDED),
            ({"mode": "Suspended", "is_ready": False}, Standing.SUSPENDED),
            ({"is_ready": False}, Standing.NOT_READY),
            ({"is_ready": False, "reason": "PodFailed"}, Standing.FINISHED),
            ({"is_ready": False, "reason": "SandboxExpired"}, Standing.FINISHED),
            ({"mode": "Suspended", "is_ready": False, "reason": "PodFailed"}, Standing.FINISHED),
            ({"deletionTimestamp": "2026-11-01T00:00:00Z"}, Standing.FINISHED),
            (
                {"controlled_by": owner("SandboxWarmPool", "pool", "p", group=EXTENSIONS)},
                Standing.POOLED,
            ),
            (
                {"controlled_by": owner("SandboxClaim", "mine", "c", group=EXTENSIONS)},
                Standing.AT_WORK,
            ),
        ],
    )
    def test_each_other_state_is_told_apart(
        self, shape: dict[str, Any], standing: Standing
    ) -> None:
        assert candidate(**shape).standing is standing

    def test_a_condition_about_an_older_spec_says_nothing(self) -> None:
        box = item(generation=3)
        box["status"]["conditions"][0]["observedGeneration"] = 2

        assert parse_candidate(box).standing is Standing.NOT_READY

    @pytest.mark.parametrize("time", [None, "", "yesterday", "2026-11-01"])
    def test_a_time_that_is_missing_or_unreadable_is_not_known(self, time: str | None) -> None:
        box = item()
        box["status"]["conditions"][0]["lastTransitionTime"] = time

        assert parse_candidate(box).ready_since is None

    def test_the_version_alone_makes_no_difference(self) -> None:
        assert candidate(version=1) == candidate(version=2)


class TestStore:
    """How long each has been as it is."""

    now = 100.0

    def store(self) -> CandidateStore:
        return CandidateStore(clock=lambda: self.now)

    def test_only_sandboxes_with_the_annotation_are_kept(self) -> None:
        store = self.store()

        store.upsert(candidate(timeout=None))
        store.upsert(candidate(timeout="off"))

        assert store.all() == []

    def test_an_event_that_changes_nothing_here_doesnt_begin_a_new_time(self) -> None:
        store = self.store()
        store.upsert(candidate(version=1))
        self.now = 200.0

        store.upsert(candidate(version=2))

        assert [each.unchanged_since for each in store.all()] == [100.0]

    @pytest.mark.parametrize("shape", [{"uid": "v"}, {"timeout": "1m"}, {"mode": "Suspended"}])
    def test_a_change_begins_a_new_time(self, shape: dict[str, Any]) -> None:
        store = self.store()
        store.upsert(candidate())
        self.now = 200.0

        store.upsert(candidate(**shape))

        assert [each.unchanged_since for each in store.all()] == [200.0]

    def test_becoming_ready_again_begins_a_new_time(self) -> None:
        store = self.store()
        store.upsert(candidate())
        self.now = 200.0
        box = item(uid="u")
        box["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-01T00:00:01Z"

        store.upsert(parse_candidate(box))

        assert [each.unchanged_since for each in store.all()] == [200.0]

    def test_an_annotation_that_goes_takes_the_sandbox_out(self) -> None:
        store = self.store()
        store.upsert(candidate())

        store.upsert(candidate(timeout=None))

        assert len(store) == 0

    def test_the_late_end_of_a_predecessor_removes_nothing(self) -> None:
        store = self.store()
        store.upsert(candidate(uid="new"))

        store.remove(candidate(uid="old"))
        kept = len(store)
        store.remove(candidate(uid="new"))

        assert (kept, len(store)) == (1, 0)

    def test_a_new_list_keeps_the_time_of_what_is_unchanged_and_drops_what_is_gone(self) -> None:
        store = self.store()
        store.upsert(candidate())
        gone = parse_candidate({**item(), "metadata": {**item()["metadata"], "name": "gone"}})
        store.upsert(gone)
        self.now = 200.0

        listing = store.begin_list()
        listing.add(candidate(version=9))
        listing.commit()

        assert [(each.candidate.ref.name, each.unchanged_since) for each in store.all()] == [
            ("box", 100.0)
        ]

    def test_a_list_of_one_namespace_leaves_the_others_alone(self) -> None:
        store = self.store()
        store.upsert(candidate())

        store.begin_list("other").commit()

        assert len(store) == 1

    def test_an_annotation_that_is_no_duration_is_named_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = self.store()
        with caplog.at_level(logging.WARNING):
            for version in range(3):
                store.upsert(candidate(timeout="soon", version=version))
                store.upsert(candidate(timeout="soon", is_ready=False))

        (record,) = caplog.records
        assert record.fields["sandbox"] == "box"  # type: ignore[attr-defined]
        assert "'soon'" in record.fields["reason"]  # type: ignore[attr-defined]
        assert store.all()[0].candidate.idle_timeout_s == NEVER


def test_two_sandboxes_are_two() -> None:
    assert parse_candidate(item(uid=new_uid())) != parse_candidate(item(uid=new_uid()))
