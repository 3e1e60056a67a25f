"""The TLS listener: the same conversations under TLS, client certificates, and ends that are told apart."""

import asyncio
import os
import random
import socket
import ssl
from pathlib import Path

import pytest
import trustme

from router.auth.chain import AuthenticatorChain
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.mtls import CertificateAuthenticator
from router.auth.policy import CurrentPolicy, Policy, PrincipalMatch, Rule
from router.auth.principal import Grant
from router.auth.static import StaticTokenAuthenticator
from router.server.tls import TlsContextSource
from tests.integration.proxy.messages import TOKEN, answer, chunked, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.upgrades import GOING_AWAY, close_code, frame, opened
from tests.integration.proxy.wire import CutShortError, settled, until
from tests.unit.server.test_handshakes import hello_of_client

SPIFFE = "spiffe://example.org/agent"
CHUNKED = ("Transfer-Encoding", "chunked")


class Certificates:
    """An authority, the router's certificate, and a client that has one too."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.directory = directory
        server = self.authority.issue_cert("localhost", "127.0.0.1")
        self.alice = self.authority.issue_cert("alice.example.org", common_name="alice")
        (directory / "tls.key").write_bytes(server.private_key_pem.bytes())
        chain = b"".join(pem.bytes() for pem in server.cert_chain_pems)
        (directory / "tls.crt").write_bytes(chain)
        (directory / "ca.crt").write_bytes(self.authority.cert_pem.bytes())

    def of_router(self, mtls: str = "off") -> ssl.SSLContext:
        source = TlsContextSource(
            cert_file=self.directory / "tls.crt",
            key_file=self.directory / "tls.key",
            client_ca_file=self.directory / "ca.crt",
            mtls=mtls,
            on_change=lambda context: None,
        )
        source.load_once()
        return source.context

    def of_client(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        context.set_alpn_protocols(["h2", "http/1.1"])
        if certificate is not None:
            certificate.configure_cert(context)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tls(certificates):
    return certificates.of_client()


@pytest.fixture
async def secure(start_router, pod, certificates):
    router = await start_router(
        tls=certificates.of_router(), keepalive_timeout_s=620, tunnel_idle_timeout_s=3600
    )
    router.knows(pod)
    return router


async def test_requests_are_served_one_after_another(secure, pod, tls):
    client = await secure.connect(tls=tls)
    async with serving(pod):
        for number in range(5):
            client.send(request("POST", f"/{number}", body=b"x" * 10))
            assert (await client.answer("POST")).body == b"/%d" % number
    assert pod.connections == 1


async def test_the_client_is_told_http_1_1_and_the_sandbox_https(secure, pod, tls):
    client = await secure.connect(tls=tls)
    assert client.transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    client.send(request())
    asked = await (await pod.accept()).request()
    assert asked.get("X-Forwarded-Proto") == b"https"


async def test_large_bodies_cross_both_ways(secure, pod, tls):
    body = random.Random(5).randbytes(8_000_000)
    client = await secure.connect(tls=tls)
    async with serving(pod, lambda asked: answer(200, CHUNKED, body=chunked(asked.body))):
        client.send(request("PUT", "/", body=body))
        assert (await client.answer("PUT")).body == body
        client.send(request("PUT", "/", CHUNKED, body=chunked(body[:4_000_000], body[4_000_000:])))
        assert (await client.answer("PUT")).body == body


async def test_an_event_is_out_at_once(secure, pod, tls):
    client = await secure.connect(tls=tls)
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(200, CHUNKED))
    assert (await client.head()).status == 200
    for _ in range(5):
        sandbox.send(b"5\r\nevent\r\n")
        assert await client.read(10) == b"5\r\nevent\r\n"


async def test_pipelined_requests_keep_their_order(secure, pod, tls):
    client = await secure.connect(tls=tls)
    async with serving(pod):
        client.send(*(request("GET", f"/{number}") for number in range(50)))
        for number in range(50):
            assert (await client.answer()).body == b"/%d" % number


async def test_a_client_that_reads_nothing_stops_the_sandbox(secure, pod, tls):
    secure.shrink_buffers()
    client = await secure.connect(tls=tls, buffers=8192)
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    client.stop_reading()
    size = 30_000_000
    sandbox.send(answer(200, ("Content-Length", str(size))), b"x" * size)
    before = -1
    while (left := sandbox.transport.get_write_buffer_size()) != before:
        before = left
        await asyncio.sleep(0.05)
    assert size - left < 12_000_000  # most of it in the kernel's buffers between sandbox and router
    client.start_reading()
    assert len((await client.answer()).body) == size


async def test_an_answer_cut_short_is_visible(secure, pod, tls):
    for version in ("HTTP/1.1", "HTTP/1.0"):
        client = await secure.connect(tls=tls)
        client.send(request(version=version))
        sandbox = await pod.accept()
        await sandbox.request()
        sandbox.send(answer(length=False), b"half")
        await client.head()
        await client.read_through(b"half")
        sandbox.reset()
        with pytest.raises(CutShortError) as cut:
            await client.read(100)
        # Only what the end of the connection would complete needs more than an end.
        assert cut.value.how == ("eof" if version == "HTTP/1.1" else "reset")


async def test_the_last_answer_is_whole_before_the_connection_ends(secure, pod, tls):
    client = await secure.connect(tls=tls)
    async with serving(pod, lambda _: answer(body=b"y" * 2_000_000)):
        client.send(request("GET", "/", ("Connection", "close")))
        assert len((await client.answer()).body) == 2_000_000
    assert await client.end() == "eof"


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_cancels_its_request(secure, pod, tls, how):
    client = await secure.connect(tls=tls)
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    getattr(client, how)()
    await sandbox.rest()
    assert (await secure.outcome()).code == "client_closed"


async def test_a_crash_is_noticed_although_what_it_sent_was_too_much_to_read(secure, pod, tls):
    client = await secure.connect(tls=tls)
    client.send(request(), request("GET", "/" + "x" * 1000) * 1000)
    sandbox = await pod.accept()
    await sandbox.request()
    await settled()
    client.reset()
    await settled()
    secure.pass_time(1)
    await sandbox.rest()
    assert (await secure.outcome()).code == "client_closed"


async def test_an_end_without_goodbye_is_noticed_although_bytes_are_unsent(secure, pod, tls):
    """uvloop's TLS keeps it to itself until everything is sent, and throws away what the sandbox goes on to send."""
    secure.shrink_buffers()
    client = await secure.connect(tls=tls, buffers=8192)
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    client.stop_reading()
    sandbox.send(answer(200, ("Content-Length", "100000000")), b"x" * 700_000)
    await until(lambda: not sandbox.transport.get_write_buffer_size())
    await settled()
    with socket.socket(fileno=os.dup(client.socket.fileno())) as same:
        same.shutdown(socket.SHUT_WR)
    await settled()
    secure.pass_time(1)
    await sandbox.rest()


