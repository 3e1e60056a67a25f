"""What leads back to a sandbox through the router, and keeps one that is reached by path under its own root.

Pure functions on header values. `root` is Target.path_root: `/prefix/namespace/name/port`; empty where the sandbox has the
whole of the client's URL space.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from router.routing.authority import canonical_authority

_ABSOLUTE = re.compile(rb"(?:([hH][tT][tT][pP][sS]?):)?//([^/?#\\]*)(.*)", re.DOTALL)
_WHITESPACE = b" \t"
_REFRESH = re.compile(
    rb"([0-9.]*+(?:[ \t]++[;,]?|[;,])[ \t]*+(?:[uU][rR][lL][ \t]*+=[ \t]*+)?+)(.*)", re.DOTALL
)
_MAX_ATTRIBUTES = 64
"""More than any cookie has; what costs its length in work is looked at no further."""


def scoped_location(value: bytes, *, root: bytes, own_authorities: Collection[bytes]) -> bytes:
    """Returns a Location as it must read to lead to the same place through the router.

    An absolute path gets the root in front; an http(s) or scheme-less URL at one of the sandbox's own authorities becomes
    root and path; relative, foreign and already rooted ones stay as they are.
    """
    if value.startswith(b"/") and not value.startswith(b"//"):
        return value if _is_under(value, root) else root + value
    match = _ABSOLUTE.fullmatch(value)
    if match is None or not match[2]:
        return value
    scheme = (match[1] or b"").lower()
    authority = canonical_authority(match[2], scheme)
    if not any(authority == canonical_authority(own, scheme) for own in own_authorities):
        return value
    path: bytes = match[3]
    if not path.startswith(b"/"):
        path = b"/" + path
    if not root and path.startswith((b"//", b"/\\")):
        return b"/." + path  # alone it would name a host
    return path if _is_under(path, root) else root + path


def scoped_refresh(value: bytes, *, root: bytes, own_authorities: Collection[bytes]) -> bytes:
    """Returns a Refresh whose URL is as scoped_location() makes it; without a URL it stays as it is."""
    match = _REFRESH.fullmatch(value)
    if match is None:
        return value
    before, rest = match.groups()
    quote = rest[:1] if rest[:1] in (b'"', b"'") else b""
    url, end, after = rest[1:].partition(quote) if quote else (rest, b"", b"")
    url = scoped_location(url, root=root, own_authorities=own_authorities) if url else url
    return b"".join((before, quote, url, end, after))


def scoped_worker_scope(value: bytes, *, root: bytes) -> bytes:
    """Returns a Service-Worker-Allowed that allows nothing outside of the root; b"" when that can't be told."""
    if b".." in value or b"\\" in value or b"%2e" in value.lower():
        return b""
    if not value.startswith(b"/"):
        return b"" if b":" in value else value  # below the script's own directory
    # Scopes are compared as text, without regard to segments.
    if value == root or value.startswith(root + b"/"):
        return value if value != root else root + b"/"
    return root + value


def without_domain(value: bytes) -> bytes:
    """Returns a Set-Cookie for the client's own host alone: as it came, or without its Domain; b"" for what is no cookie."""
    if b"domain" not in value.lower():
        return value
    if value.count(b";") > _MAX_ATTRIBUTES:
        return b""
    first, *attributes = value.split(b";")
    kept = [a for a in attributes if a.partition(b"=")[0].strip(_WHITESPACE).lower() != b"domain"]
    return b";".join([first, *kept])


def scoped_set_cookie(value: bytes, *, root: bytes, request_path: bytes) -> bytes:
    """Returns a Set-Cookie that the browser sends back to this sandbox alone: Path under the root, no Domain.

    `request_path` is the path that the sandbox itself saw (a query is ignored): it decides where Path is missing, empty or not
    rooted (RFC 6265 §5.1.4). Every other attribute stays byte for byte. b"" for what is no cookie.
    """
    if value.count(b";") > _MAX_ATTRIBUTES:
        return b""
    first, *attributes = value.split(b";")
    kept = [first]
    has_path = False
    for attribute in attributes:
        name, _, path = attribute.partition(b"=")
        name = name.strip(_WHITESPACE).lower()
        if name == b"domain":
            continue
        if name == b"path":
            has_path = True
            # RFC 6265 takes the last Path; scoping each leaves no other reading.
            attribute = b"%s=%s" % (
                attribute.partition(b"=")[0],
                _scoped_path(path.strip(_WHITESPACE), root, request_path),
            )
        kept.append(attribute)
    if not has_path:
        kept.append(b" Path=" + _scoped_path(b"", root, request_path))
    return b";".join(kept)


def _scoped_path(path: bytes, root: bytes, request_path: bytes) -> bytes:
    if not path.startswith(b"/"):
        path = _default_path(request_path)
    return path if _is_under(path, root) else root + path


def _default_path(request_path: bytes) -> bytes:
    """Returns the default-path of RFC 6265 §5.1.4."""
    path = request_path.partition(b"?")[0]
    if not path.startswith(b"/"):
        return b"/"
    return path[: path.rindex(b"/")] or b"/"


def _is_under(path: bytes, root: bytes) -> bool:
    return path.startswith(root) and path[len(root) : len(root) + 1] in (b"", b"/", b"?", b"#")
