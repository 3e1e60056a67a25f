"""The annotation that says after how much idleness a Sandbox is suspended."""

from __future__ import annotations

from typing import Final

from router.settings.values import BLANKS, BadValueError, duration

IDLE_TIMEOUT_ANNOTATION: Final = "router.agents.x-k8s.io/idle-timeout"
NEVER: Final = 0.0

_SHOWN_TEXT_LIMIT: Final = 64
_KIND: Final = duration()


def read_idle_timeout(value: object) -> tuple[float, str]:
    """Returns the idle time in seconds (NEVER without one, for 0 and for `off`), and what is wrong with the annotation.

    One that can't be read means never too: nobody's sandbox is suspended by a slip of the pen.
    """
    if value is None:
        return NEVER, ""
    try:
        if not isinstance(value, str):
            raise BadValueError("is not a text", "write 30m")
        return float(_KIND.parse(value.strip(BLANKS))), ""
    except BadValueError as error:
        return NEVER, f"{value!r:.{_SHOWN_TEXT_LIMIT}} {error}"
