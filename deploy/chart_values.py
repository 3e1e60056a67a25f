"""Writes docs/chart-values.md from the chart's schema and values, after the help of settings into the schema: `python deploy/chart_values.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from router.settings.table import TABLE

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "router"
PAGE = ROOT / "docs" / "chart-values.md"

HEAD = """\
# Values of the Helm chart

Generated from `charts/router/values.schema.json` and `values.yaml` by `python deploy/chart_values.py`; a test holds this page current. Values that are
not in the schema are refused, and so are values that contradict each other, each with a message that says what to set.

`config` holds the router's own settings by their own names; what each means and its default stand in [configuration.md](configuration.md). Binds and
mounted files are not among them, for the chart sets those itself. [install.md](install.md) has complete examples.
"""


def markdown() -> str:
    """Returns the whole page."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    sections = [HEAD]
    for name, part in schema["properties"].items():
        if "properties" in part:
            sections.append(
                f"## `{name}`\n\n{part['description']}\n\n{_table(part, values[name], name)}"
            )
    top = {name: part for name, part in schema["properties"].items() if "properties" not in part}
    top.pop("global")
    alone = {"properties": top}
    sections.append(f"## One value each\n\n{_table(alone, values, '')}")
    return "\n".join(sections)


def _table(part: dict[str, Any], values: dict[str, Any], prefix: str) -> str:
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for path, row, default in _rows(part, values, prefix):
        lines.append(f"| `{path}` | {default} | {row['description']}{_choices(row)} |")
    return "\n".join(lines) + "\n"


def _rows(
    part: dict[str, Any], values: dict[str, Any], prefix: str
) -> Iterator[tuple[str, dict[str, Any], str]]:
    for name, row in part["properties"].items():
        path = f"{prefix}.{name}" if prefix else name
        if "properties" in row:
            yield from _rows(row, values.get(name, {}), path)
        else:
            yield path, row, _default(path, values.get(name))


def _default(path: str, value: object) -> str:
    key = path.removeprefix("config.")
    if value is None and key in TABLE:
        default = TABLE[key].default_text
        return default if TABLE[key].shown_default else f"`{default}`"
    if value in ("", [], {}):
        return "none"
    return f"`{json.dumps(value)}`" if not isinstance(value, str) else f"`{value}`"


def _choices(row: dict[str, Any]) -> str:
    words = [word for word in row.get("enum", ()) if isinstance(word, str) and word]
    return f" One of {', '.join(f'`{word}`' for word in words)}." if len(words) > 1 else ""


def describe_settings() -> None:
    """Gives each setting in the schema the words that the router itself has for it."""
    path = CHART / "values.schema.json"
    schema = json.loads(path.read_text())
    for key, part in schema["properties"]["config"]["properties"].items():
        part["description"] = TABLE[key].help
    path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    describe_settings()
    PAGE.write_text(markdown())
