"""The session as a process: what it prints and returns when it can't go well."""

import os
import signal
import subprocess
import sys
from pathlib import Path

SABOTAGE = """
import os, sys, time
if "router" in sys.orig_argv and "serve" in sys.orig_argv:
    print("no luck today", flush=True)
    {then}
"""
RUN_ONCE = "import sys; from router.demo import run; sys.exit(run(once=True, http_port=0))"


def session(folder: Path, *, then: str) -> subprocess.Popen[str]:
    Path(folder, "sitecustomize.py").write_text(SABOTAGE.format(then=then))
    return subprocess.Popen(
        [sys.executable, "-c", RUN_ONCE],
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_step_that_fails_is_told_and_ends_the_session_with_1(tmp_path):
    with session(tmp_path, then="os._exit(3)") as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out.endswith(
        "FAILED to start the router: it ended with 3\nIts last lines:\n  | no luck today\n"
    )
    assert "Traceback" not in out


def test_a_signal_during_the_start_ends_everything_with_130(tmp_path):
    with session(tmp_path, then="time.sleep(600)") as process:
        assert process.stdout is not None
        while "sandbox echo" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == "Stopped before the demo was done.\n"
