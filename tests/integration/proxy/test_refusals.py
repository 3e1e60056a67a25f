"""Every error that the router makes, by a request that gets it."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from router import errors
from router.auth.authenticator import Authenticated
from router.auth.principal import Principal
from router.error_table import every_error
from router.routing.endpoint import State
from tests.fakes.deciders import DecidesEachTime
from tests.integration.proxy.faults import dialling_fails
from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import bound_socket, serving
from tests.integration.proxy.wire import until


@dataclass(frozen=True)
class Case:
    """A way to an error: what is sent to a router of these settings that knows these facts of the sandbox."""

    raw: bytes
    detail: str | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    facts: tuple[tuple[str, Any], ...] = ()


class Fails(DecidesEachTime):
    """An Authenticator at which something goes wrong."""

    def __init__(self, error: Exception, *, later: bool = False) -> None:
        self._error = error
        self._later = later

    def authenticate(self, credentials):
        if self._later:
            return self._fail()
        raise self._error

    async def _fail(self):
        await asyncio.sleep(0)
        raise self._error


class Powerless(DecidesEachTime):
    """An Authenticator that knows everybody as somebody without any right."""

    def authenticate(self, credentials):
        return Authenticated(Principal(subject="nobody", mode="jwt"), consumed_authorization=True)


OF_ONE_MESSAGE = {
    errors.BadRequest: Case(request("GET", "/", ("X-Sandbox-UID", "a b"))),
    errors.MalformedMessage: Case(b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n"),
    errors.MissingSandboxId: Case(request(sandbox=None), "X-Sandbox-ID header is required."),
    errors.InvalidSandboxId: Case(request(sandbox="A"), "Invalid sandbox ID format."),
    errors.InvalidNamespace: Case(
        request("GET", "/", ("X-Sandbox-Namespace", "a.b")), "Invalid namespace format."
    ),
    errors.InvalidPort: Case(
        request("GET", "/", ("X-Sandbox-Port", "8_888")), "Invalid port format."
    ),
    errors.InvalidPodIp: Case(
        request("GET", "/", ("X-Sandbox-Pod-IP", "169.254.169.254")), "Invalid target IP address."
    ),
    errors.AmbiguousTarget: Case(
        request(sandbox="other", host="8888-box.box.example"),
        settings=(("base_domain", "box.example"),),
    ),
    errors.Unauthenticated: Case(request(token="wrong")),
    errors.Forbidden: Case(request(), settings=(("authenticator", Powerless()),)),
    errors.SandboxNotFound: Case(
        request("GET", "/", ("X-Sandbox-Namespace", "team-a"), sandbox="unknown"),
        "Sandbox not found in namespace team-a.",
    ),
    errors.SandboxReplaced: Case(request("GET", "/", ("X-Sandbox-UID", "gone"))),
    errors.SandboxSuspended: Case(request(), facts=(("state", State.SUSPENDED),)),
    errors.SandboxFinished: Case(request(), facts=(("state", State.FINISHED),)),
    errors.BodyTooLarge: Case(
        request("POST", "/", body=b"x" * 11), settings=(("max_body_bytes", 10),)
    ),
    errors.UriTooLong: Case(request("GET", "/" + "x" * 17_000)),
    errors.Misdirected: Case(
        request(sandbox=None),
        "This host name does not name a sandbox. Use the host <port>-<name>.box.example or "
        "<port>-<name>--<namespace>.box.example, or the header X-Sandbox-ID.",
        settings=(("base_domain", "box.example"),),
    ),
    errors.HeadersTooLarge: Case(request("GET", "/", ("X-A", "x" * 70_000))),
    errors.MethodNotSupported: Case(request("TRACE")),
    errors.GrpcNotSupported: Case(request("POST", "/a.B/C", ("Content-Type", "application/grpc"))),
    errors.VersionNotSupported: Case(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    errors.SandboxNotReady: Case(
        request(), facts=(("state", State.STARTING),), settings=(("wait_for_ready_s", 0.01),)
    ),
    errors.IndexStale: Case(request(), settings=(("max_staleness_s", 1.0),)),
    errors.AuthUnavailable: Case(
        request(), settings=(("authenticator", Fails(errors.AuthUnavailable(), later=True)),)
    ),
}


def has_kept_its_promises(told, kind: type[errors.RouterError]) -> None:
    """Holds an answer to what the error's class says of it."""
    assert told.status == kind.status
    assert told.code == kind.code
    assert told.get("Content-Type") == b"application/json"
    assert told.get("Content-Length") is not None
    retry_after = None if kind.retry_after_s is None else b"%d" % kind.retry_after_s
    assert told.get("Retry-After") == retry_after
    body = told.body.decode()
    assert f'"code":"{kind.code}"' in body
    assert f'"retryable":{str(kind.retryable).lower()}' in body
    offered = [value.partition(b" ")[0] for value in told.all("WWW-Authenticate")]
    assert offered == ([b"Bearer", b"Basic"] if kind is errors.Unauthenticated else [])


