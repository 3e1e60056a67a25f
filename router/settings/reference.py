"""Writes the tables of docs/configuration.md from the table of settings: `python -m router.settings.reference`.

The text around the tables is written by hand; each stands between two comment lines that name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from router.settings.table import GROUPS, OPEN_DOOR_VARIABLE, TABLE, Setting

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
BLOCK = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewrite(page: str) -> str:
    """Returns the page with every generated block made anew. Raises KeyError for a block of an unknown name."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match['name']]()}\n{match[3]}", page)


def settings_tables() -> str:
    """Returns one heading and table for each group of settings."""
    return "\n".join(_group_table(group, rows) for group, rows in GROUPS.items())


def _group_table(group: str, rows: tuple[Setting, ...]) -> str:
    head = ("key", "flag", "environment", "default", "type", "meaning")
    return f"### {group}\n\n{_table(head, map(_setting_row, rows))}"


def _setting_row(row: Setting) -> tuple[str, ...]:
    flag = "none" if row.secret else f"`{row.flag}`"
    variable = row.legacy[0] if row.secret else row.variable
    default = row.shown_default or f"`{row.default}`"
    return (f"`{row.key}`", flag, f"`{variable}`", default, row.kind.name, row.help)


def older_names() -> str:
    """Returns the table of variables that older deployments use."""
    rows = [(name, row.key, row.help) for row in TABLE.values() for name in row.legacy]
    rows.append(
        (OPEN_DOOR_VARIABLE, "auth", "`true` means `auth: none`, where `auth` is said nowhere.")
    )
    head = ("variable", "stands for", "meaning")
    return _table(head, ((f"`{name}`", f"`{key}`", text) for name, key, text in rows))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "settings": settings_tables,
    "older-names": older_names,
}


if __name__ == "__main__":
    PAGE.write_text(rewrite(PAGE.read_text("utf-8")), "utf-8")
