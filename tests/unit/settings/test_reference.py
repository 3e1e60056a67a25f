"""Tests that docs/configuration.md says what the table of settings says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from router.settings import Origin, SettingsError, Source, load
from router.settings.config_file import parse_config
from router.settings.reference import PAGE, rewrite
from router.settings.table import OPEN_DOOR_VARIABLE, TABLE


def test_the_page_is_current() -> None:
    page = PAGE.read_text("utf-8")

    assert rewrite(page) == page, (
        "docs/configuration.md is old: run `python -m router.settings.reference`"
    )


def test_every_setting_has_a_row_with_flag_and_variable() -> None:
    page = PAGE.read_text("utf-8")

    for row in TABLE.values():
        names = ("none", row.legacy[0]) if row.secret else (f"`{row.flag}`", row.variable)
        assert f"\n| `{row.key}` | {names[0]} | `{names[1]}` | " in page


def test_every_older_name_has_a_row() -> None:
    page = PAGE.read_text("utf-8")
    names = [name for row in TABLE.values() for name in row.legacy]

    for name in (*names, OPEN_DOOR_VARIABLE):
        assert f"\n| `{name}` | " in page


def test_the_text_around_the_tables_stays() -> None:
    page = "before\n<!-- generated: older-names -->\nold\n<!-- end -->\nafter\n"

    rewritten = rewrite(page)

    assert rewritten.startswith("before\n<!-- generated: older-names -->\n\n| variable |")
    assert rewritten.endswith("|\n\n<!-- end -->\nafter\n")
    assert "old\n" not in rewritten
    assert rewrite(rewritten) == rewritten


def test_a_block_of_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError):
        rewrite("<!-- generated: frob -->\n<!-- end -->\n")


def test_the_example_of_a_file_is_understood() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)

    found = parse_config(example, Origin(Source.FILE, "example"))

    assert found.problems == []
    for key, (raw, _) in found.given.items():
        assert TABLE[key].kind.read(raw) is not None


def test_the_example_of_a_message_is_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("router.yaml")
    file.write_text("workers: 2\nacces-log: false\n")
    environment = {"SANDBOX_ROUTER_PROXY_TIMEOUT": "5 min"}

    with pytest.raises(SettingsError) as caught:
        load({"auth": "jwt"}, environment, file, in_cluster=True)

    assert f"sandbox-router: {caught.value}\n```" in PAGE.read_text("utf-8")