@pytest.mark.parametrize("kind", OF_ONE_MESSAGE, ids=lambda kind: kind.__name__)
async def test_a_request_that_asks_for_it_gets_it(start_router, pod, kind):
    case = OF_ONE_MESSAGE[kind]
    router = await start_router(**dict(case.settings))
    router.knows(pod, **dict(case.facts))
    client = await router.connect()
    client.send(case.raw)
    told = await client.answer()
    has_kept_its_promises(told, kind)
    if case.detail is not None:
        assert told.detail == case.detail
    assert pod.connections == 0
    outcome = await router.outcome()
    assert (outcome.status, outcome.code) == (kind.status, kind.code)
    assert router.metric("router_errors_total", kind.code) == 1
    if kind.closes_connection:
        assert told.get("Connection") == b"close"
        assert await client.end() == "eof"
    else:
        client.send(request("GET", "/healthz", sandbox=None))
        again = await client.answer()
        assert again.status == 200


async def test_a_routing_header_twice_with_different_values_is_refused_before_anything_is_read(
    router, pod
):
    client = await router.connect()
    client.send(request("GET", "/", ("X-Sandbox-ID", "other")), request("GET", "/healthz"))
    has_kept_its_promises(await client.answer(), errors.AmbiguousTarget)
    assert await client.end() == "eof"


@pytest.mark.parametrize("target", ["example.com:443", "/", "*"])
@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
async def test_connect_and_trace_are_501(router, pod, method, target):
    if method == "TRACE" and target != "/":
        target = "/trace"
    told = await router.ask(request(method, target))
    has_kept_its_promises(told, errors.MethodNotSupported)


@pytest.mark.parametrize(
    "refused",
    [
        request("CONNECT", "example.com:443"),
        request("TRACE"),
        request("POST", "/a.B/C", ("Content-Type", "application/grpc"), body=b"x"),
    ],
)
async def test_what_comes_behind_a_method_that_nobody_speaks_is_no_request(router, refused):
    client = await router.connect()
    client.send(refused, request("GET", "/healthz", sandbox=None))
    assert (await client.answer()).status == 501
    assert await client.end() == "eof"
    assert len(router.outcomes) == 1


async def test_a_fragment_in_a_target_is_refused_and_never_logged(router):
    client = await router.connect()
    client.send(request("GET", "/a#access_token=s3cret?x"))
    assert (await client.answer()).status == 400
    (line,) = await router.log_lines()
    assert line["path"] == "/a"
    assert "s3cret" not in str(line)


async def test_a_sandbox_that_cannot_be_reached_is_502(router):
    with bound_socket() as closed:
        router.knows(port=closed.getsockname()[1])
        client = await router.connect()
        client.send(request())
        await until(lambda: router.metric("upstream_retries_total") > 0)
        router.pass_time(3)
        told = await client.answer()
    has_kept_its_promises(told, errors.SandboxUnreachable)
    assert told.detail == "Could not connect to the backend sandbox: box"


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 xyz OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 99 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n" + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\r\n folded\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A : b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\x00c\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\rc\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        b"\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"\x00" * 100,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
    ],
    ids=range(22),
)
async def test_a_sandboxs_nonsense_is_502(router, pod, said):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(said)
    told = await client.answer()
    has_kept_its_promises(told, errors.BadResponse)
    await sandbox.rest()
    sandbox.close()
    outcome = await router.outcome()
    assert outcome.upstream_error == "bad_response"
    assert outcome.error_reason != ""
    async with serving(pod):
        client.send(request("GET", "/next"))
        assert (await client.answer()).body == b"/next"


