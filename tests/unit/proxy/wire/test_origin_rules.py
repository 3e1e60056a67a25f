"""What works beyond a host of its own is taken out of a response."""

from __future__ import annotations

import pytest

from router.proxy.wire.origin_rules import (
    own_alternatives,
    own_reporting,
    own_site_data,
    own_transport_security,
)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (b'"cache"', b'"cache"'),
        (b'"cache","COOKIES" , "storage"', b'"cache", "storage"'),
        (b'"executionContexts"', b'"executionContexts"'),
        (b'"unheard-of"', b""),
        (b"", b""),
        (b"," * 1000 + b'"cache"', b""),
    ],
)
def test_cookies_of_the_whole_domain_are_not_cleared(value: bytes, left: bytes) -> None:
    assert own_site_data(value) == left


def test_clearing_everything_clears_what_is_the_origins_own() -> None:
    left = own_site_data(b'"*"')
    assert b'"storage"' in left
    assert b"cookies" not in left


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (b"max-age=1", b"max-age=1"),
        (b"max-age=1 ; IncludeSubDomains;preload", b"max-age=1 "),
        (b"includeSubDomains; max-age=1", b"max-age=1"),
        (b"includeSubDomains=1;max-age=1", b"max-age=1"),
        (b"includeSubDomains" + b";" * 1000, b""),
    ],
)
def test_security_of_hosts_below_is_not_promised(value: bytes, left: bytes) -> None:
    assert own_transport_security(value).strip() == left.strip()


@pytest.mark.parametrize(
    ("value", "crosses"),
    [
        (b'{"report_to":"x","max_age":1}', True),
        (b'{"include_subdomains":false}', False),
        (b'{"Include_Subdomains":true}', False),
        (b'{"include\\u005fsubdomains":true}', False),
    ],
)
def test_reports_about_hosts_below_are_not_asked_for(value: bytes, crosses: bool) -> None:
    assert own_reporting(value) == (value if crosses else b"")


@pytest.mark.parametrize(
    ("value", "crosses"),
    [
        (b'h3=":443"; ma=86400; persist=1', True),
        (b"clear", True),
        (b'h2="other:443"', False),
        (b'h3=":443", h2="other:443"', False),
        (b'h2="\\other:443"', False),
    ],
)
def test_no_other_host_is_an_alternative(value: bytes, crosses: bool) -> None:
    assert own_alternatives(value) == (value if crosses else b"")
