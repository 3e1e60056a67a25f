"""The table of what the plane measurements measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.plane_cases import PLANE_CASES
from router.settings.table import TABLE

BY_NAME = {case.name: case for case in PLANE_CASES}


def test_everything_that_the_data_path_is_judged_by_is_measured() -> None:
    assert {"get", "get-miss", "post", "get-proxied", "get-log", "ws-64b", "down", "up"} <= set(
        BY_NAME
    )


@pytest.mark.parametrize("case", PLANE_CASES, ids=lambda case: case.name)
def test_a_case_sets_only_what_the_router_knows(case) -> None:
    assert set(case.settings) <= {row.key for row in TABLE.values()}


def test_misses_have_more_sandboxes_than_a_connection_can_remember() -> None:
    assert BY_NAME["get-miss"].sandboxes == 10_000


def test_the_documentation_names_every_plane_case() -> None:
    page = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()

    assert [case.name for case in PLANE_CASES if f"`{case.name}`" not in page] == []


def test_the_log_is_on_only_where_it_is_measured() -> None:
    on = [case.name for case in PLANE_CASES if case.settings.get("access-log") == "true"]

    assert on == ["get-log"]
