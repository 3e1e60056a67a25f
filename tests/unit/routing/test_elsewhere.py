"""A process that has no siblings."""

from router.routing.elsewhere import ALONE


def test_nobody_else_holds_anything() -> None:
    ALONE.add("box", 3)
    assert ALONE.others("box") == 0
