import asyncio
import errno
import io
import logging
import os
import select
import threading
import time
from types import SimpleNamespace

import pytest

from router.telemetry.line_writer import LineWriter


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    ends = {reader, writer}

    def close(end):
        if end in ends:
            ends.remove(end)
            os.close(end)

    yield reader, writer, close
    while ends:
        close(next(iter(ends)))


def read_until_empty(descriptor):
    found = b""
    while select.select([descriptor], [], [], 0.2)[0]:
        piece = os.read(descriptor, 65536)
        if not piece:
            break
        found += piece
    return found


async def eventually(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


async def test_lines_arrive_whole_and_in_order(tmp_path):
    path = tmp_path / "log"
    with path.open("ab") as file:
        writer = LineWriter(file)
        for number in range(5000):
            writer.write(b"line %d\n" % number)
        await writer.close()

    assert path.read_bytes() == b"".join(b"line %d\n" % number for number in range(5000))
    assert writer.dropped == 0


async def test_a_single_line_arrives_soon_without_more_traffic(pipe):
    reader, descriptor, _ = pipe
    writer = LineWriter(descriptor, batch_interval_s=0.02)

    writer.write(b"alone\n")

    await eventually(lambda: select.select([reader], [], [], 0)[0])
    assert os.read(reader, 100) == b"alone\n"
    await writer.close()


async def test_many_lines_do_not_wait_for_the_interval(pipe):
    reader, descriptor, _ = pipe
    writer = LineWriter(descriptor, batch_bytes=100, batch_interval_s=3600)

    for _ in range(10):
        writer.write(b"0123456789\n")

    await eventually(lambda: select.select([reader], [], [], 0)[0])
    await writer.close()
    assert read_until_empty(reader) == b"0123456789\n" * 10


async def test_a_pipe_that_nobody_empties_stalls_only_its_thread_and_drops_are_counted(pipe):
    reader, descriptor, _ = pipe
    line = b"x" * 1023 + b"\n"
    writer = LineWriter(descriptor, max_pending_bytes=100 * 1024, batch_bytes=10 * 1024)

    begun = time.perf_counter()
    for _ in range(2000):
        writer.write(line)
    took_s = time.perf_counter() - begun

    assert took_s < 1.0
    assert 1500 < writer.dropped < 2000
    kept = 2000 - writer.dropped
    closing = asyncio.get_running_loop().create_task(writer.close(timeout_s=10))
    found = await asyncio.to_thread(read_until_empty, reader)
    await closing
    assert found == line * kept


async def test_closing_ends_at_its_deadline_and_counts_what_is_left(pipe, caplog):
    reader, descriptor, _ = pipe
    os.set_blocking(reader, False)
    writer = LineWriter(descriptor)
    for _ in range(300):
        writer.write(b"x" * 1023 + b"\n")

    begun = time.perf_counter()
    with caplog.at_level(logging.WARNING, logger="sandbox_router.server"):
        await writer.close(timeout_s=0.2)

    assert time.perf_counter() - begun < 1.0
    assert writer.dropped > 0
    assert [record.message for record in caplog.records] == ["log lines were dropped"]
    # The thread is a daemon; here it is let go so that it doesn't outlive the test.
    await asyncio.to_thread(read_until_empty, reader)
    await eventually(lambda: no_writer_thread_runs())


def no_writer_thread_runs():
    return not any(thread.name == "line-writer" for thread in threading.enumerate())


async def test_a_reader_that_left_is_said_once_and_every_line_counts(pipe, caplog):
    reader, descriptor, close = pipe
    close(reader)
    writer = LineWriter(descriptor, batch_bytes=1)

    with caplog.at_level(logging.INFO, logger="sandbox_router.server"):
        for _ in range(50):
            writer.write(b"lost\n")
        await writer.close()

    assert writer.dropped == 50
    said = [record.message for record in caplog.records]
    assert said == ["log lines can't be written", "log lines were dropped"]


async def test_a_full_disk_is_said_once(caplog):
    with open("/dev/full", "wb", buffering=0) as full:
        writer = LineWriter(full, batch_bytes=1)
        with caplog.at_level(logging.ERROR, logger="sandbox_router.server"):
            writer.write(b"one\n")
            writer.write(b"two\n")
            await eventually(lambda: writer.dropped == 2)
        await writer.close()

    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert os.strerror(errno.ENOSPC) in record.fields["error"]


class FullForAWhile:
    """A file object that refuses writes while `is_full`."""

    def __init__(self):
        self.is_full = True
        self.written = b""

    def fileno(self):
        raise io.UnsupportedOperation

    def write(self, data):
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.written += data
        return len(data)

    def flush(self):
        pass


async def test_writing_goes_on_when_there_is_room_again_and_that_is_said(caplog):
    sink = FullForAWhile()
    writer = LineWriter(sink, batch_bytes=1)

    with caplog.at_level(logging.INFO, logger="sandbox_router.server"):
        writer.write(b"lost\n")
        await eventually(lambda: writer.dropped == 1)
        sink.is_full = False
        writer.write(b"kept\n")
        await eventually(lambda: sink.written)
        await writer.close()

    assert sink.written == b"kept\n"
    assert "log lines are written again" in [record.message for record in caplog.records]


async def test_a_line_that_a_full_disk_broke_does_not_join_the_next_one(monkeypatch, tmp_path):
    path = tmp_path / "log"
    real_write = os.write
    outcomes = iter([3, OSError(errno.ENOSPC, "no space")])

    def write_a_part_then_fail(descriptor, data):
        outcome = next(outcomes, None)
        if isinstance(outcome, OSError):
            raise outcome
        return real_write(descriptor, data[:outcome])

    with path.open("ab") as file:
        writer = LineWriter(file, batch_bytes=1)
        monkeypatch.setattr(os, "write", write_a_part_then_fail)
        writer.write(b"broken\n")
        await eventually(lambda: writer.dropped == 1)
        writer.write(b"whole\n")
        await writer.close()

    assert path.read_bytes() == b"bro\nwhole\n"


async def test_a_descriptor_that_somebody_made_non_blocking_still_gets_everything(pipe):
    reader, descriptor, _ = pipe
    os.set_blocking(descriptor, False)
    writer = LineWriter(descriptor)
    line = b"x" * 999 + b"\n"

    for _ in range(500):
        writer.write(line)
    closing = asyncio.get_running_loop().create_task(writer.close(timeout_s=10))
    found = await asyncio.to_thread(read_until_empty, reader)
    await closing

    assert found == line * 500
    assert writer.dropped == 0


async def test_writes_to_a_pipe_are_small_enough_not_to_mix_with_other_workers(monkeypatch, pipe):
    reader, descriptor, _ = pipe
    sizes = []
    real_write = os.write

    def recording_write(target, data):
        sizes.append(len(data))
        return real_write(target, data)

    monkeypatch.setattr(os, "write", recording_write)
    writer = LineWriter(descriptor)
    for _ in range(100):
        writer.write(b"x" * 299 + b"\n")
    await writer.close()

    assert max(sizes) <= select.PIPE_BUF
    assert all(size % 300 == 0 for size in sizes)
    assert read_until_empty(reader) == (b"x" * 299 + b"\n") * 100


async def test_writes_to_a_file_are_large(monkeypatch, tmp_path):
    sizes = []
    real_write = os.write

    def recording_write(target, data):
        sizes.append(len(data))
        return real_write(target, data)

    monkeypatch.setattr(os, "write", recording_write)
    with (tmp_path / "log").open("wb") as file:
        writer = LineWriter(file, batch_bytes=60_000)
        for _ in range(1000):
            writer.write(b"x" * 299 + b"\n")
        await writer.close()

    assert sizes == [60_000] * 5


async def test_writes_to_the_pipe_of_standard_error_are_small_too(monkeypatch, pipe):
    reader, descriptor, _ = pipe
    monkeypatch.setattr("router.telemetry.line_writer.STDERR", descriptor)
    sizes = []
    real_write = os.write

    def recording_write(target, data):
        sizes.append(len(data))
        return real_write(target, data)

    monkeypatch.setattr(os, "write", recording_write)
    writer = LineWriter(descriptor, is_shared=False)
    for _ in range(100):
        writer.write(b"x" * 299 + b"\n")
    await writer.close()

    assert max(sizes) <= select.PIPE_BUF
    assert read_until_empty(reader).count(b"\n") == 100


def test_what_is_put_is_written_without_a_loop(tmp_path):
    path = tmp_path / "log"
    with path.open("ab") as file:
        writer = LineWriter(file)
        writer.put(b"one\n")
        writer.flush()
        assert path.read_bytes() == b"one\n"

        writer.put(b"two\n")
        writer.end()
        writer.put(b"late\n")

    assert path.read_bytes() == b"one\ntwo\n"
    assert writer.dropped == 1
    assert no_writer_thread_runs()


def no_new_threads(monkeypatch):
    """As in the interpreter's shutdown."""

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_what_the_interpreters_shutdown_says_is_written_without_a_thread(monkeypatch, pipe):
    reader, descriptor, _ = pipe
    no_new_threads(monkeypatch)
    writer = LineWriter(descriptor)

    writer.put(b"the last words\n")
    writer.end()

    assert read_until_empty(reader) == b"the last words\n"
    assert writer.dropped == 0


def test_what_the_shutdown_says_is_dropped_where_nobody_reads(monkeypatch, pipe):
    _, descriptor, _ = pipe
    monkeypatch.setattr("router.telemetry.line_writer._POLL_MS", 10)
    no_new_threads(monkeypatch)
    os.set_blocking(descriptor, False)
    try:
        while True:
            os.write(descriptor, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(descriptor, True)
    writer = LineWriter(descriptor)

    writer.put(b"the last words\n")
    writer.end()

    assert writer.dropped == 1


def test_a_slow_reader_gets_everything_at_the_end(monkeypatch, pipe):
    reader, descriptor, close = pipe
    line = b"x" * 1023 + b"\n"
    writer = LineWriter(descriptor)
    for _ in range(300):
        writer.put(line)
    found, now = [], [0.0]

    def read_a_little_each_second():
        done = writer._done_bytes
        if select.select([reader], [], [], 0)[0]:
            found.append(os.read(reader, 16 * 1024))
        while writer._done_bytes == done < writer._handed_bytes:
            time.sleep(0.001)
        now[0] += 1.0
        return now[0]

    clock = SimpleNamespace(monotonic=read_a_little_each_second)
    monkeypatch.setattr("router.telemetry.line_writer.time", clock)
    monkeypatch.setattr("router.telemetry.line_writer._LONGEST_END_S", 1000.0)
    writer.end(timeout_s=1.5)  # the whole takes longer, each piece doesn't
    close(descriptor)

    assert now[0] > 10
    assert b"".join(found) + read_until_empty(reader) == line * 300
    assert writer.dropped == 0


async def test_a_file_in_memory_will_do():
    sink = io.BytesIO()
    writer = LineWriter(sink)

    writer.write(b"line\n")
    await writer.close()

    assert sink.getvalue() == b"line\n"


async def test_what_a_file_object_still_buffers_comes_first(tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"before\n")
        writer = LineWriter(file)
        writer.write(b"after\n")
        await writer.close()

    assert path.read_bytes() == b"before\nafter\n"


async def test_a_sink_closed_by_its_owner_does_not_redirect_lines_to_its_successor(tmp_path):
    owned = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    writer = LineWriter(owned)
    os.close(owned)
    successor = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)

    assert successor == owned
    writer.write(b"line\n")
    await writer.close()
    os.close(successor)

    assert (tmp_path / "other").read_bytes() == b""
    assert (tmp_path / "log").read_bytes() == b"line\n"


async def test_closing_gives_back_the_descriptor_and_the_thread(tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    with (tmp_path / "log").open("wb") as file:
        used, unused = LineWriter(file), LineWriter(file)
        used.write(b"line\n")
        await used.close()
        await unused.close()
        await used.close()

    assert set(os.listdir("/proc/self/fd")) == before
    assert no_writer_thread_runs()


async def test_a_line_after_the_end_is_dropped_and_counted():
    writer = LineWriter(io.BytesIO())
    await writer.close()

    writer.write(b"late\n")

    assert writer.dropped == 1


async def test_its_repr_says_what_is_pending():
    writer = LineWriter(io.BytesIO())
    writer.write(b"line\n")

    assert repr(writer) == "<LineWriter pending=5B dropped=0 closed=False>"
    await writer.close()
    assert repr(writer) == "<LineWriter pending=0B dropped=0 closed=True>"
