"""Tests that a program comes out of a Debian package on a machine whose lists nobody has ever fetched: real apt-get, real packages."""

import hashlib
import shutil
import subprocess

import pytest

from tests.deploy import debian

pytestmark = pytest.mark.skipif(
    not (shutil.which("apt-get") and shutil.which("dpkg-deb")), reason="no apt-get here"
)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Yields the folder of a machine's lists, empty; its only source is a repository on this disk with the package `tool`."""
    repository, lists = tmp_path / "repository", tmp_path / "lists"
    lists.mkdir()
    write_repository(repository, "tool", {"usr/sbin/tool": "#!/bin/sh\n"})
    sources = tmp_path / "sources.list"
    sources.write_text(f"deb [trusted=yes] file://{repository} ./\n")
    config = tmp_path / "apt.conf"
    config.write_text(
        f'Dir::Etc::sourcelist "{sources}";\nDir::Etc::sourceparts "/dev/null";\n'
        f'Dir::State::lists "{lists}";\nDir::Cache "{tmp_path / "cache"}";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(config))
    return lists


def write_repository(folder, package, files):
    """Writes a flat repository with one package."""
    root = folder / "root"
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    fields = f"Package: {package}\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: {package}\n"
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN" / "control").write_text(fields)
    archive = folder / f"{package}.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-b", str(root), str(archive)],
        check=True,
        capture_output=True,
    )
    content = archive.read_bytes()
    (folder / "Packages").write_text(
        f"{fields}Filename: ./{archive.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    )


def test_a_file_comes_out_of_a_package_although_no_list_was_ever_fetched(machine, tmp_path):
    content = debian.file_of(["tool"], "usr/sbin/tool", lists=tmp_path / "own")

    assert content == b"#!/bin/sh\n"


def test_the_lists_of_the_machine_are_left_as_they_were(machine, tmp_path):
    debian.file_of(["tool"], "usr/sbin/tool", lists=tmp_path / "own")

    assert [path for path in machine.rglob("*") if path.is_file() and path.name != "lock"] == []


def test_the_first_package_that_has_the_file_is_taken(machine, tmp_path):
    content = debian.file_of(["tool-light", "tool"], "usr/sbin/tool", lists=tmp_path / "own")

    assert content == b"#!/bin/sh\n"


def test_each_package_says_why_it_gave_nothing(machine, tmp_path):
    with pytest.raises(debian.NotToBeHadError) as caught:
        debian.file_of(["other", "tool"], "usr/bin/tool", lists=tmp_path / "own")

    assert "`apt-get download other` failed: E: Unable to locate package other" in str(caught.value)
    assert "the package tool has no usr/bin/tool" in str(caught.value)


def test_a_source_that_fails_takes_nothing_from_the_others(machine, tmp_path):
    with (tmp_path / "sources.list").open("a") as sources:
        sources.write(f"deb [trusted=yes] file://{tmp_path / 'nowhere'} ./\n")

    assert debian.file_of(["tool"], "usr/sbin/tool", lists=tmp_path / "own") == b"#!/bin/sh\n"


def test_a_machine_without_apt_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(debian.NotToBeHadError, match="here is no apt-get"):
        debian.file_of(["tool"], "usr/sbin/tool", lists=tmp_path / "own")
