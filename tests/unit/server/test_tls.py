"""TlsContextSource over real sockets: who gets in, and what a rotation changes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
import uvloop
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from router.server.tls import TlsContextSource

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

on_each_loop = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


class Mount:
    """A Secret's directory as the kubelet makes it: files are links into a directory that is swapped at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.version = 0
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (root / name).symlink_to(f"..data/{name}")

    def put(self, server: trustme.LeafCert, client_ca: bytes, *, key: bytes | None = None) -> None:
        self.version += 1
        data = self.root / f"..v{self.version}"
        data.mkdir()
        chain = b"".join(blob.bytes() for blob in server.cert_chain_pems)
        (data / "tls.crt").write_bytes(chain)
        (data / "tls.key").write_bytes(key or server.private_key_pem.bytes())
        (data / "ca.crt").write_bytes(client_ca)
        (self.root / "..new").symlink_to(data.name)
        os.rename(self.root / "..new", self.root / "..data")

    def source(self, mtls: str) -> TlsContextSource:
        self.changes: list[ssl.SSLContext] = []
        return TlsContextSource(
            cert_file=self.root / "tls.crt",
            key_file=self.root / "tls.key",
            client_ca_file=self.root / "ca.crt",
            mtls=mtls,
            on_change=self.changes.append,
            poll_interval_s=0.01,
        )


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def mount(tmp_path: Path, authority: trustme.CA) -> Mount:
    made = Mount(tmp_path)
    made.put(authority.issue_cert("localhost"), authority.cert_pem.bytes())
    return made


