"""The command line."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from bench import __main__ as command
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
