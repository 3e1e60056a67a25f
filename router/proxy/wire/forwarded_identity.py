"""Who has signed in at a proxy in front, from the headers that it writes. Whether to believe them is for others to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from router.auth.authenticator import ForwardedIdentity
from router.proxy.wire.request_head import RequestHead

_MAX_BYTES: Final = 4096
_MAX_GROUPS: Final = 256
NOBODY: Final = ForwardedIdentity("")
"""The headers are there, and don't name one person."""


@dataclass(frozen=True, slots=True)
class IdentityHeaders:
    """The names of the headers, in lower case; `groups` b"" for none."""

    identity: bytes
    groups: bytes = b""

    def read(self, head: RequestHead) -> ForwardedIdentity | None:
        """Returns who has signed in, None when no header says so; NOBODY for several, or for what is no name.

        Only this very spelling counts: one with underscores may have come past a proxy that takes the real one out. A list
        is none either: it is what becomes of two headers, of which the client may have sent one.
        """
        names, groups = self._values(head, self.identity), []
        if not names:
            return None
        if self.groups:
            groups = self._values(head, self.groups)
        if len(names) > 1 or len(groups) > 1 or b"," in names[0]:
            return NOBODY
        subject = _text(names[0])
        listed = _text(groups[0]) if groups else ""
        if not subject or listed is None:
            return NOBODY
        found = tuple(part for part in (g.strip() for g in listed.split(",")) if part)
        return ForwardedIdentity(subject, found) if len(found) <= _MAX_GROUPS else NOBODY

    def _values(self, head: RequestHead, wanted: bytes) -> list[bytes]:
        found = []
        for line in head.lines[1:-2]:
            name, _, value = line.partition(b":")
            if name.lower() == wanted:
                found.append(value.strip(b" \t"))
        return found


def _text(value: bytes) -> str | None:
    """Returns printable text; None for anything else."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if len(value) <= _MAX_BYTES and text.isprintable() else None
