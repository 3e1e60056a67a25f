"""Clock: the proxy's time, which a test moves forward instead of waiting."""

from __future__ import annotations

import sys
import time as real_time
from collections.abc import Callable

import pytest

from router import code_form

_monotonic, _time = real_time.monotonic, real_time.time


class Clock:
    """Stands in for the module `time` in router.proxy: real time and what the test has added to it."""

    def __init__(self) -> None:
        self.added_s = 0.0

    def __repr__(self) -> str:
        return f"<Clock +{self.added_s}s>"

    def monotonic(self) -> float:
        return _monotonic() + self.added_s

    def time(self) -> float:
        return _time() + self.added_s

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes it the time of every module of the proxy, in whichever form."""
        if "router.proxy.gateway" in code_form.CURRENT.modules:
            # A compiled module keeps hold of the module `time` itself.
            monkeypatch.setattr(real_time, "monotonic", _for_the_proxy(self.monotonic, _monotonic))
            monkeypatch.setattr(real_time, "time", _for_the_proxy(self.time, _time))
            return
        for name, module in list(sys.modules.items()):
            if name.startswith("router.proxy.") and getattr(module, "time", None) is real_time:
                monkeypatch.setattr(module, "time", self)


def _for_the_proxy(moved: Callable[[], float], real: Callable[[], float]) -> Callable[[], float]:
    """Returns a function of time that is moved for compiled callers alone: they have no frame, so the nearest asks for no time."""

    def now() -> float:
        names = sys._getframe(1).f_code.co_names
        return real() if "monotonic" in names or "time" in names else moved()

    return now
