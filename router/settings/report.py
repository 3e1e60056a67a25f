"""Shows the settings that hold, each with where it came from; what is secret stays hidden."""

from __future__ import annotations

import json
import re
from typing import Any

from router.settings.loading import Loaded
from router.settings.table import GROUPS, Setting
from router.settings.values import Shown

HIDDEN = "(hidden)"
PLAIN = re.compile(r"[A-Za-z0-9/.:][A-Za-z0-9/.:_@+=~-]*(?<!:)")


def as_text(loaded: Loaded) -> str:
    """Returns one line for each setting. The whole is a configuration file again, but for a hidden token."""
    lines = []
    for group, rows in GROUPS.items():
        lines.append(f"# {group}")
        for row in rows:
            line = f"{row.key}: {_yaml(_shown(row, loaded))}"
            lines.append(f"{'# ' if row.secret else ''}{line}  # {loaded.origins[row.key]}")
    return "\n".join(lines)


def as_json(loaded: Loaded) -> str:
    """Returns `{"settings": {key: {value, source, name, line}}, "warnings": [...]}`."""
    settings: dict[str, Any] = {}
    for rows in GROUPS.values():
        for row in rows:
            origin = loaded.origins[row.key]
            settings[row.key] = {"value": _shown(row, loaded), "source": origin.source.value}
            settings[row.key] |= {"name": origin.name} if origin.name else {}
            settings[row.key] |= {"line": origin.line} if origin.line else {}
    warnings = [str(warning) for warning in loaded.warnings]
    return json.dumps({"settings": settings, "warnings": warnings}, indent=2)


def _shown(row: Setting, loaded: Loaded) -> Shown:
    value = row.value_in(loaded.settings)
    if row.secret:
        return HIDDEN if value else ""
    return row.kind.show(value)


def _yaml(shown: Shown) -> str:
    if isinstance(shown, list):
        return f"[{', '.join(_yaml(item) for item in shown)}]"
    if isinstance(shown, bool):
        return "true" if shown else "false"
    text = str(shown)
    if text == HIDDEN or (PLAIN.fullmatch(text) and text.lower() != "null"):
        return text
    return json.dumps(text, ensure_ascii=False)
