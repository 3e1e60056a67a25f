"""TlsContextSource: the TLS context that is in force, made anew whenever the mounted certificates change."""

from __future__ import annotations

import logging
import os
import re
import ssl
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from router.server.certificate_expiry import CertificateExpiry, earliest_end
from router.watched_file import WatchedFiles

logger = logging.getLogger("sandbox_router.server")

# Forward secrecy and authenticated encryption only; TLS 1.3 has no others.
_TLS12_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"

_VERIFY_MODES: Final = {
    "off": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

_MAX_DISCARDED_BYTES: Final = 65536
"""What a client may go on sending after its handshake has failed: its first request, and more of it in flight."""

_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.ASCII | re.DOTALL
)

HANDSHAKE_FAILURES: Final = (
    "no_certificate",
    "bad_certificate",
    "refused_by_client",
    "version_or_cipher",
    "not_tls",
    "other",
)
"""The closed set of reasons; a metric's label."""

_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no_certificate",
    "CERTIFICATE_VERIFY_FAILED": "bad_certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "refused_by_client",
    "SSLV3_ALERT_BAD_CERTIFICATE": "refused_by_client",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "refused_by_client",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "refused_by_client",
    "UNSUPPORTED_PROTOCOL": "version_or_cipher",
    "VERSION_TOO_LOW": "version_or_cipher",
    "NO_SHARED_CIPHER": "version_or_cipher",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "version_or_cipher",
    "HTTP_REQUEST": "not_tls",
    "WRONG_VERSION_NUMBER": "not_tls",
    "HTTPS_PROXY_REQUEST": "not_tls",
    "RECORD_LAYER_FAILURE": "not_tls",
    "PACKET_LENGTH_TOO_LONG": "not_tls",
}


class Handshakes:
    """Counts handshakes; a failed one is a line in the log, never a traceback."""

    def __init__(self) -> None:
        self.completed = 0
        self.failed: Counter[str] = Counter()
        """By reason, from HANDSHAKE_FAILURES."""

    def __repr__(self) -> str:
        return f"<Handshakes completed={self.completed} failed={dict(self.failed)}>"

    def note_failure(self, error: ssl.SSLError) -> None:
        """Counts and logs one."""
        reason = _REASONS.get(error.reason or "", "other")
        self.failed[reason] += 1
        logger.info(
            "TLS handshake failed",
            extra={"fields": {"reason": reason, "library_reason": error.reason or ""}},
        )


class _Loaded(NamedTuple):
    """A context, and when the certificates behind it end (Unix time by setting)."""

    context: ssl.SSLContext
    ends: dict[str, float]


