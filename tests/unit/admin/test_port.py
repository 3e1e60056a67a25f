import asyncio
import contextlib
import gzip
import json
import logging
import os
import socket
import time

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from router.admin import port
from router.admin.activity import Seen
from router.admin.explain import Explainer
from router.admin.port import AdminServer
from router.admin.sandbox_listing import listing
from router.auth.chain import AuthenticatorChain
from router.auth.claims import ClaimRules
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.jwt import JwtVerifier
from router.auth.keys import KeyRing
from router.auth.mtls import CertificateAuthenticator, parse_xfcc
from router.auth.policy import CurrentPolicy
from router.auth.static import StaticTokenAuthenticator
from router.proxy.admission import Admission
from router.proxy.options import ProxyOptions
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from router.routing.source import IndexSource
from router.routing.target import TargetParser
from router.telemetry.activity import Activity
from router.telemetry.metrics import Metrics
from router.telemetry.process_metrics import full_snapshot
from tests.unit.auth.tokens import OTHER_SECRET, every_key, sign


class Place:
    """A running admin server with what it shows."""

    def __init__(self):
        self.metrics = Metrics(version="1")
        self.missing = []
        self.noted = []
        self.used = Activity()
        self.index = EndpointIndex(waiting_room=1, waiting_room_per_namespace=1)
        ring = KeyRing()
        ring.replace("test", every_key())
        source = IndexSource(self.index)
        authorizer = GrantAuthorizer(policy=CurrentPolicy())
        admission = Admission(
            targets=TargetParser(
                base_domain="",
                path_prefix="/sandboxes",
                default_port=8888,
                default_namespace="default",
                proxy_timeout_s=180,
            ),
            authenticator=AuthenticatorChain(
                bearer=[
                    JwtVerifier(
                        keys=ring,
                        rules=ClaimRules(None, (), 0.0),
                        is_refused=lambda principal: False,
                        remote=None,
                    ),
                    StaticTokenAuthenticator(tokens=[b"MARKER-static"]),
                ],
                certificate=CertificateAuthenticator(),
            ),
            source=source,
            authorizer=authorizer,
            identity_in_header=parse_xfcc,
            options=ProxyOptions(wait_for_ready_s=10),
        )
        self.explainer = Explainer(
            admission=admission,
            source=source,
            authorizer=authorizer,
            is_own_listener=lambda address, port: False,
            is_draining=lambda: False,
            last_seen=lambda key: None,
            wake_outlook=lambda endpoint: "",
            timeout_s=180.0,
        )
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = self.make_server()

    def make_server(self, **replaced):
        parts = {
            "sockets": [self.socket],
            "snapshot": lambda: full_snapshot(self.metrics),
            "missing": lambda: self.missing,
            "notes": self.notes,
            "explain": self.explainer.explain,
            "sandboxes": self.sandboxes,
            "activity": self.activity,
        }
        return AdminServer(**(parts | replaced))

    async def notes(self):
        return self.noted

    async def activity(self, wanted):
        moment = self.used.moment([], namespace=wanted.namespace, name=wanted.name)
        return Seen(moment.now, 0.0, moment.complete_since, moment.slices())

    async def sandboxes(self, wanted):
        return await listing(self.index, wanted)

    async def raw(self, data):
        """Sends bytes as they are. Returns everything that comes back until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            async with asyncio.timeout(5):
                return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


@pytest.fixture
async def place():
    it = Place()
    async with it.server:
        yield it


@pytest.fixture
async def client(place):
    async with aiohttp.ClientSession(place.url) as session:
        yield session


# --- probes ----------------------------------------------------------------------------------


async def test_it_lives(client):
    async with client.get("/healthz") as response:
        assert response.status == 200
        assert response.content_type == "application/json"
        assert await response.json() == {"status": "ok"}


async def test_it_is_ready_when_nothing_is_missing(client):
    async with client.get("/readyz") as response:
        assert response.status == 200
        assert await response.json() == {"status": "ready"}


async def test_it_says_what_is_missing(client, place):
    place.missing = ["the first list of pods", "the proxy port"]

    async with client.get("/readyz") as response:
        assert response.status == 503
        assert await response.json() == {
            "status": "not ready",
            "missing": ["the first list of pods", "the proxy port"],
        }


@pytest.mark.parametrize("missing", [[], ["the first list of pods"]])
async def test_it_says_what_works_less_well_than_it_could_ready_or_not(client, place, missing):
    place.missing = missing
    place.noted = ["sandboxes in all namespaces: 403; routing by pods alone"]

    async with client.get("/readyz") as response:
        assert response.status == (503 if missing else 200)
        assert (await response.json())["notes"] == place.noted


async def test_what_is_missing_may_have_to_be_asked_for():
    place = Place()

    async def missing():
        return ("worker 2",)

    async with place.make_server(missing=missing):
        answer = await place.raw(b"GET /readyz HTTP/1.0\r\n\r\n")

    assert b" 503 " in answer
    assert b"worker 2" in answer


async def test_the_first_page_lists_the_others(client):
    async with client.get("/") as response:
        text = await response.text()

    assert response.content_type == "text/plain"
    for page in (
        "/metrics",
        "/healthz",
        "/readyz",
        "/debug/route",
        "/debug/sandboxes",
        "/activity",
    ):
        assert page in text


# --- metrics ---------------------------------------------------------------------------------


async def test_metrics_are_text_that_prometheus_reads(client, place):
    place.metrics.counters.upstream_retries = 3

    async with client.get("/metrics") as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {family.name: family for family in parse_text(await response.text())}

    [retries] = families["sandbox_router_upstream_retries"].samples
    assert retries.value == 3
    assert "process_open_fds" in families


async def test_metrics_are_openmetrics_for_those_who_ask(client):
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"

    async with client.get("/metrics", headers={"Accept": accept}) as response:
        assert response.content_type == "application/openmetrics-text"
        assert list(parse_openmetrics(await response.text()))


async def test_metrics_are_compressed_for_those_who_ask(place):
    answer = await place.raw(b"GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")

    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    assert b"sandbox_router_build_info" in gzip.decompress(body)


# --- /activity -------------------------------------------------------------------------------


async def test_the_activity_of_each_sandbox_is_told(place, client):
    for name in ("a", "b"):
        place.used.first_used(
            Endpoint(SandboxRef("team-a", name), "pod", State.READY, sandbox_uid=name), 1.0
        )
    async with client.get("/activity") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/json"
        told = await response.json()
    assert (told["complete"], [entry["name"] for entry in told["sandboxes"]]) == (True, ["a", "b"])
    async with client.get("/activity?namespace=team-a&name=b") as response:
        assert [entry["name"] for entry in (await response.json())["sandboxes"]] == ["b"]
    async with client.get("/activity?since=yesterday") as response:
        assert response.status == 400


async def test_the_activity_of_many_is_compressed_for_whoever_takes_it(place, client):
    for number in range(100):
        ref = SandboxRef("team-a", f"box-{number}")
        place.used.first_used(Endpoint(ref, "pod", State.READY, sandbox_uid=f"{number}"), 1.0)
    async with client.get("/activity") as response:
        assert response.headers["Content-Encoding"] in ("gzip", "deflate")
        assert len((await response.json())["sandboxes"]) == 100


# --- /debug/sandboxes ------------------------------------------------------------------------


def ready(name, **facts):
    return Endpoint(
        ref=SandboxRef("team-a", name),
        uid=f"uid-{name}",
        state=State.READY,
        addresses=("192.0.2.1",),
        **facts,
    )


async def test_the_table_can_be_looked_at(client, place):
    for name in ("b", "a", "c"):
        place.index.upsert(ready(name))

    async with client.get("/debug/sandboxes?namespace=team-a&limit=2") as response:
        found = await response.json()

    assert (found["total"], found["limit"]) == (3, 2)
    assert [entry["name"] for entry in found["sandboxes"]] == ["a", "b"]


async def test_a_filter_that_is_not_understood_is_refused(client):
    async with client.get("/debug/sandboxes?state=dead") as response:
        assert response.status == 400
        assert (await response.json())["code"] == "bad_request"


# --- /debug/route ----------------------------------------------------------------------------


async def test_a_request_is_explained_by_its_own_headers(client, place):
    place.index.upsert(ready("box"))
    token = sign({"sub": "alice", "sandboxes": [{"namespace": "team-a", "name": "box"}]})
    headers = {
        "X-Sandbox-ID": "box",
        "X-Sandbox-Namespace": "team-a",
        "Authorization": f"Bearer {token.decode()}",
    }

    async with client.get("/debug/route", headers=headers) as response:
        assert response.status == 200
        found = await response.json()

    assert found["target"]["name"] == "box"
    assert found["principal"]["subject"] == "alice"
    assert found["decision"]["decision"] == "allowed"
    assert found["endpoint"]["addresses"] == ["192.0.2.1"]
    assert found["outcome"]["code"] == ""


async def test_the_page_answers_200_whatever_the_request_would_get(client):
    async with client.get("/debug/route?name=box") as response:
        assert response.status == 200
        assert (await response.json())["outcome"]["status"] == 401


async def test_an_explanation_never_repeats_a_secret(client, place):
    place.index.upsert(ready("box"))
    grants = [{"namespace": "team-a", "name": "box"}]
    good = sign({"sub": "alice", "sandboxes": grants, "secret": "MARKER"}).decode()
    forged = sign({"sub": "alice"}, key=OTHER_SECRET).decode()
    secrets = {"MARKER", *good.split("."), *forged.split(".")}
    answers = []
    for bearer in (good, forged, "MARKER-static", "MARKER-unknown", "MARKER.MARKER.MARKER"):
        for name in ("box", "unknown", "MARKER"):
            headers = {
                "Authorization": f"Bearer {bearer}",
                "X-Sandbox-Token": bearer,
                "X-Sandbox-Namespace": "team-a",
                "Sec-WebSocket-Protocol": f"v1, sandbox-router.bearer.{bearer}",
                "Cookie": "session=MARKER",
                "Proxy-Authorization": "Basic MARKER",
                "X-Api-Key": "MARKER",
            }
            for query in (
                {"name": name, "path": "/files?token=MARKER"},
                {"path": "/sandboxes/team-a/box/8888/MARKER?token=MARKER"},
                {"name": name, "method": "MARKER"},
            ):
                async with client.get("/debug/route", headers=headers, params=query) as response:
                    answers.append(await response.text())
    basic = {"Authorization": "Basic TUFSS0VS", "X-Forwarded-Client-Cert": "MARKER;;"}
    async with client.get("/debug/route?name=box", headers=basic) as response:
        answers.append(await response.text())

    assert len(answers) == 46
    assert any('"subject": "alice"' in answer for answer in answers)
    assert any('"subject": "static-token"' in answer for answer in answers)
    for answer in answers:
        assert not [secret for secret in (*secrets, "TUFSS0VS") if secret in answer]


async def test_an_explanation_opens_no_connection(client, place):
    with socket.create_server(("127.0.0.1", 0)) as sandbox:
        sandbox.setblocking(False)
        port = sandbox.getsockname()[1]
        place.index.upsert(
            Endpoint(
                ref=SandboxRef("default", "box"),
                uid="u",
                state=State.READY,
                addresses=("127.0.0.1",),
            )
        )
        headers = {"Authorization": "Bearer MARKER-static", "X-Sandbox-Port": str(port)}

        async with client.get("/debug/route?name=box", headers=headers) as response:
            assert (await response.json())["outcome"]["code"] == ""
        await asyncio.sleep(0.05)

        with pytest.raises(BlockingIOError):
            sandbox.accept()


async def test_a_request_with_a_large_token_is_explained(client):
    headers = {"Authorization": "Bearer " + "x" * 40_000}

    async with client.get("/debug/route?name=box", headers=headers) as response:
        assert (await response.json())["outcome"]["code"] == "unauthenticated"


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/nothing", "/metrics/", "/debug", "//metrics", "/%2e%2e/metrics"]
)
async def test_other_pages_are_not_found_in_json(place, path):
    answer = await place.raw(f"GET {path} HTTP/1.0\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.0 404 ")
    assert b'"code": "not_found"' in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
async def test_other_methods_are_refused_in_json(client, method):
    async with client.request(method, "/metrics") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"
        assert (await response.json())["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    "page", ["/", "/metrics", "/healthz", "/readyz", "/debug/sandboxes", "/activity"]
)
async def test_head_has_the_headers_and_no_body(place, page):
    answer = await place.raw(
        f"HEAD {page} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode()
    )

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n")


HOSTILE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\x00\xff" * 100,
    b"GET /\xff\x1b[31m HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"NONSENSE\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nbad header\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 300 + b"\r\n",
    b"CONNECT evil:1 HTTP/1.1\r\nHost: evil:1\r\nConnection: close\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("data", HOSTILE)
async def test_bad_bytes_get_a_short_json_answer_and_no_traceback(place, caplog, data):
    with caplog.at_level(logging.DEBUG):
        answer = await place.raw(data)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1][:1] == b"4"
    assert len(body) < 200
    assert json.loads(body)["code"]
    assert not [record for record in caplog.records if record.exc_info]
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]


@pytest.mark.parametrize(
    "data",
    [b"GET /healthz HTTP/1.0\r\n\r\n", b"GET /nothing HTTP/1.0\r\n\r\n", b"NONSENSE\r\n\r\n"],
)
async def test_no_answer_tells_what_software_this_is(place, data):
    answer = (await place.raw(data)).lower()

    assert b"server: sandbox-router\r\n" in answer
    assert b"python" not in answer
    assert b"aiohttp" not in answer


async def test_a_bug_is_a_500_in_json_with_one_log_line(caplog):
    place = Place()

    async def broken():
        raise ZeroDivisionError("secret detail")

    async with place.make_server(snapshot=broken):
        answer = await place.raw(b"GET /metrics HTTP/1.0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.0 500 ")
    assert b'"code": "internal_error"' in answer
    assert b"secret detail" not in answer
    [record] = caplog.records
    assert (record.message, record.levelno) == ("an admin page failed", logging.ERROR)
    assert record.exc_info


async def test_a_page_that_takes_too_long_is_given_up():
    place = Place()

    async def stuck():
        await asyncio.sleep(3600)

    async with place.make_server(snapshot=stuck, page_timeout_s=0.05):
        answer = await place.raw(b"GET /metrics HTTP/1.0\r\n\r\n")

    assert b" 503 " in answer
    assert b'"code": "timeout"' in answer


async def test_a_compressed_body_is_not_unpacked(client):
    bomb = gzip.compress(b"\0" * 10_000_000)

    async with client.post("/metrics", data=bomb, headers={"Content-Encoding": "gzip"}) as response:
        assert response.status == 405


# --- connections -----------------------------------------------------------------------------


async def test_who_connects_and_says_nothing_is_cut_off(place, monkeypatch):
    monkeypatch.setattr(port, "FIRST_REQUEST_TIMEOUT_S", 0.1)

    assert await place.raw(b"") == b""
    assert await place.raw(b"GET / HT") == b""


async def test_a_client_that_asked_may_stay(place, monkeypatch):
    monkeypatch.setattr(port, "FIRST_REQUEST_TIMEOUT_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    request = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"

    writer.write(request)
    await reader.readuntil(b"}")
    await asyncio.sleep(0.2)
    writer.write(request)

    assert b"HTTP/1.1 200" in await reader.readuntil(b"}")
    writer.close()
    await writer.wait_closed()


HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"


async def connect(place, *, host="127.0.0.1", ask=True):
    """Returns a connection on which one request was answered, or none was made."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port, local_addr=(host, 0))
    if ask:
        writer.write(HEALTHZ)
        await reader.readuntil(b"}\n")
    return reader, writer


