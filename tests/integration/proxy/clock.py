"""Clock: the proxy's time, which a test moves forward instead of waiting."""

from __future__ import annotations

import sys
import time as real_time

import pytest

from router import code_form


class Clock:
    """Stands in for the module `time` in router.proxy: real time and what the test has added to it."""

    def __init__(self) -> None:
        self.added_s = 0.0

    def __repr__(self) -> str:
        return f"<Clock +{self.added_s}s>"

    def monotonic(self) -> float:
        return real_time.monotonic() + self.added_s

    def time(self) -> float:
        return real_time.time() + self.added_s

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes it the time of every module of the proxy. Skips the test where those are compiled: their time can't be moved."""
        if "router.proxy.gateway" in code_form.CURRENT.modules:
            pytest.skip("runs in pure Python: a compiled module's time can't be moved")
        for name, module in list(sys.modules.items()):
            if name.startswith("router.proxy.") and getattr(module, "time", None) is real_time:
                monkeypatch.setattr(module, "time", self)
