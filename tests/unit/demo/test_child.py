"""Child: what a process says, how it ends, and that it never stays behind."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest

from router.demo.child import KEPT_LINES, Child, StepFailed

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
ORPHAN = """
import asyncio, sys
from router.demo.child import Child

async def main():
    child = await Child.start("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"], environment={})
    print(child.pid, flush=True)
    await child.watch()

asyncio.run(main())
"""


@asynccontextmanager
async def running(code: str, **options):
    child = await Child.start("it", [sys.executable, "-uc", code], environment={}, **options)
    async with asyncio.TaskGroup() as group:
        group.create_task(child.watch())
        try:
            yield child
        finally:
            await child.stop(grace_s=0.0)


def has_ended(pid: int, *, within_s: float) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], within_s)[0])
    finally:
        os.close(handle)


async def test_a_line_is_returned_once_the_process_has_said_it():
    async with running("print('up'); print('port 42'); input") as child:
        assert await child.line("port ", timeout_s=10) == "42"


async def test_a_process_that_ends_without_its_line_fails_with_its_last_words():
    async with running("raise SystemExit('no such file')") as child:
        with pytest.raises(StepFailed) as caught:
            await child.line("port ", timeout_s=10)
    assert caught.value.why == "it ended with 1"
    assert caught.value.lines == ("no such file",)


async def test_a_silent_process_fails_when_its_time_is_over():
    async with running("import time; time.sleep(600)") as child:
        with pytest.raises(StepFailed, match=r"did not say 'port ' within 0\.05 s"):
            await child.line("port ", timeout_s=0.05)


async def test_only_the_last_lines_are_kept():
    async with running("for n in range(1000): print(n)") as child:
        await child.ended.wait()
    assert list(child.lines) == [str(n) for n in range(1000 - KEPT_LINES, 1000)]


async def test_each_line_is_told_as_it_comes():
    told: list[str] = []
    async with running("print('a'); print('b')", on_line=told.append) as child:
        await child.ended.wait()
    assert told == ["a", "b"]


async def test_bytes_that_are_no_text_do_not_hide_the_rest():
    code = r"import sys; sys.stdout.buffer.write(b'\xff oops\nafter\n')"
    async with running(code) as child:
        assert await child.line("after", timeout_s=10) == ""


async def test_stop_ends_a_willing_process_with_sigterm():
    async with running("import time; print('up'); time.sleep(600)") as child:
        await child.line("up", timeout_s=10)
        await child.stop(grace_s=10)
        assert repr(child) == f"<Child it pid={child.pid} ended -15>"


async def test_stop_kills_a_process_that_ignores_sigterm():
    async with running(STUBBORN + "import time; print('up'); time.sleep(600)") as child:
        await child.line("up", timeout_s=10)
        await child.stop(grace_s=0.05)
        assert repr(child).endswith("ended -9>")


async def test_stop_ends_what_the_process_started_too():
    code = "import subprocess, time; print('pid', subprocess.Popen(['sleep', '600']).pid); time.sleep(600)"
    async with running(code) as child:
        grandchild = int(await child.line("pid ", timeout_s=10))
        await child.stop(grace_s=10)
    assert has_ended(grandchild, within_s=10)


async def test_a_program_that_is_not_there_fails_its_step():
    with pytest.raises(StepFailed, match=r"start it: .*No such file"):
        await Child.start("it", ["/no/such/program"], environment={})


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_child_ends_when_its_parent_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    assert has_ended(child_pid, within_s=10)
