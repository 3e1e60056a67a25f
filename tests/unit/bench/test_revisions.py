"""Older revisions beside today's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.revisions import PROJECT, RevisionError, commit_of, environment, installed


def imported_from(directory: Path, code: Path | None) -> Path:
    said = subprocess.run(
        [sys.executable, "-c", "import bench, router.errors as e; print(e.__file__)"],
        cwd=directory,
        env={**os.environ, **environment(code)},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(said.stdout.strip())


def test_the_router_comes_from_the_revisions_directory(tmp_path: Path) -> None:
    (tmp_path / "router").mkdir()
    (tmp_path / "router" / "__init__.py").touch()
    (tmp_path / "router" / "errors.py").touch()

    assert imported_from(tmp_path, tmp_path).parent == tmp_path / "router"


def test_without_a_revision_it_comes_from_this_tree(tmp_path: Path) -> None:
    (tmp_path / "router.py").touch()

    assert imported_from(tmp_path, None) == PROJECT / "router" / "errors.py"


def test_a_revision_that_was_built_before_is_not_built_again(tmp_path: Path) -> None:
    kept = tmp_path / commit_of("HEAD")[:12]
    kept.mkdir()

    assert installed("HEAD", kept=tmp_path) == kept


def test_an_unknown_revision_is_an_error() -> None:
    with pytest.raises(RevisionError, match="git rev-parse"):
        commit_of("no-such-revision")
