"""Mode `mtls`: who a verified client certificate names, here or at a trusted proxy."""

from __future__ import annotations

import math
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from router.auth.authenticator import CertificateIdentity
from router.auth.principal import Principal
from router.auth.verifier import Reason, Refusal

MAX_REMEMBERED = 4096
MAX_IDENTITY_LENGTH = 1024

NOBODY = CertificateIdentity("", "none")
"""A certificate that was presented and names nobody: an invalid credential where certificates count, which is not the same as none."""

_EXPIRED = Refusal("mtls", Reason.EXPIRED, "The client certificate has expired.")
_NAMELESS = Refusal("mtls", Reason.MALFORMED, "The client certificate names nobody.")

_PAIR = re.compile(r'\s*([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^",;]*)\s*', re.ASCII | re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_RDN_PART = re.compile(
    r"\s*([A-Za-z][A-Za-z0-9-]*|[0-9.]+)\s*=\s*((?:[^,+\\]|\\.)*)(?:[,+]|$)", re.ASCII | re.DOTALL
)
_HEX_BYTES = re.compile(r"(?:\\[0-9A-Fa-f]{2})+", re.ASCII)


class CertificateAuthenticator:
    """Accepts the identity that the TLS layer, or a trusted proxy, vouches for."""

    mode = "mtls"

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._principals: dict[CertificateIdentity, Principal] = {}

    def __repr__(self) -> str:
        return f"<CertificateAuthenticator remembered={len(self._principals)}>"

    def valid_until(self, principal: Principal) -> float:
        """Returns when the certificate that proved `principal` expires; infinity where a trusted proxy watches over that."""
        return math.inf if principal.expires_at is None else principal.expires_at

    def verify(self, certificate: CertificateIdentity) -> Principal | Refusal:
        """Returns the caller; refuses a certificate that expired since the handshake on a connection that is still open."""
        if not certificate.identity:
            return _NAMELESS
        if certificate.not_after is not None and certificate.not_after <= self._clock():
            return _EXPIRED
        principal = self._principals.get(certificate)
        if principal is None:
            if len(self._principals) >= MAX_REMEMBERED:
                self._principals.clear()
            # The same object again and again: what is derived from it is remembered by it.
            principal = self._principals[certificate] = Principal(
                subject=certificate.identity,
                mode="mtls",
                kind=certificate.kind,
                identity=certificate.identity,
                expires_at=certificate.not_after,
            )
        return principal


def identity_of(peer_certificate: Mapping[str, Any] | None) -> CertificateIdentity | None:
    """Returns who the certificate of `SSLObject.getpeercert()` names: its first URI SAN, else DNS SAN, else its one CN.

    NOBODY when it names none; None without a certificate.
    """
    if not peer_certificate:
        return None
    names = peer_certificate.get("subjectAltName", ())
    common_names = [
        value
        for relative_name in peer_certificate.get("subject", ())
        for attribute, value in relative_name
        if attribute == "commonName"
    ]
    not_after = peer_certificate.get("notAfter")
    return _identity(
        uris=[value for kind, value in names if kind == "URI"],
        dns_names=[value for kind, value in names if kind == "DNS"],
        common_names=common_names,
        not_after=ssl.cert_time_to_seconds(not_after) if isinstance(not_after, str) else None,
    )


def parse_xfcc(value: bytes) -> CertificateIdentity:
    """Returns who the last element of an X-Forwarded-Client-Cert value names: the client that the trusted proxy itself saw.

    Elements before it were handed to that proxy by others. NOBODY when it names none or is malformed.
    """
    try:
        return _named_by(list(_last_element(value.decode("utf-8"))))
    except ValueError:
        return NOBODY


def _named_by(pairs: list[tuple[str, str]]) -> CertificateIdentity:
    subjects = [text for key, text in pairs if key == "subject"]
    return _identity(
        uris=[text for key, text in pairs if key == "uri"],
        dns_names=[text for key, text in pairs if key == "dns"],
        common_names=[name for subject in subjects for name in _common_names(subject)],
        not_after=None,
    )


def _identity(
    *, uris: list[str], dns_names: list[str], common_names: list[str], not_after: float | None
) -> CertificateIdentity:
    """Returns the first kind of name that is there. Two common names are nobody's: which of them was vouched for?"""
    if len(common_names) > 1:
        common_names = []
    lower_case = [name.lower() for name in dns_names]
    for kind, names in (("uri", uris), ("dns", lower_case), ("cn", common_names)):
        found = [name for name in names if name]
        if found:
            name = found[0]
            if len(name) > MAX_IDENTITY_LENGTH or not name.isprintable():
                return NOBODY
            return CertificateIdentity(name, kind, not_after)
    return NOBODY


def _last_element(text: str) -> Iterator[tuple[str, str]]:
    """Yields (key in lower case, text) of the last element. Raises ValueError."""
    element: list[tuple[str, str]] = []
    position = 0
    while True:
        pair = _PAIR.match(text, position)
        if pair is None:
            raise ValueError("malformed")
        key, quoted = pair.groups()
        is_quoted = quoted.startswith('"')
        # Envoy escapes the quote alone; other backslashes are the distinguished name's own.
        plain = quoted[1:-1].replace('\\"', '"') if is_quoted else quoted.strip()
        element.append((key.lower(), plain))
        position = pair.end()
        if position == len(text):
            return iter(element)
        if text[position] == ",":
            element = []
        elif text[position] != ";":
            raise ValueError("malformed")
        position += 1


def _common_names(subject: str) -> Iterator[str]:
    """Yields every CN of a distinguished name in the form of RFC 4514. Raises ValueError."""
    position = 0
    while position < len(subject):
        part = _RDN_PART.match(subject, position)
        if part is None:
            raise ValueError("malformed")
        if part.group(1).upper() in ("CN", "2.5.4.3"):
            yield _unescaped(part.group(2))
        position = part.end()


def _unescaped(value: str) -> str:
    """Returns an attribute value without its escapes (RFC 4514 §2.4): hexadecimal pairs are UTF-8."""

    def decoded(match: re.Match[str]) -> str:
        return bytes.fromhex(match.group().replace("\\", "")).decode("utf-8", "replace")

    return _ESCAPED.sub(r"\1", _HEX_BYTES.sub(decoded, value)).strip()
