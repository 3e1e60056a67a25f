"""The command line."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import pytest

from bench import __main__ as command
from bench.plan import Plan
from bench.report import Run
from bench.subjects import SUBJECTS


@pytest.mark.parametrize(
    "arguments", [["--subjects", "router,squid"], ["--cases", "get-64,get-1000000"]]
)
def test_an_unknown_name_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)

    assert ended.value.code == 2
    assert "no such" in capsys.readouterr().err


def test_a_missing_peer_is_named_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = [dataclasses.replace(each, locate=lambda: None) for each in SUBJECTS]
    monkeypatch.setattr(command, "SUBJECTS", tuple(nowhere))

    with caplog.at_level(logging.WARNING), pytest.raises(SystemExit, match="asked for is missing"):
        command.main(["--subjects", "haproxy"])

    assert "haproxy is missing; to get it: apt-get install haproxy" in caplog.messages


def test_with_nothing_installed_there_is_nothing_to_measure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nowhere = [dataclasses.replace(each, locate=lambda: None) for each in SUBJECTS]
    monkeypatch.setattr(command, "SUBJECTS", tuple(nowhere))

    with pytest.raises(SystemExit, match="nothing to measure"):
        command.main([])


def test_a_revision_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SystemExit, match="git rev-parse"):
        command.main(["--subjects", "router@no-such-revision"])


def test_a_run_for_the_goals_measures_only_their_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    async def carried_out(plan: Plan) -> Run:
        plans.append(plan)
        raise asyncio.CancelledError

    monkeypatch.setattr(command, "carry_out", carried_out)
    monkeypatch.setattr(command, "_raise_file_limit", lambda: None)

    with pytest.raises(SystemExit, match="ended early"):
        command.main(["--goals", "--subjects", "router", "--cases", "get-64,get-64-differ,ws-64b"])

    assert [case.name for case in plans[0].cases] == ["get-64-differ", "ws-64b"]
    assert plans[0].repeats == 1


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_run_in_a_hurry_raises_the_priority_before_anything_is_started(
    is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[bool] = []

    def hurry() -> bool:
        raised.append(is_allowed)
        return is_allowed

    async def carried_out(plan: Plan) -> Run:
        assert raised == [True]
        raise asyncio.CancelledError

    monkeypatch.setattr(command, "carry_out", carried_out)
    monkeypatch.setattr(command, "_raise_file_limit", lambda: None)
    monkeypatch.setattr(command.priority, "hurry", hurry)

    with pytest.raises(SystemExit, match="ended early" if is_allowed else "only root may"):
        command.main(["--urgent", "--subjects", "router", "--cases", "get-64"])
