"""Places of a limit, taken and given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import TooManyRequests
from router.proxy.slots import Slot, Slots

REFUSAL = "This sandbox has too many open requests (max-requests-per-sandbox)."


def test_without_a_limit_nothing_is_counted() -> None:
    slots = Slots(limit=0, refusal=REFUSAL)
    assert [slots.take("a") for _ in range(1000)] == [None] * 1000
    assert "keys=0" in repr(slots)


def test_one_more_than_the_limit_is_refused_and_told_which_limit() -> None:
    slots = Slots(limit=2, refusal=REFUSAL)
    slots.take("a")
    slots.take("a")
    with pytest.raises(TooManyRequests) as caught:
        slots.take("a")
    assert caught.value.detail == REFUSAL


def test_one_key_does_not_use_up_anothers_places() -> None:
    slots = Slots(limit=1, refusal=REFUSAL)
    slots.take("a")
    assert slots.take("b") is not None


def test_a_place_given_back_can_be_taken_again() -> None:
    slots = Slots(limit=1, refusal=REFUSAL)
    place = slots.take("a")
    assert place is not None
    place.give_back()
    assert slots.take("a") is not None


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"))), st.integers(1, 3))
def test_counts_are_exact_and_no_key_outlives_its_last_place(
    steps: list[tuple[bool, str]], limit: int
) -> None:
    slots = Slots(limit=limit, refusal=REFUSAL)
    held: dict[str, list[Slot]] = {}
    for takes, key in steps:
        mine = held.setdefault(key, [])
        if not takes:
            if mine:
                mine.pop().give_back()
        elif len(mine) == limit:
            with pytest.raises(TooManyRequests):
                slots.take(key)
        else:
            place = slots.take(key)
            assert place is not None
            mine.append(place)
    assert f"keys={sum(map(bool, held.values()))}>" in repr(slots)
