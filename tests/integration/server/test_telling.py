"""What a running router tells about its requests: explanations that come true, lines and numbers that agree."""

import asyncio
import contextlib
import json
import sys
import time

import jwt
import pytest
from prometheus_client.parser import text_string_to_metric_families

SECRET = "0123456789abcdef" * 3
DEADLINE_S = 30.0

SANDBOXES = """
sandboxes:
  - {{name: box, namespace: team-a, host: 127.0.0.1, ports: {{8888: {port}}}, uid: pod-1}}
  - {{name: starting, namespace: team-a, host: 127.0.0.1, state: starting}}
  - {{name: suspended, namespace: team-a, host: 127.0.0.1, state: suspended}}
  - {{name: finished, namespace: team-a, host: 127.0.0.1, state: finished}}
  - {{name: mirror, namespace: team-a, host: 127.0.0.1, ports: {{8888: {own_port}}}}}
"""


def token(*names, **claims):
    grants = [{"namespace": "team-a", "name": name, "ports": [8888]} for name in names]
    body = {"sub": "alice", "exp": int(time.time()) + 600, "sandboxes": grants, **claims}
    return "Bearer " + jwt.encode(body, SECRET, algorithm="HS256")


async def answer_ok(reader, writer):
    """A sandbox: reads each request's head and says ok."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    writer.close()


class Router:
    """A running router process."""

    def __init__(self, process, facts):
        self.process = process
        self.proxy = facts["http"][0].rpartition(":")[2]
        self.admin = facts["admin"][0].rpartition(":")[2]

    async def ask(self, port, method, target, headers):
        """Returns status, headers (lower case) and body of one request on a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        lines = [f"{method} {target} HTTP/1.1", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in ({"Host": "router"} | headers).items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(DEADLINE_S):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        status, *fields = head.decode().split("\r\n")
        found = dict(field.split(": ", 1) for field in fields)
        return int(status.split()[1]), {k.lower(): v for k, v in found.items()}, body

    async def end(self):
        """Returns everything that was written to standard output."""
        self.process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            output, _ = await self.process.communicate()
        return output


@contextlib.asynccontextmanager
async def running(tmp_path):
    sandbox = await asyncio.start_server(answer_ok, "127.0.0.1", 0)
    port = sandbox.sockets[0].getsockname()[1]
    table, secret, shared = (tmp_path / name for name in ("sandboxes.yaml", "secret", "token"))
    table.write_text(SANDBOXES.format(port=port, own_port=port))
    secret.write_text(SECRET)
    shared.write_text("shared-static-token")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "serve", "--discovery=file", "--auth=jwt,static"),
        *("--http-bind=127.0.0.1:0", "--admin-bind=127.0.0.1:0", "--path-prefix=/sandboxes"),
        *("--wait-for-ready=200ms", "--drain-delay=0", f"--sandboxes-file={table}"),
        *(f"--jwt-secret-file={secret}", f"--static-token-file={shared}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            facts = {}
            while "admin" not in facts:
                line = await process.stderr.readline()
                assert line, "it ended before it listened"
                facts = json.loads(line)
        router = Router(process, facts)
        # The mirror's port is the router's own: it must refuse to call itself.
        table.write_text(SANDBOXES.format(port=port, own_port=router.proxy))
        await until_listed(router, int(router.proxy))
        yield router
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
        sandbox.close()


async def until_listed(router, mirror_port):
    async with asyncio.timeout(DEADLINE_S):
        ports = {}
        while ports.get("8888") != mirror_port:
            await asyncio.sleep(0.1)
            with contextlib.suppress(ConnectionError):
                _, _, body = await router.ask(
                    router.admin, "GET", "/debug/sandboxes?name=mirror", {}
                )
                ports = json.loads(body)["sandboxes"][0]["ports"]


IN_TEAM_A = {"X-Sandbox-Namespace": "team-a"}


def cases():
    everything = token("*")
    mine = token("box")
    for name in ("box", "starting", "suspended", "finished", "missing", "mirror"):
        yield (
            f"{name}, allowed",
            "GET",
            "/",
            {**IN_TEAM_A, "X-Sandbox-ID": name, "Authorization": everything},
        )
        yield (
            f"{name}, for box alone",
            "GET",
            "/",
            {**IN_TEAM_A, "X-Sandbox-ID": name, "Authorization": mine},
        )
    box = {**IN_TEAM_A, "X-Sandbox-ID": "box"}
    yield "by path", "GET", "/sandboxes/team-a/box/8888/x", {"Authorization": mine}
    yield "by path, another port", "GET", "/sandboxes/team-a/box/9999/x", {"Authorization": mine}
    yield "by path, malformed", "GET", "/sandboxes/team-a/Box/8888/x", {"Authorization": mine}
    yield "nothing named", "GET", "/", {"Authorization": mine}
    yield "health check", "GET", "/healthz", {}
    yield "no credential", "GET", "/", box
    yield "expired", "GET", "/", {**box, "Authorization": token("box", exp=1)}
    yield "forged", "GET", "/", {**box, "Authorization": mine[:-4] + "AAAA"}
    yield "static", "GET", "/", {**box, "X-Sandbox-Token": "shared-static-token"}
    yield (
        "two credentials, one bad",
        "GET",
        "/",
        {
            **box,
            "Authorization": mine,
            "Sec-WebSocket-Protocol": "sandbox-router.bearer.bad",
        },
    )
    yield "uid", "GET", "/", {**box, "Authorization": mine, "X-Sandbox-UID": "pod-1"}
    yield "another uid", "GET", "/", {**box, "Authorization": mine, "X-Sandbox-UID": "pod-0"}
    yield "bad port", "GET", "/", {**box, "Authorization": mine, "X-Sandbox-Port": "8_888"}
    yield (
        "loopback hint",
        "GET",
        "/",
        {**box, "Authorization": mine, "X-Sandbox-Pod-IP": "127.0.0.1"},
    )
    yield "TRACE", "TRACE", "/", {**box, "Authorization": mine}


@pytest.mark.timeout(120)
async def test_every_explanation_comes_true_and_is_told_in_lines_and_numbers(tmp_path):
    wrong = []
    statuses = []
    async with running(tmp_path) as router:
        for what, method, target, headers in cases():
            explained = await explanation(router, method, target, headers)
            status, fields, _ = await router.ask(router.proxy, method, target, headers)
            statuses.append(status)
            code = fields.get("x-sandbox-router-error", "")
            expected = explained["outcome"]
            if (expected["status"] or 200, expected["code"]) != (status, code):
                wrong.append(f"{what}: explained {expected}, was {status} {code}")
        _, _, metrics = await router.ask(router.admin, "GET", "/metrics", {})
        output = await router.end()

    assert wrong == []
    assert len(set(statuses)) >= 9
    assert statuses_of_lines(output) == statuses
    assert requests_counted(metrics.decode()) == len(statuses)
    assert SECRET.encode() not in output
    assert b"shared-static-token" not in output


async def explanation(router, method, target, headers):
    query = f"/debug/route?method={method}&path={target}"
    status, _, body = await router.ask(router.admin, "GET", query, headers)
    assert status == 200
    return json.loads(body)


def statuses_of_lines(output):
    return [json.loads(line)["status"] for line in output.splitlines()]


def requests_counted(text):
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "sandbox_router_requests_total"
    )
