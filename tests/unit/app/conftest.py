"""What several tests of this room need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from router.settings import Settings, load
from tests.unit.telemetry.conftest import make_outcome

__all__ = ["MakeSettings", "make_outcome", "make_settings"]

# A busy machine is no failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

MakeSettings = Callable[..., Settings]


@pytest.fixture
def sandboxes_file(tmp_path: Path) -> Path:
    """A file of two sandboxes."""
    path = tmp_path / "sandboxes.yaml"
    path.write_text(
        "sandboxes:\n"
        "  - {name: box-a, host: 127.0.0.1}\n"
        "  - {name: box-b, namespace: team-b, host: 127.0.0.1, state: starting}\n"
    )
    return path


@pytest.fixture
def make_settings(sandboxes_file: Path) -> MakeSettings:
    """Returns a maker of settings: a small router on loopback, open to everybody, whose keys the keywords replace."""

    def make(**values: object) -> Settings:
        flags = {
            "http-bind": "127.0.0.1:0",
            "admin-bind": "off",
            "auth": "none",
            "discovery": "file",
            "sandboxes-file": str(sandboxes_file),
            "drain-delay": "0",
            "shutdown-timeout": "1s",
            "access-log": "false",
            "log-level": "error",
        }
        flags |= {name.replace("_", "-"): str(value) for name, value in values.items()}
        if flags["discovery"] != "file":
            del flags["sandboxes-file"]
        return load(flags).settings

    return make
