"""Stripped: what of a front must not reach a sandbox, such as its session cookie or the names of who signed in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_MAX_KEPT: Final = 256
_MAX_KEPT_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class Names:
    """Names as they are, and beginnings of names."""

    whole: frozenset[bytes]
    beginnings: tuple[bytes, ...]

    @classmethod
    def of(cls, patterns: Iterable[bytes]) -> Names:
        """Returns the names that the patterns stand for: each a name, or with a `*` at its end a beginning."""
        patterns = tuple(patterns)
        return cls(
            whole=frozenset(p for p in patterns if not p.endswith(b"*")),
            beginnings=tuple(p[:-1] for p in patterns if p.endswith(b"*")),
        )

    def hold(self, name: bytes) -> bool:
        return name in self.whole or name.startswith(self.beginnings)


@dataclass(frozen=True, slots=True)
class Stripped:
    """The settings `strip-headers` and `strip-cookies`. Header names are in lower case with hyphens."""

    headers: Names
    cookies: Names
    _kept: dict[bytes, bytes] = field(default_factory=dict, compare=False, repr=False)
    """What is left of Cookie values seen lately: a browser's come again and again (bench/plane_cases.py)."""

    @classmethod
    def of(cls, headers: Iterable[str], cookies: Iterable[str]) -> Stripped | None:
        """Returns what is to be stripped, None for nothing."""
        header_names = Names.of(h.lower().replace("_", "-").encode("ascii") for h in headers)
        cookie_names = Names.of(c.encode("ascii") for c in cookies)
        if header_names == cookie_names == Names.of(()):
            return None
        return cls(headers=header_names, cookies=cookie_names)

    @classmethod
    def every_cookie(cls, other: Stripped | None) -> Stripped:
        """Returns what strips all cookies, and of headers what `other` does."""
        headers = Names.of(()) if other is None else other.headers
        return cls(headers=headers, cookies=Names.of((b"*",)))

    @property
    def has_headers(self) -> bool:
        """Whether any header is stripped."""
        return bool(self.headers.whole or self.headers.beginnings)

    def places(self, lines: list[bytes]) -> list[int]:
        """Returns which lines are stripped headers; underscores count as hyphens, as they do for CGI and WSGI."""
        return [
            at
            for at in range(1, len(lines) - 2)
            if self.headers.hold(lines[at].partition(b":")[0].lower().replace(b"_", b"-"))
        ]

    def without_cookies(self, value: bytes) -> bytes:
        """Returns a Cookie header's value without the stripped cookies; as it came when it has none of them."""
        known = self._kept.get(value)
        if known is not None:
            return known
        pairs = value.split(b";")
        kept = [p for p in pairs if not self.cookies.hold(p.partition(b"=")[0].strip(b" \t"))]
        left = value if len(kept) == len(pairs) else b";".join(kept).strip(b" \t")
        if len(value) <= _MAX_KEPT_BYTES:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[value] = left
        return left
