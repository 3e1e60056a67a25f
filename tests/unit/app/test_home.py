"""Whether there is a home page."""

from __future__ import annotations

from typing import Any, cast

import pytest

from router.app.home import build_home
from router.settings import load

NOTHING = cast(Any, None)


@pytest.mark.parametrize("flags", [{}, {"home": "false"}])
def test_unless_it_is_wanted_there_is_none(flags: dict[str, str], tmp_path: Any) -> None:
    table = tmp_path / "s.yaml"
    table.write_text("sandboxes: []")
    given = {"auth": "none", "discovery": "file", "sandboxes-file": str(table), **flags}
    settings = load({**given, "base-domain": "boxes.example"}).settings
    built = build_home(
        settings,
        admission=NOTHING,
        sandboxes=NOTHING,
        access=NOTHING,
        wakes=None,
        options=NOTHING,
    )
    assert built is None
