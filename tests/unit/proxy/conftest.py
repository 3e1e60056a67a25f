"""What all tests of this room need."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
