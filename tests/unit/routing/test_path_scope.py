"""Path mode: Location and Set-Cookie stay under the sandbox's own root."""

from __future__ import annotations

from http.cookies import SimpleCookie

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.routing.path_scope import (
    scoped_location,
    scoped_refresh,
    scoped_set_cookie,
    scoped_worker_scope,
    without_domain,
)

ROOT = b"/s/team-a/box/8888"
OWN = (b"10.0.0.7:8888", b"Router.example.com")


def location(value: bytes) -> bytes:
    return scoped_location(value, root=ROOT, own_authorities=OWN)


def cookie(value: bytes, request_path: bytes = b"/") -> bytes:
    return scoped_set_cookie(value, root=ROOT, request_path=request_path)


@pytest.mark.parametrize(
    ("value", "scoped"),
    [
        (b"/", ROOT + b"/"),
        (b"/lab?next=/x#top", ROOT + b"/lab?next=/x#top"),
        (b"/\xff%2F", ROOT + b"/\xff%2F"),
        (b"/s/team-a/box/88889/x", ROOT + b"/s/team-a/box/88889/x"),
        (b"http://10.0.0.7:8888/lab?x", ROOT + b"/lab?x"),
        (b"http://10.0.0.7:8888", ROOT + b"/"),
        (b"http://10.0.0.7:8888?x", ROOT + b"/?x"),
        (b"HTTPS://ROUTER.example.com/lab", ROOT + b"/lab"),
        (b"https://router.example.com:443/lab", ROOT + b"/lab"),
        (b"http://router.example.com:80/lab", ROOT + b"/lab"),
        (b"//router.example.com/lab", ROOT + b"/lab"),
        (b"https://router.example.com" + ROOT + b"/lab", ROOT + b"/lab"),
    ],
)
def test_a_location_at_the_sandbox_itself_gets_the_root_back(value: bytes, scoped: bytes) -> None:
    assert location(value) == scoped


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"lab",
        b"../up",
        b"?page=2",
        b"#top",
        b"//other.example.com/lab",
        b"///router.example.com/lab",
        b"https://other.example.com/lab",
        b"https://router.example.com.evil.com/",
        b"https://router.example.com@evil.com/",
        b"https://router.example.com:8443/lab",
        b"http://router.example.com:443/lab",
        b"mailto:someone@router.example.com",
        b"ftp://router.example.com/x",
        b"http:/router.example.com/x",
        ROOT,
        ROOT + b"/lab",
        ROOT + b"?x",
    ],
)
def test_a_relative_foreign_or_rooted_location_stays_as_it_is(value: bytes) -> None:
    assert location(value) == value


def test_a_url_without_an_authority_is_never_the_sandboxs_own() -> None:
    for value in (b"///lab", b"http:///lab"):
        assert scoped_location(value, root=ROOT, own_authorities=(b"",)) == value


@given(st.binary(max_size=40))
def test_scoping_a_location_twice_is_scoping_it_once(value: bytes) -> None:
    assert location(location(value)) == location(value)


@pytest.mark.parametrize(
    ("value", "scoped"),
    [
        (b"a=1; Path=/", b"a=1; Path=" + ROOT + b"/"),
        (b"a=1;path=/x/y", b"a=1;path=" + ROOT + b"/x/y"),
        (b"a=1; PATH = /x ; Secure", b"a=1; PATH =" + ROOT + b"/x; Secure"),
        (b"a=1", b"a=1; Path=" + ROOT + b"/"),
        (b"a=1; Path", b"a=1; Path=" + ROOT + b"/"),
        (b"a=1; Path=", b"a=1; Path=" + ROOT + b"/"),
        (b"a=1; Path=x", b"a=1; Path=" + ROOT + b"/"),
        (b'a=1; Path="/x"', b"a=1; Path=" + ROOT + b"/"),
        (b"a=1; Path=/x; Path=/y", b"a=1; Path=" + ROOT + b"/x; Path=" + ROOT + b"/y"),
        (b"a=1; Path=" + ROOT + b"/x", b"a=1; Path=" + ROOT + b"/x"),
        (b"a=1; Domain=example.com; Path=/", b"a=1; Path=" + ROOT + b"/"),
        (b"a=1; domain =.example.com;Domain; HttpOnly", b"a=1; HttpOnly; Path=" + ROOT + b"/"),
    ],
)
def test_a_cookie_is_sent_back_to_its_sandbox_alone(value: bytes, scoped: bytes) -> None:
    assert cookie(value) == scoped


