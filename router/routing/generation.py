"""Generation: a number that moves on when earlier answers may be others now."""

from __future__ import annotations


class Generation:
    """A number that moves on when earlier answers may be others now; shared, so that reading it costs no call."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0
