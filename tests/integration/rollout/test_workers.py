"""Several workers behind one port: one that dies takes only its own with it, and all end together."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from router.app import supervisor as module
from router.app.stop import Stop
from router.app.supervisor import Supervisor
from router.settings import load
from tests.fakes.router_process import RouterProcess, router
from tests.integration.proxy.messages import request
from tests.integration.proxy.wire import CutShortError, Wire, dial, until
from tests.integration.rollout.load import Load
from tests.integration.rollout.replicas import ended
from tests.integration.rollout.sandbox import Sandbox, sandbox

HELD = 24


@contextlib.asynccontextmanager
async def two_workers(table: Path, *more: str):
    flags = ("--auth=none", "--discovery=file", f"--sandboxes-file={table}", "--workers=2", *more)
    async with router(*flags) as running:
        await running.until_ready()
        yield running


@contextlib.asynccontextmanager
async def held_requests(running: RouterProcess, box: Sandbox):
    """Yields connections that each have a request at the sandbox."""
    wires = [await dial(("127.0.0.1", running.http_port)) for _ in range(HELD)]
    try:
        for wire in wires:
            wire.send(request("GET", "/hold"))
        await until(lambda: box.held == HELD, what="every request to reach the sandbox")
        yield wires
    finally:
        for wire in wires:
            wire.close()
        await until(lambda: all(wire.is_over for wire in wires))


def workers_of(running: RouterProcess) -> list[int]:
    """Returns the process ids of the workers."""
    parent = running.process.pid
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def owner(wire: Wire, workers: list[int]) -> int:
    """Returns the worker at the other end of a connection, by what the kernel knows."""
    port = wire.socket.getsockname()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[2].rpartition(":")[2], 16) == port:
            mark = f"socket:[{fields[9]}]"
            for worker in workers:
                for descriptor in Path(f"/proc/{worker}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        if os.readlink(descriptor) == mark:
                            return worker
    raise AssertionError(f"no worker holds the connection from port {port}")


async def test_a_killed_worker_fails_only_the_requests_that_it_carried(tmp_path):
    async with (
        sandbox() as box,
        two_workers(box.write_table(tmp_path)) as running,
        held_requests(running, box) as wires,
    ):
        workers = workers_of(running)
        owners = [owner(wire, workers) for wire in wires]
        victim = owners[0]

        os.kill(victim, signal.SIGKILL)
        box.let_go.set()
        answers = await asyncio.gather(*map(Wire.answer, wires), return_exceptions=True)

    lost = [answer for answer in answers if isinstance(answer, CutShortError)]
    print(f"{HELD} requests open: {HELD - len(lost)} answered, {len(lost)} lost")
    assert [answer in lost for answer in answers] == [worker == victim for worker in owners]
    assert {answer.status for answer in answers if answer not in lost} <= {200}


async def test_a_killed_worker_is_replaced_and_what_comes_meanwhile_is_answered(tmp_path):
    async with sandbox() as box, two_workers(box.write_table(tmp_path)) as running:
        victim, survivor = workers_of(running)

        os.kill(victim, signal.SIGKILL)
        answers = await asyncio.gather(
            *(ask_once(("127.0.0.1", running.http_port)) for _ in range(HELD))
        )
        await running.until_ready()

        assert [answer.status for answer in answers] == [200] * HELD
        assert survivor in workers_of(running)
        assert victim not in workers_of(running)
        assert len(workers_of(running)) == 2


async def test_connections_are_limited_for_all_workers_together_however_they_are_spread(tmp_path):
    async with (
        sandbox() as box,
        two_workers(box.write_table(tmp_path), f"--max-connections={HELD}") as running,
        held_requests(running, box) as wires,  # all of them: split in halves, one half is too small
    ):
        (refused,) = [await dial(("127.0.0.1", running.http_port))]
        told = await refused.answer()
        assert (told.status, told.code) == (503, "overloaded")
        refused.close()
        victim, survivor = workers_of(running)
        owners = [owner(wire, [victim, survivor]) for wire in wires]
        assert set(owners) == {victim, survivor}, "no test of two workers: try again"
        os.kill(victim, signal.SIGKILL)
        await until(lambda: len(set(workers_of(running)) - {victim}) == 2)
        await running.until_ready()
        freed = [await dial(("127.0.0.1", running.http_port)) for _ in range(owners.count(victim))]
        for wire in freed:
            wire.send(request("GET", "/healthz", sandbox=None))
            assert (await wire.answer()).status == 200
            wire.close()


async def test_a_limit_holds_for_all_workers_together(tmp_path):
    limit = HELD // 2
    async with (
        sandbox() as box,
        two_workers(box.write_table(tmp_path), f"--max-requests-per-sandbox={limit}") as running,
    ):
        wires = []
        for _ in range(HELD):
            wire = await dial(("127.0.0.1", running.http_port))
            wire.send(request("GET", "/hold"))
            wires.append(wire)
            if (
                len(wires) <= limit
            ):  # one at a time: two workers that decide at once may go one over
                await until(lambda: box.held == len(wires))
        refused = [await wire.answer() for wire in wires[limit:]]
        assert {answer.status for answer in refused} == {429}
        carriers = {owner(wire, workers_of(running)) for wire in wires[:limit]}
        assert len(carriers) == 2, "no test of two workers: try again"

        victim = owner(wires[0], workers_of(running))
        carried = sum(owner(wire, workers_of(running)) == victim for wire in wires[:limit])
        os.kill(victim, signal.SIGKILL)
        await running.until_ready()
        again, before = [], box.held
        for _ in range(carried):
            again.append(await dial(("127.0.0.1", running.http_port)))
            again[-1].send(request("GET", "/hold"))
            await until(lambda: box.held == before + len(again), what="a dead one's places")
        box.let_go.set()
        for wire in [*wires, *again]:
            wire.close()


async def ask_once(address):
    wire = await dial(address)
    wire.send(request("GET", "/get"))
    try:
        return await wire.answer()
    finally:
        wire.close()


async def test_under_load_only_what_a_killed_worker_carried_fails(tmp_path):
    async with (
        sandbox() as box,
        two_workers(box.write_table(tmp_path)) as running,
        Load(lambda: ("127.0.0.1", running.http_port)) as load,
    ):
        await load.goes_on()
        os.kill(workers_of(running)[0], signal.SIGKILL)
        await running.until_ready()
        await load.goes_on()

    print(load.tally)
    assert len(load.tally.failed) <= 12, "each of the clients had one request under way at most"
    assert all("CutShortError" in failure for failure in load.tally.failed)
    assert load.tally.closes[1006] <= 6


async def test_a_signal_that_reaches_the_workers_too_is_no_second_signal(tmp_path):
    """As systemd and some container runtimes send it: to every process of the group."""
    async with (
        sandbox() as box,
        two_workers(box.write_table(tmp_path), "--shutdown-timeout=20s") as running,
    ):
        async with held_requests(running, box) as wires:
            for process in [running.process.pid, *workers_of(running)]:
                os.kill(process, signal.SIGTERM)
            await until(lambda: any("stopped accepting" in line for line in running.log))
            box.let_go.set()
            answers = [await wire.answer() for wire in wires]

        assert [answer.status for answer in answers] == [200] * HELD
        assert await ended(running) == 0


async def test_a_second_signal_ends_the_workers_at_once(tmp_path):
    async with (
        sandbox() as box,
        two_workers(
            box.write_table(tmp_path), "--drain-delay=60s", "--shutdown-timeout=60s"
        ) as running,
    ):
        running.process.terminate()
        await until(lambda: any("draining" in line for line in running.log))
        running.process.terminate()

        assert await ended(running) == 0


async def test_a_worker_that_is_just_being_started_is_stopped_like_the_others(
    tmp_path, monkeypatch
):
    started = []
    stop = Stop()
    real = asyncio.create_subprocess_exec

    async def start_and_be_asked_to_stop(*command, **options):
        process = await real(*command, **options)
        started.append(process)
        stop.gently.set()
        await asyncio.sleep(0.1)  # the supervisor tells every worker that it knows of
        return process

    monkeypatch.setattr(module.asyncio, "create_subprocess_exec", start_and_be_asked_to_stop)
    async with sandbox() as box:
        settings = load(
            {
                "auth": "none",
                "discovery": "file",
                "sandboxes-file": str(box.write_table(tmp_path)),
                "workers": "2",
                "http-bind": "127.0.0.1:0",
                "drain-delay": "0",
                "shutdown-timeout": "1s",
            }
        ).settings
        supervisor = Supervisor(settings, own_admin=())
        supervisor.bind()

        async with asyncio.timeout(20):
            code = await supervisor.run(stop)

    assert code == 0
    assert [process.returncode is not None for process in started] == [True, True]
