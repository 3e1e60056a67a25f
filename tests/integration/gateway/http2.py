"""An HTTP/2 client that shows what comes frame by frame: many streams on one TLS connection, extended CONNECT (RFC 8441) too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from tests.deploy.fronts import HOST, Front

PATIENCE_S = 30.0
_WINDOW = 1 << 20
_LARGEST_PIECE = 1 << 16

Headers = Iterable[tuple[str, str]]


class StreamReset(Exception):
    """The other side ended the stream before its end."""


@dataclass
class Head:
    """An answer's head; `interim` are the 1xx answers before it."""

    status: int
    headers: dict[str, str]
    interim: list[int] = field(default_factory=list)


class Stream:
    """One request and its answer. Waiting is bounded: what doesn't come within PATIENCE_S fails the test."""

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self._number = number
        self._interim: list[int] = []
        self._head: asyncio.Future[Head] = asyncio.get_running_loop().create_future()
        self._pieces: asyncio.Queue[bytes | StreamReset] = asyncio.Queue()
        self._has_room = asyncio.Event()

    async def head(self) -> Head:
        """Returns the final answer's head. Raises StreamReset."""
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.shield(self._head)

    async def piece(self) -> bytes:
        """Returns the next piece of the body as it came, b"" at the end. Raises StreamReset."""
        async with asyncio.timeout(PATIENCE_S):
            piece = await self._pieces.get()
        if isinstance(piece, StreamReset):
            raise piece
        self._client.took(self._number, len(piece))
        return piece

    async def body(self) -> bytes:
        """Returns the rest of the body."""
        pieces = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)

    async def send(self, data: bytes, *, end: bool = False) -> None:
        """Sends, as fast as the other side gives room. Raises StreamReset."""
        at = 0
        while at < len(data):
            size = min(self._client.room(self._number), len(data) - at, _LARGEST_PIECE)
            if size == 0:
                await self._wait_for_room()
                continue
            at += size
            await self._client.send(self._number, data[at - size : at], end=end and at == len(data))
        if end and not data:
            await self._client.send(self._number, b"", end=True)

    def cancel(self) -> None:
        """Wants no more of it."""
        self._client.reset(self._number)

    async def _wait_for_room(self) -> None:
        self._has_room.clear()
        async with asyncio.timeout(PATIENCE_S):
            await self._has_room.wait()

    # --- called by the client ---

    def began(self, event: h2.events.ResponseReceived) -> None:
        headers = {_text(name): _text(value) for name, value in event.headers or ()}
        self._head.set_result(Head(int(headers[":status"]), headers, self._interim))

    def interim(self, event: h2.events.InformationalResponseReceived) -> None:
        self._interim.append(int(dict(event.headers or ())[b":status"]))

    def came(self, data: bytes) -> None:
        if data:
            self._pieces.put_nowait(data)

    def ended(self) -> None:
        self._pieces.put_nowait(b"")

    def failed(self, reason: str) -> None:
        error = StreamReset(reason)
        if not self._head.done():
            self._head.set_exception(error)
            self._head.exception()  # nobody may be waiting
        self._pieces.put_nowait(error)
        self._has_room.set()

    def has_room(self) -> None:
        self._has_room.set()


