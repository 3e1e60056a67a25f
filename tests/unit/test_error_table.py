"""docs/errors.md has one row for each error, as the error itself says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from router.error_table import every_error, reference_table
from router.errors import RouterError

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
ALL = sorted(every_error(), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_has_a_row_in_the_page(kind: type[RouterError]) -> None:
    rows = [
        line
        for line in PAGE.read_text("utf-8").splitlines()
        if line.endswith(f"| `{kind.__name__}` |")
    ]

    assert len(rows) == 1
    assert rows[0].startswith(f"| {kind.status} | `{kind.code}` | `{kind.default_detail}")


def test_the_page_is_current() -> None:
    assert f"\n{reference_table()}\n" in PAGE.read_text("utf-8"), (
        "docs/errors.md is old: replace its table with what `python -m router.error_table` prints"
    )


def test_no_cell_hides_a_placeholder_from_markdown() -> None:
    outside_of_code = re.sub(r"`[^`]*`", "", reference_table())

    assert "<" not in outside_of_code