async def close(*connections):
    for _, writer in connections:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_idle_connections_give_way_to_a_probe_the_longest_idle_first(place, monkeypatch):
    monkeypatch.setattr(port, "MAX_CONNECTIONS", 3)
    idle = [await connect(place) for _ in range(3)]

    for number in range(3):
        assert b" 200 " in await place.raw(b"GET /healthz HTTP/1.0\r\n\r\n")
        if number == 0:
            assert await idle[0][0].read() == b"", "the longest idle one"

    for reader, writer in idle[1:]:
        writer.write(HEALTHZ)
        assert b" 200 " in await reader.readuntil(b"}\n"), "one place is enough for probes"
    await close(*idle)


async def test_connections_that_never_ask_give_way_too(place, monkeypatch):
    monkeypatch.setattr(port, "MAX_CONNECTIONS", 3)
    silent = [await connect(place, ask=False) for _ in range(3)]

    assert b" 200 " in await place.raw(b"GET /healthz HTTP/1.0\r\n\r\n")

    await close(*silent)


async def test_whoever_holds_most_idle_connections_gives_way_first(place, monkeypatch):
    monkeypatch.setattr(port, "MAX_CONNECTIONS", 3)
    scraper = await connect(place, host="127.0.0.2")
    crowd = [await connect(place) for _ in range(2)]

    newcomers = [await connect(place) for _ in range(2)]

    reader, writer = scraper
    writer.write(HEALTHZ)
    assert b" 200 " in await reader.readuntil(b"}\n")
    assert [await reader.read() for reader, _ in crowd] == [b"", b""]
    await close(scraper, *crowd, *newcomers)