async def test_a_tunnel_crosses_and_ends_with_its_client(secure, pod, tls):
    client, sandbox = await opened(secure, pod, tls=tls)
    words = random.Random(6).randbytes(3_000_000)
    client.send(words)
    assert await sandbox.read(len(words)) == words
    sandbox.send(words)
    assert await client.read(len(words)) == words
    client.close()
    assert await sandbox.end() == "eof"
    sandbox.close()
    assert (await secure.outcome()).status == 101


async def test_a_sandboxs_last_words_arrive_before_the_end_of_a_tunnel(secure, pod, tls):
    client, sandbox = await opened(secure, pod, tls=tls)
    words = frame(2, random.Random(7).randbytes(1_000_000))
    sandbox.send(words)
    sandbox.half_close()
    assert await client.read(len(words)) == words
    assert await client.end() == "eof"


async def test_an_idle_tunnel_ends_with_1001(secure, pod, tls):
    client, _ = await opened(secure, pod, tls=tls)
    secure.pass_time(3601)
    assert await close_code(client) == GOING_AWAY


async def test_an_idle_connection_is_closed_after_keepalive_timeout(secure, pod, tls):
    client = await secure.connect(tls=tls)
    async with serving(pod):
        client.send(request())
        await client.answer()
    secure.pass_time(621)
    assert await client.end() == "eof"


async def test_plain_http_on_the_tls_port_leaves_nothing_behind(secure):
    client = await secure.connect()
    client.send(request())
    await client.rest()
    assert secure.outcomes == []


async def test_a_client_that_never_shakes_hands_is_a_connection_for_the_header_timeout(
    start_router, certificates
):
    router = await start_router(tls=certificates.of_router(), header_timeout_s=10)
    client = await router.connect()
    await until(lambda: len(router.clients) == 1)
    assert router.metric("client_connections") == 1
    router.pass_time(11)
    assert await client.end() in ("eof", "reset")
    await until(lambda: len(router.clients) == 0)
    assert router.metric("client_connections") == 0


async def test_silent_handshakes_make_room_for_whoever_shakes_hands(
    start_router, pod, certificates, tls
):
    router = await start_router(tls=certificates.of_router(), max_connections=5)
    router.knows(pod)
    silent = [await router.connect() for _ in range(40)]
    await until(lambda: sum(bool(client.ended) for client in silent) >= 35)
    assert len(router.clients) == 5
    async with serving(pod):
        for _ in range(3):
            assert (await router.ask(request(), tls=tls)).status == 200
    assert router.metric("connections_refused_total") == 0


