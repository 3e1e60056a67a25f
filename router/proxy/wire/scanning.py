"""The compiled scanner of heads, made from the tables that the Python reads them by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from router import code_form
from router.proxy.wire.head_lines import Action
from router.proxy.wire.header_rules import REQUEST_KINDS, RESPONSE_KINDS, KindTable, nominated
from router.routing.target import Asked

if TYPE_CHECKING:
    from router.proxy.wire.scanner import RequestScanner, ResponseScanner

IS_COMPILED: Final = "router.proxy.wire.scanner" in code_form.CURRENT.modules
"""True when this process is to use it."""

# Spellings whose kinds the scanner knows from the start; it learns others as they come, while there is room.
_ALSO_COMMON: Final = b"""
accept accept-encoding accept-language access-control-request-headers access-control-request-method age allow cache-control
content-disposition content-encoding content-language content-range content-security-policy content-type cookie date etag
expires if-match if-modified-since if-none-match last-modified link pragma priority range referer retry-after
sec-fetch-dest sec-fetch-mode sec-fetch-site sec-fetch-user server strict-transport-security transfer-encoding user-agent vary via
www-authenticate x-content-type-options x-frame-options x-powered-by x-request-id x-request-start
""".split()


def request_scanner(
    actions: Mapping[int, tuple[int, str | int]], known: Iterable[str]
) -> RequestScanner:
    """Returns a scanner of request heads; `actions` says what each kind's value is for, `known` which names Known has."""
    from router.proxy.wire.scanner import RequestScanner

    return RequestScanner(
        REQUEST_KINDS,
        _spellings(REQUEST_KINDS),
        _by_kind(actions),
        nominated,
        Asked._make,
        len(Asked._fields),
        frozenset(known),
    )


def response_scanner(actions: Mapping[int, tuple[int, str | int]]) -> ResponseScanner:
    """Returns a scanner of response heads; `actions` says what each kind's value is for."""
    from router.proxy.wire.scanner import ResponseScanner

    return ResponseScanner(RESPONSE_KINDS, _spellings(RESPONSE_KINDS), _by_kind(actions), nominated)


def _by_kind(actions: Mapping[int, tuple[int, str | int]]) -> list[tuple[int, str | int]]:
    return [actions.get(kind, (Action.UNSURE, "")) for kind in range(max(actions) + 1)]


def _spellings(kinds: KindTable) -> list[bytes]:
    lower = [*kinds.names, *_ALSO_COMMON]
    return [*lower, *(name.title() for name in lower)]