async def test_a_silent_sandbox_is_504(start_router, pod):
    router = await start_router(proxy_timeout_s=60)
    router.knows(pod)
    client = await router.connect()
    client.send(request())
    await (await pod.accept()).request()
    router.pass_time(61)
    has_kept_its_promises(await client.answer(), errors.SandboxTimeout)


async def test_a_slow_head_is_408(start_router):
    router = await start_router(header_timeout_s=10)
    client = await router.connect()
    client.send(b"GET / HT")
    await until(lambda: router.clients._connections)
    await asyncio.sleep(0.02)
    router.pass_time(11)
    has_kept_its_promises(await client.answer(), errors.RequestTimeout)


async def test_too_many_requests_are_429(start_router, pod):
    router = await start_router(max_requests_per_sandbox=1)
    router.knows(pod)
    client = await router.connect()
    client.send(request())
    await pod.accept()
    has_kept_its_promises(await router.ask(request()), errors.TooManyRequests)


async def test_too_many_connections_are_503(start_router, pod):
    router = await start_router(max_connections=1)
    router.knows(pod)
    busy = await router.connect()
    busy.send(request())
    await (await pod.accept()).request()
    refused = await router.connect()
    has_kept_its_promises(await refused.answer(), errors.Overloaded)


async def test_a_draining_router_is_503(router):
    router.clients.is_draining = True
    told = await router.ask(request("GET", "/healthz", sandbox=None))
    has_kept_its_promises(told, errors.Draining)


@pytest.mark.parametrize("later", [False, True])
async def test_a_bug_is_500_and_logged_with_its_traceback(start_router, pod, surprises, later):
    router = await start_router(authenticator=Fails(ZeroDivisionError("a bug"), later=later))
    router.knows(pod)
    client = await router.connect()
    client.send(request())
    told = await client.answer()
    has_kept_its_promises(told, errors.InternalError)
    assert b"bug" not in told.body
    assert await client.end() == "eof"
    assert "ZeroDivisionError: a bug" in surprises[0]
    assert len(surprises) == 1
    surprises.clear()


async def test_a_bug_in_dialling_is_500(router, surprises):
    router.knows(port=1, host="10.9.9.9")
    router.own_listeners = lambda: 1 / 0
    with dialling_fails("10.9.9.9"):
        told = await router.ask(request())
    has_kept_its_promises(told, errors.InternalError)
    surprises.clear()


REACHED_ELSEWHERE_HERE = {
    errors.CrossOrigin,
    errors.NoSuchRouterPath,
    errors.MethodNotAllowed,
    errors.SandboxUnreachable,
    errors.BadResponse,
    errors.SandboxTimeout,
    errors.RequestTimeout,
    errors.TooManyRequests,
    errors.SandboxWaking,
    errors.WakeLimited,
    errors.WakeUnavailable,
    errors.Overloaded,
    errors.ReviewRefused,
    errors.Draining,
    errors.InternalError,
}


def test_no_error_is_left_out():
    assert set(every_error()) == OF_ONE_MESSAGE.keys() | REACHED_ELSEWHERE_HERE


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        b"GET /\r\nHost: a\r\n\r\n",
        b"GET / http/1.1\r\nHost: a\r\n\r\n",
        b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx",
        b"G=T(/) / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff\xfe\xfd\r\n\r\n",
    ],
    ids=range(24),
)
async def test_ambiguous_framing_is_400_and_the_end_of_the_connection(router, pod, raw):
    client = await router.connect()
    client.send(raw, request("DELETE", "/smuggled"))
    told = await client.answer()
    assert (told.status, told.code, told.get("Connection")) == (400, "bad_request", b"close")
    assert await client.end() == "eof"
    assert pod.connections == 0
    assert len(router.outcomes) == 1


async def test_an_answer_of_the_sandbox_is_never_taken_for_the_routers(router, pod):
    said = answer(502, ("Content-Type", "application/json"), body=b'{"code":"bad_response"}')
    async with serving(pod, lambda _: said):
        told = await router.ask(request())
    assert (told.status, told.code) == (502, "")
    assert (await router.outcome()).code == ""
    assert router.metric("router_errors_total", "bad_response") == 0