async def test_while_every_connection_is_answered_a_newcomer_is_closed(place, monkeypatch):
    monkeypatch.setattr(port, "MAX_CONNECTIONS", 2)
    release = asyncio.Event()
    asked = []

    async def slow_snapshot():
        asked.append(True)
        await release.wait()
        return {}

    monkeypatch.setattr(place.server, "_snapshot", slow_snapshot)
    busy = [await connect(place, ask=False) for _ in range(2)]
    for _, writer in busy:
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    async with asyncio.timeout(5):
        while len(asked) < 2:
            await asyncio.sleep(0.01)

    assert await place.raw(b"") == b""
    release.set()
    for reader, _ in busy:
        assert b" 200 " in await reader.read()
    await close(*busy)


async def test_starting_and_stopping_twice_does_no_harm(place):
    await place.server.start()
    assert repr(place.server) == "<AdminServer serving>"
    assert b" 200 " in await place.raw(b"GET /healthz HTTP/1.0\r\n\r\n")

    await place.server.stop()
    await place.server.stop()

    assert repr(place.server) == "<AdminServer stopped>"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", place.port)


async def test_stopping_does_not_wait_for_idle_clients():
    place = Place()
    before = len(os.listdir("/proc/self/fd"))
    await place.server.start()
    idle = await asyncio.open_connection("127.0.0.1", place.port)
    asked = await asyncio.open_connection("127.0.0.1", place.port)
    asked[1].write(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
    await asked[0].readuntil(b"}\n")

    begun = time.perf_counter()
    await place.server.stop()

    assert time.perf_counter() - begun < 2
    for reader, writer in (idle, asked):
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert len(os.listdir("/proc/self/fd")) < before + 1


async def test_several_addresses_are_served_by_one_server():
    place = Place()
    other = socket.create_server(("127.0.0.1", 0))
    port = other.getsockname()[1]

    async with place.make_server(sockets=[place.socket, other]):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
        assert b" 200 " in await place.raw(b"GET /healthz HTTP/1.0\r\n\r\n")


async def test_what_does_not_work_any_more_fails_the_liveness_probe(unused_tcp_port):
    async def ailing():
        return ["worker 0 has not answered for 4 s"]

    sock = socket.create_server(("127.0.0.1", unused_tcp_port))
    nothing = lambda *asked: None  # noqa: E731
    admin = AdminServer(
        sockets=[sock],
        snapshot=nothing,
        missing=nothing,
        notes=nothing,
        explain=nothing,
        sandboxes=nothing,
        activity=nothing,
        health=ailing,
    )
    url = f"http://127.0.0.1:{unused_tcp_port}/healthz"
    async with admin, aiohttp.ClientSession() as client, client.get(url) as response:
        assert response.status == 503
        assert (await response.json())["failing"] == ["worker 0 has not answered for 4 s"]
