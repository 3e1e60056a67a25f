"""The command line of the plane measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import budgets, plane, plane_command
from bench.plane_child import PlaneCost
from router.code_form import CodeForm


@pytest.fixture(autouse=True)
def measured_at_once(monkeypatch, tmp_path: Path) -> Path:
    cost = PlaneCost(cost=10.0, raw_us=10.0, calibration_us=200.0, runs=9, calm=1.0, form="pure")
    monkeypatch.setattr(plane, "measured", lambda *_: cost)
    path = tmp_path / "budgets.json"
    monkeypatch.setattr(budgets, "BUDGETS", path)
    monkeypatch.setattr(plane_command, "_RESULTS", tmp_path / "results")
    return path


def test_more_than_the_budget_ends_with_an_exit_code(
    measured_at_once: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured_at_once.write_text(json.dumps({"pure": {"costs": {"get": 5.0}}}))

    assert command.main(["--plane", "--quick", "--cases", "get"]) == 1
    assert "over by 100%" in capsys.readouterr().out


def test_a_budget_that_is_set_holds_from_then_on() -> None:
    assert command.main(["--plane", "--quick", "--cases", "get", "--set-budget"]) == 0
    assert command.main(["--plane", "--quick", "--cases", "get"]) == 0
    assert command.main(["--plane", "--quick", "--cases", "get,post"]) == 1


def test_a_whole_run_is_kept_and_a_quick_one_is_not(tmp_path: Path) -> None:
    command.main(["--plane", "--quick", "--cases", "get"])
    assert not (tmp_path / "results").exists()

    command.main(["--plane", "--cases", "get"])
    assert {path.suffix for path in (tmp_path / "results").glob("plane-*")} == {
        ".json",
        ".md",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cases", "gets"], "no such cases: gets"),
        (["--subjects", "envoy"], "not envoy"),
        (["--subjects", "router@no-such-revision"], "rev-parse"),
    ],
)
def test_what_can_not_be_measured_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        command.main(["--plane", "--quick", *arguments])


def test_both_forms_are_measured_where_there_are_two(
    monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = CodeForm(modules={"router.proxy": "file.so"})
    monkeypatch.setattr(plane_command.code_form, "CURRENT", built)

    command.main(["--plane", "--quick", "--cases", "get"])

    assert (
        "| router (pure) | router-pure (pure) | router / router-pure |" in capsys.readouterr().out
    )
