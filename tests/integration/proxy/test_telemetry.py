"""What is told of each kind of end: one line in the access log, and the numbers."""

from router.routing.endpoint import State
from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import bound_socket, serving
from tests.integration.proxy.upgrades import opened
from tests.integration.proxy.wire import settled, until

CHUNKED = ("Transfer-Encoding", "chunked")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


async def only_line(router):
    """Returns the one line that was logged, once its request has ended."""
    await router.outcome()
    lines = await router.log_lines()
    assert len(lines) == 1, lines
    assert router.metric("inflight_requests") == 0
    assert router.metric("open_tunnels") == 0
    return lines[0]


async def test_an_answer(router, pod):
    headers = [("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01")]
    async with serving(pod, lambda _: answer(201, body=b"made")):
        await router.ask(request("POST", "/a/b?secret=1", *headers, body=b"hello"))
    line = await only_line(router)
    durations = {"total_s", "connect_s", "first_byte_s"}
    assert {name: line[name] for name in line.keys() - durations - {"time"}} == {
        "method": "POST",
        "path": "/a/b",
        "status": 201,
        "code": "",
        "wait_s": None,
        "bytes_from_client": 5,
        "bytes_to_client": 4,
        "client": "127.0.0.1",
        "principal": line["principal"],
        "namespace": "default",
        "sandbox": "box",
        "port": 8888,
        "pod_uid": "pod-1",
        "trace_id": TRACE,
        "retries": 0,
        "upstream_error": "",
    }
    assert all(0 < line[name] < 10 for name in durations)
    assert "let-me-in" not in str(line)
    assert router.metric("requests_total", "POST", "201", "default") == 1
    assert router.metric("request_duration_seconds", "POST", "201", "default") == 1
    assert router.metric("bytes_total", "from_client") == 5
    assert router.metric("bytes_total", "to_client") == 4
    assert router.metric("authz_decisions_total", "default", "allow") == 1
    assert router.metric("connect_duration_seconds", "connected") == 1


async def test_an_answer_on_a_reused_connection_has_no_connect_time(router, pod):
    async with serving(pod):
        await router.ask(request())
        await router.ask(request())
    assert (await router.outcome(2)).connect_s is None
    assert router.metric("connect_duration_seconds", "connected") == 1


async def test_a_health_check(router):
    await router.ask(request("GET", "/healthz", sandbox=None))
    line = await only_line(router)
    assert (line["status"], line["code"], line["sandbox"]) == (200, "", "")
    assert router.metric("requests_total", "GET", "200", "unknown") == 1


async def test_an_unauthenticated_request(router):
    await router.ask(request(token="wrong"))
    line = await only_line(router)
    assert (line["status"], line["code"], line["principal"]) == (401, "unauthenticated", "")
    assert router.metric("authz_decisions_total", "unknown", "unauthenticated") == 1
    assert router.metric("router_errors_total", "unauthenticated") == 1


async def test_an_unknown_sandbox_makes_no_series_of_its_own(router):
    await router.ask(request("GET", "/", ("X-Sandbox-Namespace", "evil"), sandbox="no"))
    line = await only_line(router)
    assert (line["status"], line["namespace"], line["sandbox"]) == (404, "evil", "no")
    assert router.metric("requests_total", "GET", "404", "unknown") == 1
    assert router.metric("requests_total", "GET", "404", "evil") == 0


async def test_an_invented_method_makes_no_series_of_its_own(router, pod):
    async with serving(pod, lambda _: answer(799)):
        await router.ask(request("EVIL"))
    line = await only_line(router)
    assert (line["method"], line["status"]) == ("EVIL", 799)
    assert router.metric("requests_total", "other", "other", "default") == 1


async def test_bytes_that_are_no_request(router):
    client = await router.connect()
    client.send(b'N\xff"\x1b HT\r\n\r\n')
    await client.answer()
    line = await only_line(router)
    assert (line["status"], line["code"]) == (400, "bad_request")
    assert "\x1b" not in line["path"] + line["method"]


async def test_a_client_that_left_before_an_answer(router, pod):
    client = await router.connect()
    client.send(request())
    await (await pod.accept()).request()
    client.close()
    line = await only_line(router)
    assert (line["status"], line["code"], line["upstream_error"]) == (499, "client_closed", "")
    assert router.metric("requests_total", "GET", "499", "default") == 1


async def test_a_client_that_left_inside_an_answer(router, pod):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(200, ("Content-Length", "100")), b"12345")
    await client.head()
    client.close()
    line = await only_line(router)
    assert (line["status"], line["code"], line["bytes_to_client"]) == (200, "client_closed", 5)


