"""The states of an exchange's two sides, and what may follow each."""

from __future__ import annotations

import enum
from typing import Final


class Sending(enum.IntEnum):
    """The request's side."""

    HELD = 0
    """There is no connection to the sandbox: nothing is sent, and a body waits at the client's connection."""
    BODY = 1
    """The head is sent, the body is on its way."""
    SENT = 2


class Receiving(enum.IntEnum):
    """The response's side."""

    AWAITED = 0
    BODY = 1
    """The client has the final head: from here on no error response is possible."""
    TUNNEL = 2
    """The sandbox switched protocols: the bytes are the Tunnel's."""
    ENDED = 3
    """Whole, refused or cut: told to the Telemetry, once."""


# What may follow each state, by its number. A request goes back to HELD only to be sent again, before any response.
SENDING_NEXT: Final = ((Sending.BODY, Sending.SENT), (Sending.SENT, Sending.HELD), (Sending.HELD,))
RECEIVING_NEXT: Final = (
    (Receiving.BODY, Receiving.TUNNEL, Receiving.ENDED),
    (Receiving.ENDED,),
    (Receiving.ENDED,),
    (),
)