class TlsContextSource:
    """Builds the server's context from files: TLS 1.2 and later, HTTP/1.1, client certificates as `mtls` says.

    A new context replaces the old one as a whole, so that sessions resumed under it were verified under its own client CA. Files
    that can't be used leave the old context in force.
    """

    def __init__(
        self,
        *,
        cert_file: Path,
        key_file: Path,
        client_ca_file: Path | None,
        mtls: str,
        on_change: Callable[[ssl.SSLContext], None],
        poll_interval_s: float = 1.0,
    ) -> None:
        if mtls != "off" and client_ca_file is None:
            raise ValueError(f"mtls `{mtls}` needs tls-client-ca-file")
        self._mtls = mtls
        self._on_change = on_change
        self._context: ssl.SSLContext | None = None
        self.handshakes = Handshakes()
        self.expiry = CertificateExpiry()
        paths = [cert_file, key_file]
        if mtls != "off" and client_ca_file is not None:
            paths.append(client_ca_file)
        self.files: WatchedFiles[_Loaded] = WatchedFiles(
            paths, parse=self._load, apply=self._put_in_force, poll_interval_s=poll_interval_s
        )

    def __repr__(self) -> str:
        return f"<TlsContextSource mtls={self._mtls} {self.files!r} {self.handshakes!r}>"

    @property
    def context(self) -> ssl.SSLContext:
        """The context for new connections; load_once() must have succeeded."""
        if self._context is None:
            raise RuntimeError("no certificate has been loaded yet")
        return self._context

    def load_once(self) -> None:
        """Loads the files for the first time. Raises ValueError or OSError that names them."""
        self.files.load_once()

    async def run(self) -> None:
        """Watches the files for ever; cancel it to stop."""
        await self.files.run()

    def _put_in_force(self, loaded: _Loaded) -> None:
        is_change = self._context is not None
        self._context = loaded.context
        self.expiry.loaded(loaded.ends)
        if is_change:
            self._on_change(loaded.context)

    def _load(self, contents: tuple[bytes, ...]) -> _Loaded:
        """Returns what these contents make. Raises ValueError."""
        certificate, _, *client_cas = contents
        ends = {"tls-cert-file": earliest_end(certificate)}
        if client_cas:
            ends["tls-client-ca-file"] = earliest_end(client_cas[0])
        known = {setting: end for setting, end in ends.items() if end is not None}
        return _Loaded(self._build(contents), known)

    def _build(self, contents: tuple[bytes, ...]) -> ssl.SSLContext:
        """Returns a context of these contents: certificate chain, key and, with `mtls`, client CAs. Raises ValueError."""
        context = _ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.handshakes = self.handshakes
        context.sslobject_class = _ServerSide
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_ciphers(_TLS12_CIPHERS)
        context.set_alpn_protocols(["http/1.1"])
        context.verify_mode = _VERIFY_MODES[self._mtls]
        certificate, key, *client_cas = contents
        with _as_file(key.rstrip() + b"\n" + certificate) as path:
            try:
                context.load_cert_chain(path, password=_refuse_password)
            except (ssl.SSLError, OSError) as error:
                raise ValueError(_explain(error)) from error
        for pem in client_cas:
            _trust(context, pem)
        return context


def _trust(context: ssl.SSLContext, pem: bytes) -> None:
    """Accepts client certificates of these CAs; text between the certificates may be in any language."""
    certificates = _CERTIFICATE.findall(pem)
    if not certificates:
        raise ValueError("the client CA file holds no certificate")
    try:
        context.load_verify_locations(cadata=b"\n".join(certificates).decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"the client CA file is broken: {error}") from error


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yields the name of a file with `content`: the library loads keys from files alone, and the mounted ones may be swapped meanwhile."""
    if hasattr(os, "memfd_create"):
        descriptor, directory = os.memfd_create("tls", os.MFD_CLOEXEC), None
        path = f"/proc/self/fd/{descriptor}"
    else:
        directory = tempfile.TemporaryDirectory()
        path = os.path.join(directory.name, "tls.pem")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield path
    finally:
        os.close(descriptor)
        if directory is not None:
            directory.cleanup()


def _refuse_password() -> NoReturn:
    """Without this the library would ask for it at the terminal and wait."""
    raise ValueError("the key is encrypted: mount it without a passphrase")


def _explain(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    return f"the certificate or key cannot be used: {reason or error}"


class _ServerContext(ssl.SSLContext):
    """Makes the TLS connections of a listener: counted, and with their buffers known."""

    handshakes: Handshakes

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _ServerSide)
        made.handshakes, made.incoming, made.outgoing = self.handshakes, incoming, outgoing
        return made


class _ServerSide(ssl.SSLObject):
    """One TLS connection. A handshake that fails ends only after the client was told why.

    The library leaves the alert in `outgoing`, and event loops abort a failed connection without sending what is there. So the
    failure is first reported as "more input is needed", upon which they do send. Then the client closes, or its handshake's time ends.
    """

    handshakes: Handshakes
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    _failure: ssl.SSLError | None = None
    _discarded_bytes = 0

    def do_handshake(self) -> None:
        if self._failure is None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                self.handshakes.note_failure(error)
                if not self.outgoing.pending:
                    raise
                self._failure = error
            else:
                self.handshakes.completed += 1
                return
        # Closing with unread input would reset the connection, and the alert could be lost with it.
        self._discarded_bytes += len(self.incoming.read())
        if self._discarded_bytes > _MAX_DISCARDED_BYTES:
            raise self._failure
        raise ssl.SSLWantReadError