async def test_an_answer_cut_short(router, pod):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(200, CHUNKED), b"5\r\n12345\r\n")
    await client.head()
    sandbox.close()
    line = await only_line(router)
    assert (line["status"], line["code"], line["bytes_to_client"]) == (200, "response_cut", 5)
    assert line["error_reason"] != ""
    assert router.metric("upstream_errors_total", "default", "response_cut") == 1


async def test_a_broken_answer(router, pod):
    async with serving(pod, lambda _: b"nonsense\r\n\r\n"):
        await router.ask(request())
    line = await only_line(router)
    assert (line["status"], line["code"]) == (502, "bad_response")
    assert router.metric("upstream_errors_total", "default", "bad_response") == 1


async def test_a_sandbox_that_closed_before_its_answer(router, pod):
    client = await router.connect()
    client.send(request("POST", "/"))
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.close()
    await client.answer()
    line = await only_line(router)
    assert (line["status"], line["upstream_error"]) == (502, "closed_early")
    assert router.metric("upstream_errors_total", "default", "closed_early") == 1


async def test_a_sandbox_out_of_reach(router):
    with bound_socket() as closed:
        router.knows(port=closed.getsockname()[1])
        client = await router.connect()
        client.send(request())
        await until(lambda: router.metric("upstream_retries_total") > 0)
        router.pass_time(3)
        await client.answer()
    line = await only_line(router)
    assert (line["status"], line["code"]) == (502, "sandbox_unreachable")
    assert line["upstream_error"] == "connect_refused"
    assert line["retries"] == router.metric("upstream_retries_total") >= 1


async def test_a_sandbox_that_was_too_slow(start_router, pod):
    router = await start_router(proxy_timeout_s=60)
    router.knows(pod)
    client = await router.connect()
    client.send(request())
    await (await pod.accept()).request()
    router.pass_time(61)
    await client.answer()
    line = await only_line(router)
    assert (line["status"], line["upstream_error"]) == (504, "response_timeout")
    assert line["total_s"] >= 61


async def test_a_sandbox_that_was_waited_for(router, pod):
    router.knows(pod, state=State.STARTING)
    client = await router.connect()
    client.send(request())
    await until(lambda: router.index.waiting() == 1)
    router.knows(pod)
    async with serving(pod):
        await client.answer()
    line = await only_line(router)
    assert (line["status"], line["wait_s"] > 0) == (200, True)


async def test_a_tunnel(router, pod):
    client, sandbox = await opened(router, pod, protocol="other")
    assert router.metric("open_tunnels") == 1
    assert router.metric("inflight_requests") == 1
    client.send(b"12345")
    await sandbox.read(5)
    sandbox.send(b"123")
    await client.read(3)
    sandbox.close()
    await client.end()
    client.close()
    line = await only_line(router)
    assert (line["status"], line["code"]) == (101, "")
    assert (line["bytes_from_client"], line["bytes_to_client"]) == (5, 3)
    assert router.metric("requests_total", "GET", "101", "default") == 1


async def test_connections_are_counted_while_they_are_open(router):
    clients = [await router.connect() for _ in range(3)]
    await until(lambda: router.metric("client_connections") == 3)
    clients[0].close()
    await until(lambda: router.metric("client_connections") == 2)


async def test_a_request_is_in_flight_from_its_head_to_its_last_byte(router, pod):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    assert router.metric("inflight_requests") == 1
    sandbox.send(answer(200, ("Content-Length", "2")), b"a")
    await client.head()
    await settled()
    assert router.metric("inflight_requests") == 1
    sandbox.send(b"b")
    await client.read(2)
    assert router.metric("inflight_requests") == 0


async def test_every_request_of_a_connection_has_its_line(router, pod):
    client = await router.connect()
    async with serving(pod):
        client.send(*(request("GET", f"/{number}") for number in range(50)))
        for _ in range(50):
            await client.answer()
    lines = await router.log_lines()
    assert [line["path"] for line in lines] == [f"/{number}" for number in range(50)]


async def test_a_client_behind_a_proxy_is_named(start_router, pod):
    router = await start_router(trusted_proxies=("127.0.0.0/8",))
    router.knows(pod)
    async with serving(pod):
        await router.ask(request("GET", "/", ("X-Forwarded-For", "evil, 203.0.113.9")))
    assert (await only_line(router))["client"] == "203.0.113.9"
