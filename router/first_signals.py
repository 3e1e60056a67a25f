"""First signals: a program that is process 1 can be told to end from its first moment on.

The kernel drops a signal to process 1 that has no handler, and importing everything takes a while.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def listen() -> None:
    """Makes SIGTERM end this process at once, as it ends every other one, until the router has its own handlers.

    An image may start it with SIGTERM blocked (`env --block-signal=TERM`): then none is lost while Python itself starts.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _end(number: int, frame: FrameType | None) -> None:
    # Nothing is open or half written yet, and an exception might be swallowed by whatever is being imported.
    os._exit(128 + number)
