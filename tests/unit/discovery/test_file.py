"""File discovery follows the file, and a bad new file changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from router.discovery import file as file_module
from router.discovery.file import FileDiscovery
from router.routing.endpoint import Endpoint, SandboxRef
from router.routing.index import EndpointIndex

BOX = SandboxRef("default", "box")


def listing(host: str = "10.0.0.1", name: str = "box") -> str:
    return f"sandboxes:\n  - name: {name}\n    host: {host}\n"


class Scene:
    """A file, an index, and the discovery between them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = EndpointIndex(waiting_room=8, waiting_room_per_namespace=8)
        self.retired: list[Endpoint] = []
        self.discovery = FileDiscovery(
            path=path, index=self.index, on_retired=self.retired.append, poll_interval_s=0.005
        )

    def host(self) -> str | None:
        endpoint = self.index.find(BOX)
        return endpoint.addresses[0] if endpoint else None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.discovery.run())
            try:
                yield
            finally:
                task.cancel()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    path = tmp_path / "sandboxes.yaml"
    path.write_text(listing())
    return Scene(path)


@pytest.fixture
def settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trusts the times of files that were written just now."""
    monkeypatch.setattr(file_module, "_SETTLED_AFTER_S", 0.0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno == logging.WARNING]


# --- at the start ---------------------------------------------------------------------------


def test_a_good_file_fills_the_table_and_makes_ready(scene: Scene) -> None:
    assert scene.discovery.missing() == [f"the sandboxes file {scene.path} has not been loaded yet"]
    assert not scene.index.is_complete()

    scene.discovery.load_once()

    assert scene.index.is_complete()

    assert scene.host() == "10.0.0.1"
    assert scene.discovery.missing() == []
    assert scene.index.age_s() is not None
    assert scene.discovery.reloads_succeeded == 1


def test_a_bad_file_stops_the_start_with_file_and_line(scene: Scene) -> None:
    scene.path.write_text("sandboxes:\n  - nome: box\n")

    with pytest.raises(ValueError, match=r"sandboxes\.yaml:2: .*did you mean `name`"):
        scene.discovery.load_once()

    assert scene.discovery.missing() != []
    assert scene.index.size() == 0
    assert not scene.index.is_complete()


def test_a_missing_file_stops_the_start_with_its_path(scene: Scene) -> None:
    scene.path.unlink()
    with pytest.raises(ValueError, match=r"sandboxes\.yaml: cannot be read: No such file"):
        scene.discovery.load_once()


# --- while it runs --------------------------------------------------------------------------


async def test_a_changed_file_is_taken_over_and_what_lost_its_route_is_retired(
    scene: Scene,
) -> None:
    scene.discovery.load_once()
    before = scene.index.find(BOX)

    async with scene.running():
        scene.path.write_text(listing("10.0.0.2"))
        await until(lambda: scene.host() == "10.0.0.2")

    assert scene.retired == [before]
    assert scene.discovery.reloads_succeeded == 2


async def test_a_rotated_mount_is_noticed_though_the_files_name_stays(
    tmp_path: Path, settled_at_once: None
) -> None:
    for version, host in (("..v1", "10.0.0.1"), ("..v2", "10.0.0.2")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "sandboxes.yaml").write_text(listing(host))
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "sandboxes.yaml").symlink_to("..data/sandboxes.yaml")
    scene = Scene(tmp_path / "sandboxes.yaml")
    scene.discovery.load_once()

    async with scene.running():
        (tmp_path / "..data_tmp").symlink_to("..v2")
        os.rename(tmp_path / "..data_tmp", tmp_path / "..data")
        await until(lambda: scene.host() == "10.0.0.2")


async def test_two_writes_within_one_tick_of_the_clock_are_both_seen(scene: Scene) -> None:
    scene.discovery.load_once()
    times = os.stat(scene.path)

    async with scene.running():
        scene.path.write_text(listing("10.0.0.3"))
        os.utime(scene.path, ns=(times.st_atime_ns, times.st_mtime_ns))
        await until(lambda: scene.host() == "10.0.0.3")


async def test_a_settled_file_is_not_read_again(
    scene: Scene, settled_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.discovery.load_once()
    synced_at = scene.index.freshness.last_synced_at
    monkeypatch.setattr(file_module, "read_regular", lambda path: pytest.fail("the file was read"))

    async with scene.running():
        await until(lambda: scene.index.freshness.last_synced_at != synced_at)

    assert scene.discovery.reloads_failed == 0


async def test_a_touched_file_of_the_same_content_is_no_reload(scene: Scene) -> None:
    scene.discovery.load_once()
    synced_at = scene.index.freshness.last_synced_at

    async with scene.running():
        scene.path.write_text(listing())
        await until(lambda: scene.index.freshness.last_synced_at != synced_at)

    assert scene.discovery.reloads_succeeded == 1


@pytest.mark.parametrize("broken", ["sandboxes: [", "", "sandboxes:\n  - {name: X, host: h}\n"])
async def test_a_broken_new_file_keeps_the_old_table_in_force_and_is_told_once(
    scene: Scene, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene.discovery.load_once()

    async with scene.running():
        scene.path.write_text(broken)
        await until(lambda: scene.discovery.reloads_failed == 1)
        synced_at = scene.index.freshness.last_synced_at
        await asyncio.sleep(0.05)

        assert scene.host() == "10.0.0.1"
        assert scene.discovery.missing() == []
        assert scene.discovery.reloads_failed == 1
        assert scene.index.freshness.last_synced_at == synced_at
        assert len(warnings(caplog)) == 1

        scene.path.write_text("sandboxes: 7")
        await until(lambda: scene.discovery.reloads_failed == 2)
        scene.path.write_text(listing("10.0.0.2"))
        await until(lambda: scene.host() == "10.0.0.2")

    assert len(warnings(caplog)) == 2
    assert str(scene.path) in warnings(caplog)[0].fields["reason"]
    assert (scene.discovery.reloads_succeeded, scene.discovery.reloads_failed) == (2, 2)


async def test_a_file_that_vanishes_for_a_while_keeps_the_table(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.discovery.load_once()

    async with scene.running():
        scene.path.unlink()
        await until(lambda: scene.discovery.reloads_failed == 1)
        await asyncio.sleep(0.05)
        assert scene.host() == "10.0.0.1"
        assert len(warnings(caplog)) == 1

        scene.path.write_text(listing())
        await until(lambda: scene.discovery.reloads_succeeded == 2)

    assert scene.retired == []


async def test_without_a_first_load_it_becomes_ready_when_the_file_appears(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path / "late.yaml")

    async with scene.running():
        await until(lambda: scene.discovery.reloads_failed == 1)
        assert scene.discovery.missing() != []
        scene.path.write_text(listing())
        await until(lambda: scene.discovery.missing() == [])

    assert scene.host() == "10.0.0.1"


async def test_a_slow_disk_does_not_stall_the_loop(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()
    stat = os.stat

    def slow_stat(path: Path) -> os.stat_result:
        hanging.wait(5)
        return stat(path)

    monkeypatch.setattr(file_module.os, "stat", slow_stat)
    async with scene.running():
        try:
            for _ in range(10):
                async with asyncio.timeout(1):
                    await asyncio.sleep(0)
            assert scene.discovery.missing() != []
        finally:
            hanging.set()
        await until(lambda: scene.discovery.missing() == [])


def test_it_says_its_state(scene: Scene) -> None:
    assert "not read yet" in repr(scene.discovery)
    scene.discovery.load_once()
    assert "reloads=1 failures=0 problem=''" in repr(scene.discovery)


async def test_a_fifo_in_the_files_place_keeps_the_table_and_the_watching(scene: Scene) -> None:
    scene.discovery.load_once()

    async with scene.running():
        scene.path.unlink()
        os.mkfifo(scene.path)
        await until(lambda: scene.discovery.reloads_failed == 1)
        assert scene.host() == "10.0.0.1"
        status = scene.discovery.status("sandboxes")
        assert (status.ok, status.error) == (
            False,
            f"{scene.path}: cannot be read: a FIFO, not a regular file",
        )
        assert status.last_success_unix > 0
        scene.path.unlink()
        scene.path.write_text(listing("10.0.0.2"))
        await until(lambda: scene.host() == "10.0.0.2")

    assert scene.discovery.status("sandboxes").ok


async def test_a_reload_reads_a_file_that_looks_unchanged(scene: Scene) -> None:
    scene.path.write_text(listing("10.0.0.1"))
    scene.discovery.load_once()
    seen = scene.discovery._seen
    assert seen is not None
    before = os.stat(scene.path)
    scene.path.write_text(listing("10.0.0.2"))
    os.utime(scene.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert await scene.discovery.reload()
    assert scene.host() == "10.0.0.2"
    assert not await scene.discovery.reload()
