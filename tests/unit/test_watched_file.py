"""WatchedFiles: new content is put in force as a whole, bad content never is."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from router.watched_file import (
    MAX_FILE_BYTES,
    FilesChangingError,
    FileStatus,
    WatchedFiles,
    reload_all,
)


def _number(contents: tuple[bytes, ...]) -> int:
    return sum(int(content) for content in contents)


class Watched:
    """WatchedFiles of numbers, whose sum is in force."""

    def __init__(self, *paths: Path, parse: Callable[[tuple[bytes, ...]], int] = _number) -> None:
        self.applied: list[int] = []
        self.now = 1000.0
        self.files = WatchedFiles(
            paths,
            parse=parse,
            apply=self.applied.append,
            poll_interval_s=0.01,
            clock=lambda: self.now,
        )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "number"
    path.write_text("1")
    return path


def test_the_first_load_puts_the_content_in_force(file: Path) -> None:
    watched = Watched(file)

    watched.files.load_once()

    assert watched.applied == [1]


def test_a_bad_file_at_the_start_is_an_error_that_names_it(file: Path) -> None:
    file.write_text("x")

    with pytest.raises(ValueError, match=str(file)):
        Watched(file).files.load_once()


def test_a_missing_file_at_the_start_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        Watched(tmp_path / "absent").files.load_once()


def test_a_huge_file_is_refused_unread(file: Path) -> None:
    with file.open("wb") as huge:
        huge.truncate(MAX_FILE_BYTES + 1)

    with pytest.raises(ValueError, match="larger"):
        Watched(file).files.load_once()


async def test_changed_content_is_put_in_force_at_the_next_poll(file: Path) -> None:
    watched = Watched(file)
    watched.files.load_once()

    file.write_text("2")

    assert await watched.files.poll() is True
    assert watched.applied == [1, 2]
    assert watched.files.reloads_succeeded == 1


async def test_the_same_content_written_again_changes_nothing(file: Path) -> None:
    watched = Watched(file)
    watched.files.load_once()

    file.write_text("1")

    assert await watched.files.poll() is False
    assert watched.applied == [1]
    assert watched.files.reloads_succeeded == 0


async def test_bad_new_content_keeps_the_old_and_counts_once(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(file)
    watched.files.load_once()

    file.write_text("x")
    await watched.files.poll()
    await watched.files.poll()

    assert watched.applied == [1]
    assert watched.files.reloads_failed == 1
    assert "invalid literal" in watched.files.last_error
    assert [record.message for record in caplog.records] == [
        "file not reloaded, the old content stays in force"
    ]


async def test_the_old_content_put_back_clears_the_error(file: Path) -> None:
    watched = Watched(file)
    watched.files.load_once()
    file.write_text("x")
    await watched.files.poll()

    file.write_text("1")
    await watched.files.poll()

    assert watched.files.last_error == ""
    assert watched.applied == [1]


async def test_a_file_that_goes_away_keeps_its_content_in_force_until_it_is_back(
    file: Path,
) -> None:
    watched = Watched(file)
    watched.files.load_once()

    file.unlink()
    await watched.files.poll()
    await watched.files.poll()
    assert watched.files.reloads_failed == 1
    file.write_text("3")
    await watched.files.poll()

    assert watched.applied == [1, 3]


async def test_an_atomic_secret_rotation_replaces_all_files_together(tmp_path: Path) -> None:
    def mount(version: str, *numbers: int) -> None:
        data = tmp_path / version
        data.mkdir()
        for name, number in zip(("a", "b"), numbers, strict=True):
            (data / name).write_text(str(number))
        (tmp_path / "..tmp").symlink_to(version)
        os.rename(tmp_path / "..tmp", tmp_path / "..data")

    mount("v1", 1, 10)
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    watched = Watched(tmp_path / "a", tmp_path / "b")
    watched.files.load_once()

    mount("v2", 2, 20)

    assert await watched.files.poll() is True
    assert watched.applied == [11, 22]


async def test_files_swapped_while_they_are_read_are_never_mixed(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("1")
    second.write_text("10")
    watched = Watched(first, second)
    watched.files.load_once()
    first.write_text("2")
    read, writes = watched.files._current_stamp, itertools.count(3)

    # Somebody writes both files again during every read: no two looks find the same.
    def restless() -> tuple[tuple[int, ...] | None, ...]:
        stamp = read()
        for path in (first, second):
            path.write_text("9" * next(writes))
        return stamp

    watched.files._current_stamp = restless  # type: ignore[method-assign]
    assert await watched.files.poll() is False
    watched.files._current_stamp = read  # type: ignore[method-assign]
    first.write_text("8")
    second.write_text("80")

    assert await watched.files.poll() is True
    assert watched.applied == [11, 88]
    assert watched.files.reloads_failed == 0
    assert next(writes) > 20


async def test_a_parser_that_finds_the_files_changing_is_asked_again(file: Path) -> None:
    answers: list[Exception | int] = [1, FilesChangingError("swap"), 2]

    def parse(contents: tuple[bytes, ...]) -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watched = Watched(file, parse=parse)
    watched.files.load_once()
    file.write_text("2")

    assert await watched.files.poll() is False
    assert await watched.files.poll() is True
    assert watched.applied == [1, 2]
    assert watched.files.reloads_failed == 0


async def test_running_it_follows_the_file_until_it_is_cancelled(file: Path) -> None:
    watched = Watched(file)
    watched.files.load_once()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(watched.files.run())
        file.write_text("7")
        while watched.applied[-1] != 7:
            await asyncio.sleep(0.005)
        task.cancel()

    assert watched.applied == [1, 7]
    assert "error=''" in repr(watched.files)


# --- what is no file -------------------------------------------------------------------------


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _directory(path: Path) -> None:
    path.mkdir()


NO_FILES = {"a FIFO": _fifo, "a device": _device, "a directory": _directory}


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_stops_the_start_and_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "number"
    NO_FILES[kind](path)

    with pytest.raises(OSError, match=f"{kind}, not a regular file: '{path}'"):
        Watched(path).files.load_once()


@pytest.mark.parametrize("kind", NO_FILES)
async def test_what_takes_a_files_place_is_a_failed_reload_and_the_next_file_is_seen(
    tmp_path: Path, file: Path, kind: str
) -> None:
    watched = Watched(file)
    watched.files.load_once()
    file.unlink()
    NO_FILES[kind](file)

    async with asyncio.timeout(5):
        await watched.files.poll()
        await watched.files.poll()
    assert watched.files.reloads_failed == 1
    assert f"{kind}, not a regular file" in watched.files.last_error
    file.rename(tmp_path / "away")
    file.write_text("2")

    assert await watched.files.poll() is True
    assert watched.applied == [1, 2]


async def test_a_socket_in_a_files_place_is_a_failed_reload(file: Path) -> None:
    watched = Watched(file)
    watched.files.load_once()
    file.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(file))

        await watched.files.poll()

    assert watched.files.reloads_failed == 1
    assert not watched.files.status("n").ok


# --- the state of a reload -------------------------------------------------------------------


async def test_the_status_tells_whether_what_is_there_is_in_force_and_since_when(
    file: Path,
) -> None:
    watched = Watched(file)
    assert watched.files.status("number") == FileStatus("number", True, 0.0, "")
    watched.files.load_once()
    assert watched.files.status("number") == FileStatus("number", True, 1000.0, "")

    watched.now = 1010.0
    file.write_text("x")
    await watched.files.poll()
    failed = watched.files.status("number")
    assert (failed.ok, failed.last_success_unix) == (False, 1000.0)
    assert "invalid literal" in failed.error

    watched.now = 1020.0
    await watched.files.poll()
    assert not watched.files.status("number").ok

    watched.now = 1030.0
    file.write_text("2")
    await watched.files.poll()
    assert watched.files.status("number") == FileStatus("number", True, 1030.0, "")


async def test_the_old_content_put_back_is_a_success_at_that_time(file: Path) -> None:
    watched = Watched(file)
    watched.files.load_once()
    file.write_text("x")
    await watched.files.poll()

    watched.now = 1040.0
    file.write_text("1")
    await watched.files.poll()

    assert watched.files.status("number") == FileStatus("number", True, 1040.0, "")


# --- reading on demand -----------------------------------------------------------------------


async def test_reload_reads_a_file_that_looks_unchanged(file: Path) -> None:
    watched = Watched(file)
    watched.files.load_once()
    file.write_text("2")
    # As if the file system's clock had not moved between the two writes.
    watched.files._stamp = watched.files._current_stamp()
    assert await watched.files.poll() is False

    assert await watched.files.reload() is True
    assert watched.applied == [1, 2]


async def test_reload_while_a_poll_is_under_way_waits_for_its_turn(file: Path) -> None:
    watched = Watched(file)
    watched.files.load_once()
    file.write_text("2")

    answers = await asyncio.gather(watched.files.poll(), watched.files.reload())

    assert answers == [True, False]
    assert watched.applied == [1, 2]


async def test_reloading_all_tells_which_changed_and_which_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    watched = {}
    for name in ("same", "new", "bad"):
        path = tmp_path / name
        path.write_text("1")
        watched[name] = Watched(path)
        watched[name].files.load_once()
    (tmp_path / "new").write_text("2")
    (tmp_path / "bad").write_text("x")

    statuses = await reload_all({name: one.files for name, one in watched.items()})

    assert [(status.name, status.ok) for status in statuses] == [
        ("same", True),
        ("new", True),
        ("bad", False),
    ]
    [summary] = [record for record in caplog.records if "asked for" in record.message]
    assert summary.fields == {"changed": ["new"], "failed": ["bad"], "files": 3}
