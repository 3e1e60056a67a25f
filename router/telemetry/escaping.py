"""Text from outside, made safe to print: no control character, line break or terminal escape survives."""

from __future__ import annotations

CUT_MARK = "..."

# RFC 3986 knows neither quotes nor backslashes in a path: encoded, they need no second escaping in JSON.
_KEPT_IN_PATHS = frozenset(range(0x21, 0x7F)) - frozenset(b'"\\')
_PATH_TEXT = tuple(chr(byte) if byte in _KEPT_IN_PATHS else f"%{byte:02X}" for byte in range(256))


def printable(text: str, limit: int) -> str:
    """Returns at most `limit` characters of `text`, with what is not printable as Python escapes (`\\x1b`, `\\u2028`).

    Not printable are also line separators, text direction overrides and lone surrogates.
    """
    if len(text) <= limit and text.isprintable():
        return text
    escaped = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text[: limit + 1]
    )
    return _cut(escaped, limit)


def path_of(target: bytes) -> bytes:
    """Returns what of a request target may be written down: nothing from `?` or `#` on, and no user and password."""
    path = target.partition(b"?")[0].partition(b"#")[0]
    if path.startswith(b"/"):
        return path
    scheme, separator, rest = path.partition(b"://")
    authority, slash, below = rest.partition(b"/")
    return b"".join((scheme, separator, authority.rpartition(b"@")[2], slash, below))


def printable_path(path: bytes, limit: int) -> str:
    """Returns at most `limit` characters of a path, with everything but visible ASCII percent-encoded."""
    return _cut("".join([_PATH_TEXT[byte] for byte in path[: limit + 1]]), limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(0, limit - len(CUT_MARK))] + CUT_MARK
