"""The states of a connection to a sandbox, and what may follow each."""

from __future__ import annotations

import enum
from typing import Final


class State(enum.IntEnum):
    """What a connection to a sandbox is doing."""

    IDLE = 0
    """It waits in the Pool, or has just been made."""
    AWAITING = 1
    """A request is out; the final head of its response has not come."""
    BODY = 2
    TUNNEL = 3
    CLOSED = 4


# What may follow each state, by its number.
NEXT: Final = (
    (State.AWAITING, State.TUNNEL, State.CLOSED),
    (State.IDLE, State.BODY, State.TUNNEL, State.CLOSED),
    (State.IDLE, State.CLOSED),
    (State.CLOSED,),
    (State.CLOSED,),
)
