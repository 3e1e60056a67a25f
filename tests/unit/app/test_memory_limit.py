"""The memory limit: where it is read, and how much of it connections may hold."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from router.app import memory_limit
from router.app.memory_limit import buffered_bytes_allowed, container_limit

MIB = 2**20
GIB = 2**30


def machine(root: Path, groups: str, files: dict[str, str]) -> dict[str, Path]:
    """Returns where a machine keeps its control groups, with these files in them."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return {"proc": root / "proc", "mount": root / "mount"}


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"memory.max": str(GIB)}, GIB),
        ("0::/\n", {"memory.max": "max"}, None),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"a/memory.max": str(GIB), "a/b/memory.max": str(2 * GIB)}, GIB),
        ("0::/a/b\n", {"a/memory.max": "max", "a/b/memory.max": str(GIB)}, GIB),
        ("0::/../x\n", {"memory.max": str(GIB)}, GIB),
        ("0::/kubepods/pod1\n", {"memory.max": str(GIB)}, GIB),
        ("4:cpu,memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": str(GIB)}, GIB),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("4:cpu:/\n", {"memory/memory.limit_in_bytes": str(GIB)}, None),
        ("0::/\n", {"memory.max": "what?"}, None),
        ("nonsense\n", {"memory.max": str(GIB)}, GIB),
    ],
)
def test_the_least_limit_of_the_control_groups_is_the_containers(
    groups: str, files: dict[str, str], limit: int | None, tmp_path: Path
) -> None:
    assert container_limit(**machine(tmp_path, groups, files)) == limit


def test_a_system_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert container_limit(proc=tmp_path, mount=tmp_path) is None


@pytest.mark.parametrize(
    ("wanted", "limit", "allowed"),
    [
        (None, GIB, 256 * MIB),
        (None, 4 * GIB, GIB),
        (None, None, 256 * MIB),
        (None, MIB, 8 * MIB),
        (5 * MIB, GIB, 5 * MIB),
    ],
)
def test_auto_is_a_quarter_of_the_limit(
    wanted: int | None, limit: int | None, allowed: int
) -> None:
    assert buffered_bytes_allowed(wanted, limit) == allowed


@pytest.mark.parametrize(
    ("allowed", "limit", "level"),
    [(256 * MIB, GIB, "INFO"), (513 * MIB, GIB, "WARNING"), (513 * MIB, None, "INFO")],
)
def test_one_line_says_what_it_comes_to(
    allowed: int, limit: int | None, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        memory_limit.tell(allowed, limit)

    (record,) = caplog.records
    assert record.levelname == level
    assert record.fields == {"max_buffered_bytes": allowed, "memory_limit": limit or "none"}