@pytest.mark.parametrize(
    ("request_path", "default_path"),
    [
        (b"/", b"/"),
        (b"/login", b"/"),
        (b"/hub/login", b"/hub"),
        (b"/hub/login/", b"/hub/login"),
        (b"/hub/login?next=/a/b", b"/hub"),
        (b"", b"/"),
        (b"*", b"/"),
    ],
)
def test_a_cookie_without_a_path_gets_the_default_path_of_the_sandboxs_own_url(
    request_path: bytes, default_path: bytes
) -> None:
    assert cookie(b"a=1", request_path) == b"a=1; Path=" + ROOT + default_path
    assert cookie(b"a=1; Path=x", request_path) == b"a=1; Path=" + ROOT + default_path


def test_all_other_attributes_stay_byte_for_byte() -> None:
    value = b"n\xe9=\xff=;x; Expires=Wed, 21 Oct 2026 07:28:00 GMT;Max-Age=0 ; SameSite=Lax;; Partitioned"
    assert cookie(value + b"; Path=/p") == value + b"; Path=" + ROOT + b"/p"


def test_a_cookie_whose_own_name_is_path_or_domain_keeps_it() -> None:
    assert cookie(b"path=/; Path=/") == b"path=/; Path=" + ROOT + b"/"
    assert cookie(b"domain=x; Path=/") == b"domain=x; Path=" + ROOT + b"/"


@given(
    st.lists(
        st.sampled_from(
            ["Path=/", "Path=", "path=/x", "Domain=a.b", "Secure", "Path=" + ROOT.decode()]
        )
    )
)
def test_however_often_attributes_repeat_the_cookie_has_a_scoped_path_and_no_domain(
    attributes: list[str],
) -> None:
    scoped = SimpleCookie(cookie("; ".join(["a=1", *attributes]).encode()).decode())
    assert scoped["a"]["path"].startswith(ROOT.decode())
    assert scoped["a"]["domain"] == ""


# --- Refresh ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "scoped"),
    [
        (b"0; url=/login?x=1", b"0; url=ROOT/login?x=1"),
        (b"5;URL=/a", b"5;URL=ROOT/a"),
        (b"5, url = '/a' rest", b"5, url = 'ROOT/a' rest"),
        (b'0;url="/a"', b'0;url="ROOT/a"'),
        (b'0;url="/a', b'0;url="ROOT/a'),
        (b"0;/a", b"0;ROOT/a"),
        (b"0 /a", b"0 ROOT/a"),
        (b"0;url=https://elsewhere.example/", b"0;url=https://elsewhere.example/"),
        (b"0;url=relative", b"0;url=relative"),
        (b"5", b"5"),
        (b"5;", b"5;"),
        (b"soon; url=/a", b"soon; url=/a"),
    ],
)
def test_the_url_of_a_refresh_is_scoped_like_a_location(value: bytes, scoped: bytes) -> None:
    found = scoped_refresh(value, root=ROOT, own_authorities=OWN)
    assert found == scoped.replace(b"ROOT", ROOT)


# --- Service-Worker-Allowed -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "scoped"),
    [
        (b"/", ROOT + b"/"),
        (b"/app/", ROOT + b"/app/"),
        (ROOT, ROOT + b"/"),
        (ROOT + b"/js/", ROOT + b"/js/"),
        (ROOT + b"8/", ROOT + ROOT + b"8/"),
        (b"//elsewhere.example/", ROOT + b"//elsewhere.example/"),
        (b"js/", b"js/"),
        (b"", b""),
        (b"../", b""),
        (ROOT + b"/../../", b""),
        (ROOT + b"/%2E%2e/", b""),
        (b"/\\..", b""),
        (b"https://public.example/", b""),
    ],
)
def test_a_worker_is_allowed_nothing_outside_of_the_root(value: bytes, scoped: bytes) -> None:
    assert scoped_worker_scope(value, root=ROOT) == scoped


# --- Set-Cookie without a root ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (b"a=b; Path=/; Secure", b"a=b; Path=/; Secure"),
        (b"a=domain", b"a=domain"),
        (b"domain=b", b"domain=b"),
        (b"a=b;Domain=x;Path=/", b"a=b;Path=/"),
        (b"a=b; DOMAIN", b"a=b"),
        (b"a=b;\tdomain\t= x; Domain=y", b"a=b"),
    ],
)
def test_a_cookie_belongs_to_the_host_that_the_client_used(value: bytes, left: bytes) -> None:
    assert without_domain(value) == left


def test_what_has_more_attributes_than_any_cookie_is_none() -> None:
    value = b"a=b; Domain=x" + b";" * 64_000
    assert without_domain(value) == b""
    assert scoped_set_cookie(value, root=ROOT, request_path=b"/") == b""