def _client(authority: trustme.CA, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


@asynccontextmanager
async def _serving(context: ssl.SSLContext) -> AsyncIterator[int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                peer = writer.get_extra_info("peercert") or {}
                names = [value for _, value in peer.get("subjectAltName", ())]
                writer.write(line.strip() + b" " + ",".join(names).encode() + b"\n")
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _say(port: int, context: ssl.SSLContext) -> bytes:
    """Returns the server's answer, with the name in the client's certificate."""
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        try:
            writer.write(b"hello\n")
            answer = await reader.readline()
            if not answer:
                raise ConnectionResetError("closed")
            return answer
        finally:
            writer.close()
            try:
                await writer.wait_closed()
            except (OSError, ssl.SSLError):
                pass


async def _refused(port: int, context: ssl.SSLContext) -> bool:
    try:
        await _say(port, context)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def _alert(port: int, context: ssl.SSLContext, request: bytes) -> str:
    """Returns what a client reads in the end, one that writes its request as soon as its own part of the handshake is done."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(request)
                return repr(client.recv(100))
        except ssl.SSLError as error:
            return error.reason or repr(error)


def _alert_from(
    source: TlsContextSource, context: ssl.SSLContext, *, loop: LoopFactory, request: bytes = b"x"
) -> str:
    async def ask() -> str:
        async with _serving(source.context) as port:
            return await asyncio.to_thread(_alert, port, context, request)

    source.load_once()
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(ask())


async def test_a_client_gets_in_over_tls_with_http_1_1_agreed(
    mount: Mount, authority: trustme.CA
) -> None:
    source = mount.source("off")
    source.load_once()
    context = _client(authority)
    context.set_alpn_protocols(["h2", "http/1.1"])

    async with _serving(source.context) as port:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        protocol = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        writer.close()
        await writer.wait_closed()

    assert protocol == "http/1.1"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_tls_1_1_is_refused_and_counted(
    mount: Mount, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    source = mount.source("off")
    source.load_once()
    old = _client(authority)
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1

    async with _serving(source.context) as port:
        assert await _refused(port, old)

    assert dict(source.handshakes.failed) == {"version_or_cipher": 1}
    [record] = [r for r in caplog.records if r.message == "TLS handshake failed"]
    assert record.exc_info is None


async def test_plain_http_on_the_tls_port_is_counted_and_harms_nobody(
    mount: Mount, authority: trustme.CA
) -> None:
    source = mount.source("off")
    source.load_once()

    async with _serving(source.context) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        answer = await _say(port, _client(authority))

    assert answer == b"hello \n"
    assert dict(source.handshakes.failed) == {"not_tls": 1}
    assert source.handshakes.completed == 1


async def test_required_refuses_a_client_without_a_certificate(
    mount: Mount, authority: trustme.CA
) -> None:
    source = mount.source("required")
    source.load_once()

    async with _serving(source.context) as port:
        assert await _refused(port, _client(authority))

    assert dict(source.handshakes.failed) == {"no_certificate": 1}


@on_each_loop
@pytest.mark.parametrize(
    ("newest", "told"),
    [
        (ssl.TLSVersion.TLSv1_3, "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        (ssl.TLSVersion.TLSv1_2, "SSLV3_ALERT_HANDSHAKE_FAILURE"),
    ],
)
def test_a_client_without_the_required_certificate_reads_why(
    mount: Mount, authority: trustme.CA, loop: LoopFactory, newest: ssl.TLSVersion, told: str
) -> None:
    client = _client(authority)
    client.maximum_version = newest

    assert _alert_from(mount.source("required"), client, loop=loop) == told


@on_each_loop
def test_a_client_with_a_strangers_certificate_reads_why(
    mount: Mount, authority: trustme.CA, loop: LoopFactory
) -> None:
    client = _client(authority, trustme.CA().issue_cert("mallory.example"))

    assert _alert_from(mount.source("optional"), client, loop=loop) == "TLSV1_ALERT_UNKNOWN_CA"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@on_each_loop
def test_a_client_of_an_old_version_reads_why(
    mount: Mount, authority: trustme.CA, loop: LoopFactory
) -> None:
    old = _client(authority)
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1

    assert "ALERT_PROTOCOL_VERSION" in _alert_from(mount.source("off"), old, loop=loop)


@on_each_loop
def test_a_request_that_is_already_under_way_does_not_drown_the_alert(
    mount: Mount, authority: trustme.CA, loop: LoopFactory
) -> None:
    told = _alert_from(
        mount.source("required"), _client(authority), loop=loop, request=bytes(40_000)
    )

    assert told == "TLSV13_ALERT_CERTIFICATE_REQUIRED"


async def test_a_client_that_goes_on_sending_after_its_handshake_failed_is_cut_off(
    mount: Mount, authority: trustme.CA
) -> None:
    source = mount.source("required")
    source.load_once()

    async with _serving(source.context) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        hello = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"  # a ClientHello of one byte
        writer.write(hello)
        alert = await reader.readexactly(7)
        with pytest.raises(ConnectionError):
            await _send_on(writer)
        writer.close()

    assert alert[0] == 21, "a record that is an alert"
    assert source.handshakes.failed.total() == 1


async def _send_on(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(5):
        while True:
            writer.write(bytes(16384))
            await writer.drain()


async def test_optional_lets_a_client_in_without_a_certificate_but_not_with_a_foreign_one(
    mount: Mount, authority: trustme.CA
) -> None:
    source = mount.source("optional")
    source.load_once()
    stranger = trustme.CA().issue_cert("mallory.example")

    async with _serving(source.context) as port:
        without = await _say(port, _client(authority))
        foreign_is_refused = await _refused(port, _client(authority, stranger))

    assert without == b"hello \n"
    assert foreign_is_refused
    assert dict(source.handshakes.failed) == {"bad_certificate": 1}


async def test_required_lets_a_client_of_the_ca_in_and_tells_its_name(
    mount: Mount, authority: trustme.CA
) -> None:
    source = mount.source("required")
    source.load_once()

    async with _serving(source.context) as port:
        answer = await _say(port, _client(authority, authority.issue_cert("alice.example")))

    assert answer == b"hello alice.example\n"


async def test_a_rotated_client_ca_shuts_old_clients_out_and_keeps_open_connections(
    mount: Mount, authority: trustme.CA
) -> None:
    source = mount.source("required")
    source.load_once()
    alice = _client(authority, authority.issue_cert("alice.example"))
    alice.maximum_version = ssl.TLSVersion.TLSv1_2

    async with _serving(source.context) as port:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=alice, server_hostname="localhost"
        )
        writer.write(b"one\n")
        await reader.readline()
        new_authority = trustme.CA()
        mount.put(authority.issue_cert("localhost"), new_authority.cert_pem.bytes())
        assert await source.files.poll() is True
        [new_context] = mount.changes
        async with _serving(new_context) as new_port:
            assert await _refused(new_port, alice)
            bob = _client(authority, new_authority.issue_cert("bob.example"))
            assert await _say(new_port, bob) == b"hello bob.example\n"
        writer.write(b"two\n")
        assert await reader.readline() == b"two alice.example\n"
        writer.close()
        await writer.wait_closed()


async def test_a_session_from_before_the_rotation_is_not_resumed_after_it(
    mount: Mount, authority: trustme.CA
) -> None:
    source = mount.source("required")
    source.load_once()
    alice = _client(authority, authority.issue_cert("alice.example"))
    alice.maximum_version = ssl.TLSVersion.TLSv1_2
    old_context = source.context
    mount.put(authority.issue_cert("localhost"), trustme.CA().cert_pem.bytes())
    await source.files.poll()

    def resumes(first: ssl.SSLContext, second: ssl.SSLContext) -> bool:
        """Returns True when `second` takes up a session of `first`."""
        session = _handshake(alice, first).session
        return _handshake(alice, second, session).session_reused is True

    assert resumes(old_context, old_context)
    with pytest.raises(ssl.SSLError, match="TLSV1_ALERT_UNKNOWN_CA"):
        resumes(old_context, source.context)


def _handshake(
    client_context: ssl.SSLContext,
    server_context: ssl.SSLContext,
    session: ssl.SSLSession | None = None,
) -> ssl.SSLObject:
    """Returns the client's side of a handshake without sockets. Raises what the server raises."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(
        to_client, to_server, server_hostname="localhost", session=session
    )
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return client


async def test_a_key_that_does_not_fit_keeps_the_old_context(
    mount: Mount, authority: trustme.CA
) -> None:
    source = mount.source("off")
    source.load_once()
    before = source.context
    other = authority.issue_cert("localhost").private_key_pem.bytes()

    mount.put(authority.issue_cert("localhost"), authority.cert_pem.bytes(), key=other)
    await source.files.poll()

    assert source.context is before
    assert source.files.reloads_failed == 1
    assert "does not belong" in source.files.last_error
    assert mount.changes == []


def test_a_client_ca_file_without_a_certificate_stops_the_start(
    mount: Mount, authority: trustme.CA
) -> None:
    mount.put(authority.issue_cert("localhost"), b"nothing here\n")

    with pytest.raises(ValueError, match="holds no certificate"):
        mount.source("required").load_once()


def test_comments_in_any_language_between_client_cas_are_no_obstacle(
    mount: Mount, authority: trustme.CA
) -> None:
    second = trustme.CA().cert_pem.bytes()
    pem = b"# \xc3\x84mter\n" + authority.cert_pem.bytes() + b"\xff\n" + second
    mount.put(authority.issue_cert("localhost"), pem)
    source = mount.source("required")

    source.load_once()

    assert len(source.context.get_ca_certs()) == 2


def test_an_encrypted_key_stops_the_start_and_asks_nobody_for_its_passphrase(
    mount: Mount, authority: trustme.CA
) -> None:
    server = authority.issue_cert("localhost")
    key = load_pem_private_key(server.private_key_pem.bytes(), password=None)
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pass")
    )
    mount.put(server, authority.cert_pem.bytes(), key=encrypted)

    with pytest.raises(ValueError, match="passphrase"):
        mount.source("off").load_once()


