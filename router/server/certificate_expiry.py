"""CertificateExpiry: until when the certificates in force are valid, said in the log before it is too late."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

logger = logging.getLogger("sandbox_router.server")

DAY_S: Final = 86_400.0
WARNED_BEFORE_S: Final = 14 * DAY_S

_PEM: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.ASCII | re.DOTALL
)

# ASN.1 tags, X.690 §8.
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18

Element = tuple[int, int, int]
"""Tag, where its content begins, where it ends."""


class CertificateExpiry:
    """Knows when each file's first certificate ends. Belongs to the loop's thread."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<CertificateExpiry {self._ends}>"

    @property
    def not_after(self) -> Mapping[str, float]:
        """By setting: the Unix time at which the first of its certificates ends."""
        return self._ends

    def loaded(self, ends: Mapping[str, float]) -> None:
        """Notes the certificates that are in force from now on, and says what is wrong with them."""
        self._ends = dict(ends)
        self.say()

    def say(self) -> None:
        """Logs an error for each file with an expired certificate, a warning for one that ends within 14 days."""
        now = self._clock()
        for setting, ends_at in self._ends.items():
            left_s = ends_at - now
            fields = {
                "setting": setting,
                "not_after": datetime.fromtimestamp(ends_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "days_left": int(left_s // DAY_S),
            }
            if left_s <= 0:
                logger.error("certificate has expired: renew it now", extra={"fields": fields})
            elif left_s < WARNED_BEFORE_S:
                logger.warning("certificate expires soon: renew it", extra={"fields": fields})

    async def run(self) -> None:
        """Says it again every day; cancel it to stop."""
        while True:
            await asyncio.sleep(DAY_S)
            self.say()


def earliest_end(pem: bytes) -> float | None:
    """Returns the Unix time at which the first of a file's certificates ends, None when none can be read."""
    ends = [end for der in _certificates(pem) if (end := _end_of(der)) is not None]
    return min(ends, default=None)


def _certificates(pem: bytes) -> Iterator[bytes]:
    for match in _PEM.finditer(pem):
        try:
            yield base64.b64decode(match[1])
        except binascii.Error:
            continue


def _end_of(der: bytes) -> float | None:
    """Returns `notAfter` (RFC 5280 §4.1.2.5).

    Read here, because the standard library shows only certificates of authorities, and cryptography costs each worker nine
    megabytes. OpenSSL has accepted the bytes before.
    """
    try:
        certificate = _element(der, 0)
        signed = _element(der, certificate[1])
        fields = _children(der, signed)
        if fields[0][0] == _VERSION:
            fields = fields[1:]
        _serial, _algorithm, _issuer, validity = fields[:4]
        tag, start, end = _children(der, validity)[1]
        return _time(tag, der[start:end].decode("ascii"))
    except (IndexError, ValueError):
        return None


def _time(tag: int, text: str) -> float:
    if tag == _UTC_TIME:
        # Two digits of a year mean 1950 to 2049.
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _children(der: bytes, parent: Element) -> list[Element]:
    found = []
    _, at, end = parent
    while at < end:
        element = _element(der, at)
        found.append(element)
        at = element[2]
    return found


def _element(der: bytes, at: int) -> Element:
    """Returns the element that begins at `at`. Raises IndexError, ValueError."""
    tag, size, start = der[at], der[at + 1], at + 2
    if size & 0x80:
        octets = size & 0x7F
        size, start = int.from_bytes(der[start : start + octets], "big"), start + octets
    if start + size > len(der):
        raise ValueError("cut short")
    return tag, start, start + size