class Client:
    """One connection. Make it with connected()."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._streams: dict[int, Stream] = {}
        self._may_connect = asyncio.Event()
        # Headers go out as a test wrote them: a hostile client isn't held back by its own library.
        config = h2.config.H2Configuration(
            client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self._h2 = h2.connection.H2Connection(config)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW)
        self._flush()

    async def request(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        *,
        host: str = HOST,
        has_body: bool = False,
    ) -> Stream:
        """Begins a request; a body is sent with Stream.send."""
        pseudo = [(":method", method), (":scheme", "https"), (":authority", host)]
        return self._open([*pseudo, (":path", target), *headers], end=not has_body)

    async def ask(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        *,
        body: bytes = b"",
        host: str = HOST,
    ) -> tuple[Head, bytes]:
        """Returns the whole answer to a request."""
        stream = await self.request(method, target, headers, host=host, has_body=bool(body))
        if body:
            await stream.send(body, end=True)
        return await stream.head(), await stream.body()

    async def websocket(self, target: str, headers: Headers = (), *, host: str = HOST) -> Stream:
        """Begins a WebSocket: extended CONNECT, as soon as the other side has said that it knows it."""
        async with asyncio.timeout(PATIENCE_S):
            await self._may_connect.wait()
        pseudo = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https")]
        more = [("sec-websocket-version", "13"), *headers]
        return self._open([*pseudo, (":authority", host), (":path", target), *more], end=False)

    def _open(self, headers: list[tuple[str, str]], *, end: bool) -> Stream:
        number = self._h2.get_next_available_stream_id()
        stream = self._streams[number] = Stream(self, number)
        self._h2.send_headers(number, headers, end_stream=end)
        self._flush()
        return stream

    # --- for streams ---

    def room(self, number: int) -> int:
        """Returns how many bytes may be sent on a stream now. Raises StreamReset."""
        try:
            window = self._h2.local_flow_control_window(number)
        except h2.exceptions.StreamClosedError:
            raise StreamReset("the stream is closed") from None
        return min(window, self._h2.max_outbound_frame_size)

    async def send(self, number: int, data: bytes, *, end: bool) -> None:
        try:
            self._h2.send_data(number, data, end_stream=end)
        except h2.exceptions.StreamClosedError:
            raise StreamReset("the stream is closed") from None
        self._flush()
        await self._writer.drain()

    def took(self, number: int, size: int) -> None:
        """Gives room for as much as a test has read, and for no more: a slow reader is a slow client."""
        if size:
            with contextlib.suppress(h2.exceptions.StreamClosedError):
                self._h2.acknowledge_received_data(size, number)
            self._flush()

    def reset(self, number: int) -> None:
        self._h2.reset_stream(number, error_code=8)  # CANCEL
        self._flush()

    # --- reading ---

    async def run(self) -> None:
        """Takes frames until the connection ends."""
        while data := await self._reader.read(1 << 16):
            for event in self._h2.receive_data(data):
                self._handle(event)
            self._flush()
        for stream in self._streams.values():
            stream.failed("the connection ended")

    def _handle(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RemoteSettingsChanged):
            changed = event.changed_settings.get(h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL)
            if changed is not None and changed.new_value == 1:
                self._may_connect.set()
        if isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
            for stream in self._streams.values():
                stream.has_room()
            return
        stream = self._streams.get(getattr(event, "stream_id", 0))
        if stream is None:
            return
        if isinstance(event, h2.events.ResponseReceived):
            stream.began(event)
        elif isinstance(event, h2.events.InformationalResponseReceived):
            stream.interim(event)
        elif isinstance(event, h2.events.DataReceived):
            self._h2.acknowledge_received_data(_padding(event), event.stream_id)
            stream.came(event.data)
        elif isinstance(event, h2.events.StreamEnded):
            stream.ended()
        elif isinstance(event, h2.events.StreamReset):
            stream.failed(f"reset with code {event.error_code}")

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())


def _padding(event: h2.events.DataReceived) -> int:
    return event.flow_controlled_length - len(event.data)


def _text(raw: bytes | str) -> str:
    return raw.decode("latin-1") if isinstance(raw, bytes) else raw


@contextlib.asynccontextmanager
async def connected(front: Front, *, address: str = "127.0.0.1") -> AsyncIterator[Client]:
    """Yields a connection to a front, made from this address of the machine."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        front.port,
        ssl=front.tls("h2"),
        server_hostname=HOST,
        local_addr=(address, 0),
    )
    spoken = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    assert spoken == "h2", f"the front speaks {spoken}"
    client = Client(reader, writer)
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(client.run())
        try:
            yield client
        finally:
            reading.cancel()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
