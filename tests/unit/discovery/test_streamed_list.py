from __future__ import annotations

import pytest

from router.discovery.streamed_list import StreamedList, apply_event
from tests.unit.discovery.reflecting import Names


@pytest.fixture
def store() -> Names:
    return Names()


def test_nothing_takes_effect_before_the_list_is_complete(store: Names) -> None:
    streamed = StreamedList(store)
    streamed.take("ADDED", "a")
    streamed.take("MODIFIED", "b")
    assert store.calls == []

    streamed.commit()

    assert store.calls == [("replace", ["a"]), ("upsert", "b")]


def test_what_changes_meanwhile_counts_after_the_list_and_in_its_order(store: Names) -> None:
    streamed = StreamedList(store)
    for kind, name in (("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("ADDED", "a")):
        streamed.take(kind, name)

    streamed.commit()

    assert store.calls == [("replace", ["a", "b"]), ("remove", "a"), ("upsert", "a")]
    assert store.names == {"a", "b"}


def test_a_server_that_mixes_list_and_changes_loses_nothing_of_either(store: Names) -> None:
    streamed = StreamedList(store)
    for kind, name in (("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b")):
        streamed.take(kind, name)

    streamed.commit()

    assert store.calls[0] == ("replace", ["a", "b"])


def test_a_kind_of_event_that_is_not_known_yet_changes_nothing(store: Names) -> None:
    apply_event(store, "FUTURE", "a")

    assert store.calls == []
