"""Left out unless asked for: `pytest -m real tests/real` (that is `make test-real`)."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_asked_for = "real" in str(config.getoption("markexpr", ""))
    for item in items:
        if item.get_closest_marker("real") and not is_asked_for:
            item.add_marker(pytest.mark.skip(reason="run them with `make test-real`"))
