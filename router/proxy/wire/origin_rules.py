"""What of a response works beyond its sandbox: on other hosts, or on an origin that sandboxes share.

Pure functions on header values, for a sandbox that has a host of its own: each returns what may cross, b"" for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from router.proxy.wire.header_rules import Kind
from router.routing.path_scope import without_domain

_OF_ONE_ORIGIN: Final = {
    b'"cache"': b'"cache"',
    b'"storage"': b'"storage"',
    b'"executioncontexts"': b'"executionContexts"',
    b'"clienthints"': b'"clientHints"',
    b'"prefetchcache"': b'"prefetchCache"',
    b'"prerendercache"': b'"prerenderCache"',
}
_EVERYTHING: Final = b'"*"'
_MAX_ELEMENTS: Final = 64
_OTHER_HOST = re.compile(rb'="(?!:)')


def own_site_data(value: bytes) -> bytes:
    """Returns a Clear-Site-Data without what browsers clear for a whole domain: cookies, which siblings have too."""
    if value.count(b",") > _MAX_ELEMENTS:
        return b""
    asked = [element.strip(b" \t").lower() for element in value.split(b",")]
    if _EVERYTHING in asked:
        return b", ".join(_OF_ONE_ORIGIN.values())
    return b", ".join(_OF_ONE_ORIGIN[element] for element in asked if element in _OF_ONE_ORIGIN)


def own_transport_security(value: bytes) -> bytes:
    """Returns a Strict-Transport-Security or Public-Key-Pins for this host without those below it."""
    if b"includesubdomains" not in value.lower() and b"preload" not in value.lower():
        return value
    if value.count(b";") > _MAX_ELEMENTS:
        return b""
    kept = [
        directive
        for directive in value.split(b";")
        if directive.partition(b"=")[0].strip(b" \t").lower()
        not in (b"includesubdomains", b"preload")
    ]
    return b";".join(kept).strip(b" \t")


def own_reporting(value: bytes) -> bytes:
    """Returns a NEL or Report-To unless it is for hosts below this one too (JSON, in which an escape may hide that)."""
    return b"" if b"include_subdomains" in value.lower() or b"\\" in value else value


def own_alternatives(value: bytes) -> bytes:
    """Returns an Alt-Svc unless it names another host."""
    return b"" if _OTHER_HOST.search(value) else value


def _as_it_came(value: bytes) -> bytes:
    return value


ON_A_HOST_OF_ITS_OWN: Final[dict[int, Callable[[bytes], bytes]]] = {
    Kind.SET_COOKIE: without_domain,
    Kind.SET_COOKIE2: without_domain,
    Kind.WORKER_SCOPE: _as_it_came,
    Kind.CLEAR_SITE_DATA: own_site_data,
    Kind.TRANSPORT_SECURITY: own_transport_security,
    Kind.REPORTING: own_reporting,
    Kind.ALT_SVC: own_alternatives,
    Kind.ORIGIN_WIDE: _as_it_came,
}
"""What becomes of each kind's value where the sandbox shares its origin with nobody; where it does, only cookies cross."""
