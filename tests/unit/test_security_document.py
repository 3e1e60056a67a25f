"""The security page: every defence names a test, and every named test exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
ROW = re.compile(r"^\| ([STRIDE]) \|(.+)\|$", re.MULTILINE)


def test_every_named_test_exists() -> None:
    missing = [
        f"{path}::{name}"
        for path, name in NAMED.findall(PAGE)
        if not (ROOT / path).exists()
        or not re.search(
            rf"^ *(async )?def {name}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE
        )
    ]

    assert missing == []


def test_every_defence_names_a_test() -> None:
    rows = ROW.findall(PAGE)
    without = [rest for _, rest in rows if not NAMED.search(rest)]

    assert len(rows) > 50
    assert without == []


def test_every_kind_of_threat_was_thought_of() -> None:
    assert {kind for kind, _ in ROW.findall(PAGE)} == set("STRIDE")
