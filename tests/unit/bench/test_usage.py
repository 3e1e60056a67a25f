"""What a process has used."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from bench.usage import Meter, Reading, Used, process_tree


def spin(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def reading(at: int = 0, cpu: int = 0, ticked: int = 0, core: int = 0) -> Reading:
    return Reading(at, cpu, ticked, core)


@pytest.mark.alone
def test_cpu_time_is_counted_over_all_threads() -> None:
    meter = Meter(os.getpid(), core=0)
    ready, done = threading.Event(), threading.Event()

    def work() -> None:
        spin(0.15)
        ready.set()
        done.wait(10)

    before = meter.read()
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(10)
    used = Used.between(before, meter.read())
    done.set()
    thread.join()

    assert 0.14 <= used.cpu_s < 0.4


def test_a_thread_that_ended_still_counts() -> None:
    used = Used.between(reading(), reading(cpu=10_000_000, ticked=500_000_000, at=10**9))

    assert used.cpu_s == 0.5


def test_nanoseconds_win_over_ticks() -> None:
    used = Used.between(reading(), reading(cpu=495_000_000, ticked=510_000_000, at=10**9))

    assert used.cpu_s == 0.495


def test_others_are_what_the_core_did_beyond_the_proxy() -> None:
    used = Used.between(reading(), reading(at=10**9, cpu=3 * 10**8, core=8 * 10**8))

    assert 0.4 < used.others_s <= 0.5


def test_a_tree_holds_the_grandchildren() -> None:
    script = "import subprocess, sys; subprocess.run(['sleep', '30'])"
    with subprocess.Popen([sys.executable, "-c", script]) as child:
        try:
            deadline = time.monotonic() + 10
            while len(tree := process_tree(child.pid)) < 2 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert tree[0] == child.pid
            assert len(tree) == 2
            assert tree[1] not in process_tree(tree[1])[1:]
        finally:
            for pid in reversed(process_tree(child.pid)):
                os.kill(pid, 9)


@pytest.mark.alone
def test_memory_grows_with_what_is_held() -> None:
    meter = Meter(os.getpid(), core=0)

    before = meter.memory_bytes()
    held = bytearray(os.urandom(30_000_000))
    grown = meter.memory_bytes() - before

    assert 25_000_000 < grown < 40_000_000
    assert len(held) == 30_000_000
