"""What several tests of this room need."""

from tests.unit.telemetry.conftest import make_outcome

__all__ = ["make_outcome"]
