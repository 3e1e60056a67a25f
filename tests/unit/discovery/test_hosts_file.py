"""The hosts file: its names, and what becomes of it while it is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from router.discovery.hosts_file import HostsFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hosts"


def test_a_name_has_the_addresses_of_every_line_that_names_it_ipv4_first(path: Path) -> None:
    path.write_text("fd00::5 box Box.Local # a comment\n10.0.0.5\tbox.local box\n10.0.0.5 box\n")
    assert HostsFile(path).find("box") == ["10.0.0.5", "fd00::5"]
    assert HostsFile(path).find("BOX.local") == ["10.0.0.5", "fd00::5"]


@pytest.mark.parametrize("line", ["#10.0.0.5 box", "10.0.0.5", "10.0.0 box", "box 10.0.0.5", ""])
def test_a_line_that_is_none_names_nothing(path: Path, line: str) -> None:
    path.write_text(f"{line}\n10.0.0.6 other\n")
    assert HostsFile(path).find("box") == []
    assert HostsFile(path).find("other") == ["10.0.0.6"]


def test_localhost_needs_no_line(path: Path) -> None:
    assert HostsFile(path).find("localhost") == ["127.0.0.1", "::1"]


def test_a_file_that_changes_is_read_again(path: Path) -> None:
    path.write_text("10.0.0.5 box\n")
    hosts = HostsFile(path)
    assert hosts.find("box") == ["10.0.0.5"]
    path.write_text("10.0.0.66 box\n")
    assert hosts.find("box") == ["10.0.0.66"]


def test_a_file_that_goes_takes_its_names_with_it_and_the_log_says_so(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("10.0.0.5 box\n")
    hosts = HostsFile(path)
    hosts.find("box")
    path.unlink()
    assert [hosts.find("box"), hosts.find("box")] == [[], []]
    assert len(caplog.records) == 1
    assert "hosts file" in caplog.text


def test_a_pipe_in_its_place_holds_nobody_up(path: Path) -> None:
    os.mkfifo(path)
    assert HostsFile(path).find("box") == []
