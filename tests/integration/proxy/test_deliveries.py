"""What had come of a response before its sandbox crashed reaches the client, however slow, and then the cut is visible."""

import fcntl
import ssl
import struct
import termios

import pytest
import trustme

from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.wire import settled, until

MB = 1_000_000
HELD = 60_000
"""More than the kernel takes for a client that reads nothing."""
PIECE = bytes(range(256)) * 256


@pytest.fixture(scope="module")
def contexts():
    """The server's TLS and a client's that believes it."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


def came_to_the_router(wire, sent):
    """Returns how many of the bytes that a sandbox sent have left it: a crash destroys the others."""
    (left,) = struct.unpack("i", fcntl.ioctl(wire.socket.fileno(), termios.TIOCOUTQ, bytes(4)))
    return sent - left - wire.transport.get_write_buffer_size()


def body_of(framing, size):
    """Returns an endless response's head, and what of its body a sandbox says."""
    data = (PIECE * (size // len(PIECE) + 1))[:size]
    if framing == "length":
        return answer(200, ("Content-Length", str(10 * size)), length=False), data
    if framing == "chunked":
        return answer(200, ("Transfer-Encoding", "chunked"), length=False), b"%x\r\n" % (
            10 * size
        ) + data
    return answer(200, length=False), data


def unsent(router):
    """Returns how much the router itself holds for its only client."""
    (connection,) = router.clients._connections
    return connection.transport.get_write_buffer_size()


async def crash(wire, framing, size):
    """Sends what it can, then ends with a RST. Returns how much of head and body came to the router."""
    await wire.request()
    head, body = body_of(framing, size)
    wire.send(head, body)
    came, before = 0, -1
    while came != before:  # until nothing moves: the client reads nothing
        before = came
        for _ in range(10):
            await settled()
        came = came_to_the_router(wire, len(head) + len(body))
    wire.reset()
    return came, len(head)


@pytest.mark.parametrize("size", [3 * MB, 30 * MB])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("framing", ["length", "chunked", "until close"])
@pytest.mark.parametrize("is_secure", [False, True])
async def test_a_slow_client_gets_all_that_had_come_before_a_crash_and_sees_the_cut(
    start_router, pod, contexts, is_secure, framing, version, size
):
    router = await start_router(tls=contexts[0] if is_secure else None)
    router.knows(pod)
    client = await router.connect(tls=contexts[1] if is_secure else None)
    client.send(request(version=version))
    sandbox = await pod.accept()
    client.stop_reading()
    came, head_size = await crash(sandbox, framing, size)
    assert came > HELD
    for _ in range(10):
        await settled()
    client.start_reading()
    await until(lambda: client.ended)
    head, _, rest = bytes(client.unread).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    said = body_of(framing, size)[1]
    if framing == "until close" and version == "HTTP/1.1":
        rest = b"".join(part for part in chunks_of(rest))
    elif framing == "chunked" and version == "HTTP/1.0":
        said = said.partition(b"\r\n")[2]
    assert len(rest) >= came - head_size - 64, "every byte that came arrives"
    assert said.startswith(rest)
    is_delimited = framing == "length" or version == "HTTP/1.1"
    assert client.ended == ("eof" if is_delimited else "reset")
    outcome = await router.outcome()
    assert outcome.code == "response_cut"
    assert abs(outcome.bytes_to_client - len(rest)) < 64


def chunks_of(data):
    """Yields the bodies of whole chunks, and fails when the last one says the end."""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        assert length, "the body looks whole"
        yield data[:length]
        data = data[length + 2 :]


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
async def test_a_slow_client_that_says_no_more_gets_what_had_come_and_its_sandbox_is_told_at_once(
    router, pod, version
):
    router.shrink_buffers()
    client = await router.connect(buffers=8192)
    client.send(request(version=version))
    sandbox = await pod.accept()
    client.stop_reading()
    await sandbox.request()
    sandbox.send(*body_of("until close", HELD))
    for _ in range(10):
        await settled()
    client.half_close()
    assert await sandbox.end() in ("eof", "reset")
    client.start_reading()
    await until(lambda: client.ended)
    assert len(client.unread) >= HELD
    assert client.ended == ("eof" if version == "HTTP/1.1" else "reset")


@pytest.mark.parametrize("framing", ["length", "until close"])
async def test_the_end_of_a_drain_lets_a_client_have_what_had_come(router, pod, framing):
    router.shrink_buffers()
    client = await router.connect(buffers=8192)
    client.send(request(version="HTTP/1.0"))
    sandbox = await pod.accept()
    client.stop_reading()
    await sandbox.request()
    sandbox.send(*body_of(framing, HELD))
    for _ in range(10):
        await settled()
    router.clients.end_now()
    client.start_reading()
    await until(lambda: client.ended)
    assert len(client.unread) >= HELD
    assert client.ended == ("eof" if framing == "length" else "reset")
    assert (await router.outcome()).code == "stream_drained"


async def test_a_client_that_reads_nothing_more_is_given_up(router, pod):
    router.shrink_buffers()
    client = await router.connect(buffers=8192)
    client.send(request(version="HTTP/1.0"))
    sandbox = await pod.accept()
    client.stop_reading()
    await sandbox.request()
    sandbox.send(answer(200, length=False))
    sent = 0
    # Until the router holds some of it, and so little that it goes on reading and hears of the crash.
    while not unsent(router):
        sandbox.send(PIECE[:2000])
        sent += 2000
        await settled()
    sandbox.reset()
    await until(lambda: not router.pool.active_count)
    router.pass_time(29)
    assert len(router.clients) == 1
    router.pass_time(2)
    await until(lambda: not len(router.clients))
    assert 0 < (await router.outcome()).bytes_to_client < sent
