"""The stage: real processes, started in order, ended together."""

import os
import socket
from pathlib import Path

import aiohttp
import pytest
import yaml

from router.demo.child import StepFailed
from router.demo.stage import Launch, Place, Stage, free_port, port_of, write_sandboxes_file

# Stands in the way of one kind of process only, and leaves the rest as they are.
SABOTAGE = """
import os, sys
if {word!r} in sys.orig_argv:
    print("no luck today", flush=True)
    os._exit(3)
"""


def sabotaged(folder: Path, word: str) -> dict[str, str]:
    Path(folder, "sitecustomize.py").write_text(SABOTAGE.format(word=word))
    return {**os.environ, "PYTHONPATH": str(folder)}


def ignore(_line: str) -> None:
    pass


async def test_three_sandboxes_serve_on_the_ports_that_were_returned():
    async with Stage(environment=os.environ, on_router_line=ignore) as stage:
        ports = await stage.start_sandboxes()
        assert list(ports) == ["hello", "ticker", "echo"]
        async with aiohttp.ClientSession() as session:
            response = await session.get(f"http://127.0.0.1:{ports['hello']}/")
            assert response.status == 200
            await response.read()


async def test_nothing_serves_any_more_after_the_stage():
    async with Stage(environment=os.environ, on_router_line=ignore) as stage:
        ports = await stage.start_sandboxes()
    for port in ports.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


async def test_a_sandbox_that_does_not_start_is_named_with_its_last_words(tmp_path):
    environment = sabotaged(tmp_path, "ticker")
    async with Stage(environment=environment, on_router_line=ignore) as stage:
        with pytest.raises(StepFailed) as caught:
            await stage.start_sandboxes()
    assert str(caught.value) == "start sandbox ticker: it ended with 3"
    assert caught.value.lines == ("no luck today",)


async def test_a_router_that_does_not_start_is_named_with_its_last_words(tmp_path):
    environment = sabotaged(tmp_path, "serve")
    async with Stage(environment=environment, on_router_line=ignore) as stage:
        with pytest.raises(StepFailed) as caught:
            await stage.start_router({"hello": 1}, http_port=0)
    assert str(caught.value) == "start the router: it ended with 3"
    assert caught.value.lines == ("no luck today",)


async def test_other_programs_environment_neither_stops_the_router_nor_is_counted_as_its_own(
    tmp_path,
):
    foreign = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "no url",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_SDK_DISABLED": "false",
        "SANDBOX_ROUTER_ADMIN_BIND": "off",
        "PROXY_TIMEOUT_SECONDS": "soon",
    }
    lines: list[str] = []
    async with Stage(environment={**os.environ, **foreign}, on_router_line=lines.append) as stage:
        await stage.start_router({"hello": 1}, http_port=0)
    assert not [line for line in lines if "WARNING" in line or "ERROR" in line]


async def test_the_routers_log_does_not_begin_with_a_warning_where_few_files_may_be_open(tmp_path):
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))\n"
    Path(tmp_path, "sitecustomize.py").write_text(few)
    lines: list[str] = []
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    async with Stage(environment=environment, on_router_line=lines.append) as stage:
        await stage.start_router({"hello": 1}, http_port=0)
    assert not [line for line in lines if "WARNING" in line]


async def test_a_port_that_is_lost_in_the_last_moment_is_replaced(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        first = iter([listener.getsockname()[1]])  # free at the look, taken at the start
        monkeypatch.setattr(
            "router.demo.stage.free_port",
            lambda preferred, **options: next(first, None) or free_port(preferred, **options),
        )
        async with Stage(environment=os.environ, on_router_line=ignore) as stage:
            place = await stage.start_router({"hello": 1}, http_port=0)
            assert place.port != listener.getsockname()[1]
            assert not stage.ending.is_set()


async def test_another_router_on_the_admin_port_is_not_taken_for_ours(monkeypatch):
    async with (
        Stage(environment=os.environ, on_router_line=ignore) as other,
        Stage(environment=os.environ, on_router_line=ignore) as stage,
    ):
        taken = (await other.start_router({"hello": 1}, http_port=0)).admin_port
        looks = iter([0, taken])
        monkeypatch.setattr(
            "router.demo.stage.free_port",
            lambda preferred, **options: next(looks, 0) or free_port(preferred, **options),
        )
        place = await stage.start_router({"hello": 2}, http_port=0)
        assert place.admin_port != taken


async def test_a_process_that_ends_by_itself_ends_the_wait(tmp_path):
    async with Stage(environment=os.environ, on_router_line=ignore) as stage:
        await stage.start_sandboxes()
        os.kill(stage._children[-1].pid, 9)
        with pytest.raises(StepFailed, match="keep sandbox echo running: it ended with -9"):
            await stage.until_ending()


async def test_a_signal_ends_the_wait_quietly():
    async with Stage(environment=os.environ, on_router_line=ignore) as stage:
        stage.ending.set()
        await stage.until_ending()


def test_the_table_of_sandboxes_maps_the_usual_port_to_the_real_one(tmp_path):
    path = tmp_path / "sandboxes.yaml"
    write_sandboxes_file(path, {"hello": 40001})
    assert yaml.safe_load(path.read_text()) == {
        "sandboxes": [
            {"name": "hello", "uid": "sandbox-hello", "host": "127.0.0.1", "ports": {8888: 40001}}
        ]
    }
    write_sandboxes_file(path, {"hello": 40001, "echo": 40002}, suspended="echo")
    hello, echo = yaml.safe_load(path.read_text())["sandboxes"]
    assert "state" not in hello
    assert echo["state"] == "suspended"
    assert [each.name for each in tmp_path.iterdir()] == ["sandboxes.yaml"], "put there at once"


async def test_a_sandbox_that_is_ended_on_purpose_ends_nothing_else():
    async with Stage(environment=os.environ, on_router_line=ignore) as stage:
        child = await stage.start_sandbox("hello")
        await port_of(child)
        await stage.end_sandbox(child)
        assert child.ended.is_set()
        assert not stage.ending.is_set()


def test_a_launch_hides_its_token_and_gives_it_to_the_router_alone():
    launch = Launch()
    assert launch.environment == {"ROUTER_AUTH_TOKEN": launch.token}
    assert launch.token not in " ".join(launch.command(Place(1, 2, launch.token), Path("/file")))
    assert repr(launch) == "<Launch router serve>"


def test_a_free_port_is_the_preferred_one_unless_somebody_listens_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        assert free_port(taken) != taken
    assert free_port(taken) == taken
    assert free_port(taken, but_not=taken) != taken


def test_a_place_hides_its_token():
    assert "secret" not in repr(Place(1, 2, "secret"))