async def test_handshakes_that_go_on_and_on_make_room_too(start_router, pod, certificates, tls):
    router = await start_router(tls=certificates.of_router(), max_connections=3)
    router.knows(pod)
    stalled = [await router.connect() for _ in range(3)]
    for client in stalled:
        client.send(hello_of_client())
    await until(lambda: router.acceptor.under_way == 3)
    router.clock.added_s += 1.5
    async with serving(pod):
        assert (await router.ask(request(), tls=tls)).status == 200


async def test_a_load_balancers_check_over_tls_is_answered_in_a_full_house(
    start_router, pod, certificates, tls
):
    router = await start_router(tls=certificates.of_router(), max_connections=1)
    router.knows(pod)
    busy = await router.connect(tls=tls)
    busy.send(request())
    await (await pod.accept()).request()
    told = await router.ask(request("GET", "/healthz", sandbox=None), tls=tls)
    assert told.status == 200
    refused = await router.ask(request(), tls=tls)
    assert (refused.status, refused.code) == (503, "overloaded")
    busy.close()


async def test_tls_on_the_plain_port_is_refused_in_plain_words(router, tls):
    with pytest.raises(ssl.SSLError):
        await router.connect(tls=tls)
    outcome = await router.outcome()
    assert (outcome.status, outcome.code) == (400, "bad_request")


# --- client certificates ---------------------------------------------------------------------


@pytest.fixture
async def start_mutual(start_router, pod, certificates):
    """Returns what starts a router that knows Alice by her certificate and everybody else by the token."""

    async def start(mtls: str = "optional", **changes):
        policy = CurrentPolicy(
            Policy(
                rules=(
                    Rule(
                        number=1,
                        line=1,
                        principal=PrincipalMatch(identity="alice.example.org", kind="dns"),
                        grants=(Grant("default", "box"),),
                    ),
                )
            )
        )
        router = await start_router(
            tls=certificates.of_router(mtls),
            authenticator=AuthenticatorChain(
                bearer=[StaticTokenAuthenticator(tokens=[TOKEN.encode()])],
                certificate=CertificateAuthenticator(),
            ),
            authorizer=GrantAuthorizer(policy=policy),
            **changes,
        )
        router.knows(pod)
        router.knows(pod, name="other", uid="pod-2")
        return router

    return start


async def test_a_certificate_is_a_credential(start_mutual, pod, certificates):
    router = await start_mutual()
    client = await router.connect(tls=certificates.of_client(certificates.alice))
    async with serving(pod):
        for _ in range(2):
            client.send(request(token=None))
            assert (await client.answer()).status == 200
        client.send(request(token=None, sandbox="other"))
        assert (await client.answer()).code == "forbidden"
    outcome = await router.outcome()
    assert (outcome.principal, outcome.authz) == ("alice.example.org", "allowed")


async def test_without_a_certificate_the_token_decides(start_mutual, pod, certificates):
    router = await start_mutual()
    client = await router.connect(tls=certificates.of_client())
    client.send(request(token=None))
    assert (await client.answer()).code == "unauthenticated"
    async with serving(pod):
        client.send(request())
        assert (await client.answer()).status == 200


async def test_a_required_certificate_is_required(start_mutual, certificates):
    router = await start_mutual("required")
    await assert_refused(router, certificates.of_client())


async def assert_refused(router, context) -> None:
    """Holds the router to turning a client away: with TLS 1.3 it learns that after its own part of the handshake."""

    async def try_it() -> None:
        client = await router.connect(tls=context)
        client.send(request())
        await client.answer()

    with pytest.raises((ssl.SSLError, ConnectionError, CutShortError)):
        await try_it()
    assert router.outcomes == []


async def test_a_strangers_certificate_is_none(start_mutual, certificates):
    router = await start_mutual()
    stranger = trustme.CA().issue_cert("alice.example.org", common_name="alice")
    await assert_refused(router, certificates.of_client(stranger))


async def test_a_certificate_in_a_header_counts_from_a_trusted_proxy_alone(
    start_mutual, pod, certificates
):
    said = ("X-Forwarded-Client-Cert", "Hash=00;DNS=alice.example.org")
    client = certificates.of_client()
    distrusting = await start_mutual()
    told = await distrusting.ask(request("GET", "/", said, token=None), tls=client)
    assert told.code == "unauthenticated"
    trusting = await start_mutual(trusted_proxies=("127.0.0.1/32",))
    async with serving(pod):
        told = await trusting.ask(request("GET", "/", said, token=None), tls=client)
    assert told.status == 200


async def test_a_handshake_that_is_broken_off_leaves_nothing_behind(secure):
    for _ in range(5):
        sock = socket.create_connection(secure.address)
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        sock.close()
    await until(lambda: len(secure.clients) == 0)