def test_mtls_without_a_client_ca_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tls-client-ca-file"):
        TlsContextSource(
            cert_file=tmp_path / "c",
            key_file=tmp_path / "k",
            client_ca_file=None,
            mtls="optional",
            on_change=lambda context: None,
        )


@pytest.mark.parametrize(
    ("mtls", "settings"),
    [("off", {"tls-cert-file"}), ("required", {"tls-cert-file", "tls-client-ca-file"})],
)
async def test_the_ends_of_what_is_in_force_are_known_and_an_expired_certificate_is_an_error(
    mount: Mount,
    authority: trustme.CA,
    caplog: pytest.LogCaptureFixture,
    mtls: str,
    settings: set[str],
) -> None:
    source = mount.source(mtls)
    source.load_once()
    assert set(source.expiry.not_after) == settings
    first = dict(source.expiry.not_after)
    assert caplog.records == []

    expired = authority.issue_cert(
        "localhost", not_before=datetime(2001, 1, 1), not_after=datetime(2002, 1, 1)
    )
    mount.put(expired, authority.cert_pem.bytes())
    with caplog.at_level(logging.WARNING):
        assert await source.files.poll()

    [record] = caplog.records
    assert (record.levelname, record.message) == (
        "ERROR",
        "certificate has expired: renew it now",
    )
    assert source.expiry.not_after == {
        **first,
        "tls-cert-file": datetime(2002, 1, 1, tzinfo=UTC).timestamp(),
    }


def test_there_is_no_context_before_the_first_load(mount: Mount) -> None:
    with pytest.raises(RuntimeError):
        _ = mount.source("off").context


async def test_running_it_follows_the_files(mount: Mount, authority: trustme.CA) -> None:
    source = mount.source("off")
    source.load_once()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(source.run())
        mount.put(authority.issue_cert("localhost"), authority.cert_pem.bytes())
        while not mount.changes:
            await asyncio.sleep(0.005)
        task.cancel()

    assert mount.changes == [source.context]
