"""Heads that only an attack has: too many lines, too many options."""

from __future__ import annotations

import pytest

from router.errors import BadResponse, HeadersTooLarge, MalformedMessage
from tests.unit.proxy.wire.test_request_head import request, response


def test_more_header_lines_than_anybody_needs_are_refused_both_ways() -> None:
    lines = ["A: b"] * 1001
    with pytest.raises(HeadersTooLarge):
        request(*lines)
    with pytest.raises(BadResponse):
        response(*lines)


@pytest.mark.parametrize("name", ["Connection", "TE"])
def test_a_list_of_many_options_is_refused(name: str) -> None:
    with pytest.raises(MalformedMessage, match="Too many options"):
        request(f"{name}: " + "a," * 64)


def test_many_offers_of_an_upgrade_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="Too many options"):
        request("Connection: upgrade", "Upgrade: " + "a," * 64)


def test_many_connection_lines_are_counted_together() -> None:
    with pytest.raises(MalformedMessage, match="Too many options"):
        request("Upgrade: a", *["Connection: upgrade"] * 65)
    with pytest.raises(BadResponse):
        response(*["Connection: x"] * 65)
