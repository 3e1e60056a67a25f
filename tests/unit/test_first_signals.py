"""A process 1 that is told to end before it has done anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENDED_BY_SIGTERM = 128 + 15

SIGNALLED = """
import os, signal
own = os.getpid()
if {pretends}:
    os.getpid = lambda: 1
import router
os.kill(own, signal.SIGTERM)
print("lost")
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_process_1_is_ended_by_sigterm_as_soon_as_anything_of_ours_is_imported() -> None:
    ended = run(sys.executable, "-c", SIGNALLED.format(pretends=True))
    assert (ended.returncode, ended.stdout, ended.stderr) == (ENDED_BY_SIGTERM, "", "")


def test_any_other_process_keeps_the_actions_that_it_has() -> None:
    assert run(sys.executable, "-c", SIGNALLED.format(pretends=False)).returncode == -15


def test_so_it_is_in_a_namespace_of_its_own_where_the_kernel_drops_what_nobody_handles() -> None:
    alone = ("unshare", "--pid", "--fork", sys.executable, "-c")
    try:
        possible = run(*alone, "import os; print(os.getpid())").stdout == "1\n"
    except OSError:
        possible = False
    if not possible:
        pytest.skip("no PID namespace may be made here")
    ended = run(*alone, SIGNALLED.format(pretends=False))
    assert (ended.returncode, ended.stdout) == (ENDED_BY_SIGTERM, "")


def test_a_signal_that_was_held_back_until_now_is_heard() -> None:
    held = "import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})"
    sent = "os.kill(os.getpid(), signal.SIGTERM)"
    ended = run(sys.executable, "-c", f"{held}; {sent}; import router; print('lost')")
    assert (ended.returncode, ended.stdout) == (-15, "")
