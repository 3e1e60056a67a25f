"""A generation is shared: whoever holds it sees it move on."""

from router.routing.generation import Generation


def test_it_moves_on_for_all_who_hold_it() -> None:
    owner = Generation()
    reader = owner
    before = reader.number
    owner.number += 1
    assert reader.number != before
