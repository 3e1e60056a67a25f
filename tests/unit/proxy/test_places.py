"""How many connections there is room for, here and with other workers."""

from __future__ import annotations

import pytest

from router.proxy.places import Places


class Ledger:
    """What the workers of a pod show each other."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, str], int] = {}

    def view(self, number: int) -> View:
        return View(self, number)


class View:
    """One worker's Elsewhere."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        self._ledger, self._number = ledger, number

    def others(self, key: str) -> int:
        held = self._ledger.held
        return sum(n for (number, k), n in held.items() if k == key and number != self._number)

    def add(self, key: str, change: int) -> None:
        place = (self._number, key)
        self._ledger.held[place] = self._ledger.held.get(place, 0) + change
        assert self._ledger.held[place] >= 0


def two(limit: int, **how: int) -> tuple[Places, Places]:
    ledger = Ledger()
    first, second = (
        Places(limit=limit, workers=2, elsewhere=ledger.view(number), **how) for number in range(2)
    )
    return first, second


def take(places: Places, count: int) -> None:
    for _ in range(count):
        places.take()


def test_places_are_taken_until_the_limit_and_again_when_they_are_free() -> None:
    places = Places(limit=2)
    take(places, 2)
    assert places.is_full()
    places.free()
    assert not places.is_full()
    assert repr(places) == "<Places taken=1 limit=2>"


def test_no_limit_is_never_full() -> None:
    places = Places(limit=0)
    take(places, 1000)
    assert not places.is_full()
    assert not places.may_borrow()
    assert places.owed() == 0


def test_a_worker_with_few_connections_leaves_its_places_to_others() -> None:
    first, second = two(10)
    take(first, 9)
    assert not first.is_full()
    take(second, 1)
    assert first.is_full()
    assert second.is_full()
    second.free()
    assert not first.is_full()


def test_one_process_never_takes_more_than_it_has_open_files_for() -> None:
    first, second = two(10, here=6)
    take(first, 6)
    assert first.is_full()
    assert not second.is_full()


def test_places_are_lent_only_by_who_has_more_than_its_part_and_someone_to_give_up() -> None:
    first, second = two(10)
    take(first, 8)
    take(second, 2)
    assert not second.may_borrow(), "nothing is offered"
    first.offer(5)
    assert not first.may_borrow(), "it has more than its part"
    lent = 0
    while second.is_full() and second.may_borrow():
        second.take()
        lent += 1
    assert lent == 3, "five were idle, but only three are beyond the part of the first"
    assert (first.owed(), second.owed()) == (3, 0)
    for _ in range(3):
        first.free()
    assert first.owed() == 0


def test_no_more_is_lent_than_can_be_given_up() -> None:
    first, second = two(10)
    take(first, 8)
    take(second, 2)
    first.offer(1)
    assert second.may_borrow()
    second.take()
    assert not second.may_borrow()
    assert first.owed() == 1


@pytest.mark.parametrize("taken", [3, 8])
def test_an_offer_ends_when_there_is_room_again(taken: int) -> None:
    first, second = two(10)
    take(first, 8)
    take(second, 2)
    first.offer(5)
    for _ in range(8 - taken):
        first.free()
    second.free()
    first.offer(5)
    assert second._elsewhere.others("spare") == 0


def test_open_files_bound_what_is_lent_too() -> None:
    first, second = two(10, here=8)
    take(first, 8)
    take(second, 2)
    first.offer(5)
    second._here = 2
    assert not second.may_borrow()
