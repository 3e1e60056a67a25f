"""What was built is never looked at again by the collector."""

from __future__ import annotations

import gc

from router.app import garbage


def test_what_is_there_is_frozen_and_the_rest_looked_at_more_rarely() -> None:
    before = gc.get_threshold()
    try:
        garbage.settle()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (20_000, 20, 50)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
