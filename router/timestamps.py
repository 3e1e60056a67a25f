"""Points in time as people write them: one grammar for files, annotations and tokens' rules."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

FORM: Final = "a time with its zone, like 2026-12-01T00:00:00Z"
"""What to write, for messages."""

# RFC 3339 §5.6, whose note allows a space for the T; datetime.fromisoformat alone takes dates without a time and
# times without a zone.
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def parse_timestamp(text: object) -> float:
    """Returns Unix seconds. Raises ValueError, worded to follow the name of what was read, for all else than RFC 3339."""
    if isinstance(text, str) and _RFC3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper()).timestamp()
        except (ValueError, OverflowError):
            pass
    raise ValueError(f"must be {FORM}")
