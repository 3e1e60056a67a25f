"""The certificate that all subjects show."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from bench.certificates import CIPHER, NAME, TLS_VERSION, client_context, write_certificate


async def test_load_and_server_agree_on_the_one_cipher(tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    _reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=client_context(), server_hostname=NAME
    )
    agreed = writer.get_extra_info("cipher")
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()

    assert agreed[:2] == (CIPHER, TLS_VERSION)


def test_one_file_has_both_for_those_who_want_it_so(tmp_path: Path) -> None:
    files = write_certificate(tmp_path)

    assert files.both.read_bytes() == files.certificate.read_bytes() + files.key.read_bytes()
