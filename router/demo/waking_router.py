"""The router of the sleeping demo: `python -m router.demo.waking_router SOCKET --FLAG VALUE…` serves with the demo's waker.

`serve` itself wakes through Kubernetes alone, so its settings refuse `wake` with a sandboxes file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from router import app
from router.demo.switch_waker import SwitchWaker
from router.settings import Settings, load


def settings_of(flags: Sequence[str]) -> Settings:
    """Returns the settings of `serve` with these flags, in pairs, and with waking on. Raises SettingsError."""
    given = {flag.removeprefix("--"): value for flag, value in zip(*[iter(flags)] * 2, strict=True)}
    settings = load(given, os.environ).settings
    return replace(settings, waking=replace(settings.waking, wake="all"))


def main(arguments: Sequence[str]) -> int:
    """Serves until a signal. Returns the exit code."""
    switch, *flags = arguments
    return app.run(settings_of(flags), waker=SwitchWaker(switch))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
