"""Which requests come of a foreign page, by what browsers, new and old, say of them."""

from __future__ import annotations

import ipaddress

import pytest

from router.proxy.wire.cross_site import is_by_a_person, is_from_elsewhere, why_foreign
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead, parse_request
from router.proxy.wire.session_cookie import SessionRules

HOST = "8888-box.boxes.example"
OWN = f"https://{HOST}"
FOREIGN = ("https://evil.example", "https://8888-other.boxes.example", f"http://{HOST}", "null")
TLS = Peer("198.51.100.9", is_tls=True, trusted=())
PLAIN = Peer("198.51.100.9", is_tls=False, trusted=())
FRONT = Peer("10.0.0.1", is_tls=False, trusted=[ipaddress.ip_network("10.0.0.0/8")])
RULES = SessionRules(origins=frozenset({b"https://console.example"}))
HTML = "text/html,application/xhtml+xml,*/*;q=0.8"


def head(method: str = "GET", host: str = HOST, **headers: str) -> RequestHead:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return parse_request(
        "\r\n".join([f"{method} / HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()
    )


def is_foreign(asked: RequestHead, peer: Peer = TLS, rules: SessionRules = RULES) -> bool:
    return bool(why_foreign(asked, peer, rules, needs_tls=True))


# --- changes and upgrades -------------------------------------------------------------------

CHANGES = ("POST", "PUT", "PATCH", "DELETE", "PROPFIND")


@pytest.mark.parametrize("method", CHANGES)
def test_a_change_comes_from_the_own_origin(method: str) -> None:
    assert not is_foreign(head(method, Origin=OWN))
    assert not is_foreign(head(method, Origin=f"{OWN}:443"))
    assert not is_foreign(head(method, Origin="https://console.example"))


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize("origin", [*FOREIGN, f"{OWN}:8443", f"{OWN}.evil.example", ""])
def test_a_change_of_another_origin_is_foreign(method: str, origin: str) -> None:
    assert is_foreign(head(method, Origin=origin))
    assert is_foreign(head(method, Origin=origin, Sec_Fetch_Site="none"))


def test_a_change_without_origin_is_foreign() -> None:
    assert is_foreign(head("POST"))
    assert is_foreign(head("POST", Referer=f"{OWN}/form"))
    assert is_foreign(head("POST", Sec_Fetch_Site="same-origin"))


def test_a_form_of_a_page_that_hides_where_it_is_from_is_the_own_one() -> None:
    assert not is_foreign(head("POST", Origin="null", Sec_Fetch_Site="same-origin"))
    assert is_foreign(head("POST", Origin="null", Sec_Fetch_Site="cross-site"))


UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket"}


def test_an_upgrade_comes_from_the_own_origin() -> None:
    assert not is_foreign(head(Origin=OWN, **UPGRADE))
    for origin in FOREIGN:
        assert is_foreign(head(Origin=origin, **UPGRADE))
    assert is_foreign(head(**UPGRADE))
    assert is_foreign(head(Origin="null", Sec_Fetch_Site="same-origin", **UPGRADE))


def test_the_scheme_is_the_cookie_s() -> None:
    insecure = f"http://{HOST}"
    assert is_foreign(head("POST", Origin=insecure), PLAIN)
    assert not is_foreign(head("POST", Origin=OWN), PLAIN), "a front that is not trusted had TLS"
    tried = head("POST", "8888-box.localhost:80", Origin="http://8888-box.localhost")
    assert not why_foreign(tried, PLAIN, RULES, needs_tls=False)


def test_the_host_is_the_one_that_the_browser_called() -> None:
    asked = head("POST", "router.internal", X_Forwarded_Host=HOST, Origin=OWN)
    assert not is_foreign(asked, FRONT)
    assert is_foreign(asked, TLS), "from a stranger it is a claim"


# --- reading --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("site", ["same-origin", "none"])
@pytest.mark.parametrize("name", ["Sec_Fetch_Site", "sec_fetch_site", "SEC_FETCH_SITE"])
def test_the_own_page_reads(method: str, site: str, name: str) -> None:
    assert not is_foreign(head(method, **{name: site}))


@pytest.mark.parametrize("site", ["cross-site", "same-site", "something-new"])
@pytest.mark.parametrize("name", ["Sec_Fetch_Site", "sec_fetch_site", "SEC_FETCH_SITE"])
@pytest.mark.parametrize(
    ("mode", "dest"),
    [
        ("no-cors", "image"),
        ("no-cors", "script"),
        ("cors", "empty"),
        ("websocket", "empty"),
        ("navigate", "iframe"),
        ("navigate", "embed"),
        ("navigate", "object"),
        ("navigate", ""),
    ],
)
def test_a_foreign_page_reads_nothing(site: str, name: str, mode: str, dest: str) -> None:
    assert is_foreign(head(**{name: site}, Sec_Fetch_Mode=mode, Sec_Fetch_Dest=dest, Accept=HTML))


def test_a_foreign_page_may_link() -> None:
    linked = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert not is_foreign(head(Sec_Fetch_Dest="document", **linked))
    assert is_foreign(head("HEAD", Sec_Fetch_Dest="document", **linked))


def test_a_foreign_page_may_frame_where_that_was_said() -> None:
    framed = head(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe")
    assert not is_foreign(framed, rules=SessionRules(iframe=True))
    embedded = head(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="object")
    assert is_foreign(embedded, rules=SessionRules(iframe=True))


def test_a_page_that_was_let_in_reads() -> None:
    loads = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}
    assert not is_foreign(head(Origin="https://console.example", **loads))
    assert not is_foreign(head(Referer="https://console.example/a", **loads))
    assert is_foreign(head(Referer="https://console.example.evil.example/a", **loads))


# --- browsers that say nothing of fetches ---------------------------------------------------


def test_an_old_browser_is_judged_by_origin_and_referer() -> None:
    assert not is_foreign(head())
    assert not is_foreign(head(Referer=f"{OWN}/page", Accept="image/webp"))
    assert is_foreign(head(Origin="https://evil.example"))
    assert is_foreign(head(Referer="https://evil.example/page", Accept="image/webp"))
    assert is_foreign(head(Referer=f"https://evil.example/?{OWN}", Accept="*/*"))
    assert is_foreign(head(Referer=f"{OWN}.evil.example/", Accept="*/*"))
    assert not is_foreign(head(Referer="https://evil.example/page", Accept=HTML)), "a link"


# --- beginning a session --------------------------------------------------------------------


def test_a_person_opens_a_page_in_a_window() -> None:
    opened = head(Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")
    framed = head(Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe")
    loaded = head(Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="image")
    assert is_by_a_person(opened, RULES)
    assert is_by_a_person(head(), RULES), "a program, or an old browser"
    assert not is_by_a_person(framed, RULES)
    assert is_by_a_person(framed, SessionRules(iframe=True))
    assert not is_by_a_person(loaded, SessionRules(iframe=True))
    assert not is_by_a_person(head(Sec_Fetch_Dest="image"), RULES)


def test_what_a_user_typed_is_from_nowhere_else() -> None:
    assert not is_from_elsewhere(head(Sec_Fetch_Site="none"))
    assert not is_from_elsewhere(head(Sec_Fetch_Site="same-origin"))
    assert is_from_elsewhere(head(Sec_Fetch_Site="cross-site"))
    assert is_from_elsewhere(head())
