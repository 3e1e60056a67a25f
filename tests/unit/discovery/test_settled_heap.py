from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from router.discovery.settled_heap import SettledHeap


@pytest.fixture(autouse=True)
def thawed_afterwards() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_the_heap_is_frozen_once_much_was_added() -> None:
    heap = SettledHeap(objects_between=100)

    heap.added(60)
    assert heap.freezes == 0
    heap.added(60)

    assert heap.freezes == 1
    assert gc.get_freeze_count() > 0


def test_it_can_be_settled_at_once() -> None:
    heap = SettledHeap(objects_between=100)
    heap.added(60)

    heap.settle()
    heap.added(60)

    assert heap.freezes == 1


def test_what_is_frozen_is_still_freed_when_nothing_refers_to_it() -> None:
    freed: list[bool] = []

    class Watched:
        def __del__(self) -> None:
            freed.append(True)

    watched = Watched()
    SettledHeap(objects_between=1).added(1)

    del watched

    assert freed == [True]
