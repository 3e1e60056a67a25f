"""The garbage collector, for a process whose requests leave no cycles behind."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLD: Final = 20_000
"""A young collection every 700 allocations finds nothing and costs 3 %."""


def settle() -> None:
    """Collects once what building left behind; what is there now is never looked at again, and the rest more rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_THRESHOLD, 20, 50)
