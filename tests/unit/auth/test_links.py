"""What a link is for, and which paths it may lead to."""

from __future__ import annotations

from typing import Any

import pytest

from router.auth.claims import BadClaimsError, ClaimRules
from router.auth.jwt import JwtVerifier
from router.auth.keys import KeyRing
from router.auth.links import LINKS, MAX_PATH, is_own_path, link_principal, read_link
from router.auth.principal import Grant, Principal
from router.auth.verifier import Reason, Refusal
from tests.unit.auth.tokens import every_key, sign

NOW = 1_000_000.0
RULES = ClaimRules(issuer=None, audiences=(), leeway_s=0.0)
CLAIMS = {
    "jti": "l1",
    "iat": NOW,
    "exp": NOW + 60,
    "sub": "alice",
    "namespace": "team-a",
    "name": "box",
    "port": 8888,
}


def read(**claims: Any) -> Principal:
    body = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return link_principal(body, RULES, NOW, key_id="k1")


def test_a_link_is_for_one_sandbox_and_port() -> None:
    principal = read(uid="u-1", wake=True)
    assert principal.mode == "link"
    assert (principal.subject, principal.token_id, principal.key_id) == ("alice", "l1", "k1")
    assert principal.grants == (
        Grant("team-a", "box", uid="u-1", ports=frozenset({8888}), wake=True),
    )


@pytest.mark.parametrize(
    "claims",
    [
        {"namespace": "*"},
        {"name": "*"},
        {"name": None},
        {"name": "Box"},
        {"port": None},
        {"port": "8888"},
        {"port": 0},
        {"port": 70000},
        {"port": True},
        {"uid": ""},
        {"wake": "yes"},
        {"jti": None},
        {"jti": 7},
        {"iat": None},
        {"exp": NOW + 601},
        {"exp": None},
        {"path": "lab"},
        {"path": 1},
        {"session_ttl": 0},
        {"session_ttl": True},
        {"session_ttl": "1h"},
        {"session_ttl": float("nan")},
    ],
    ids=str,
)
def test_a_link_that_says_too_little_or_too_much_is_none(claims: dict[str, Any]) -> None:
    with pytest.raises(BadClaimsError) as caught:
        read(**claims)
    assert caught.value.reason is Reason.BAD_CLAIMS


def test_a_link_that_is_over_is_none() -> None:
    with pytest.raises(BadClaimsError) as caught:
        read(iat=NOW - 60, exp=NOW - 1)
    assert caught.value.reason is Reason.EXPIRED


def test_a_link_says_where_it_leads_and_for_how_long() -> None:
    assert read_link({}) == ("/", None)
    assert read_link({"path": "/lab", "session_ttl": 60}) == ("/lab", 60)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/lab/tree/a%20b.ipynb?reset&to=//elsewhere#cell-1",
        "/a//b",
        "/~user/@x:y",
        "/?next=/../..",
        "/.well",
        "/..hidden",
    ],
)
def test_a_page_of_the_sandbox_is_one(path: str) -> None:
    assert is_own_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "lab",
        "https://evil.example",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/%2f/evil.example",
        "/%2Fevil.example",
        "/%5cevil.example",
        "/%252fevil.example",
        "/%25255cevil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "/%09/evil.example",
        "/%0d%0aSet-Cookie:%20a=b",
        "/a\r\nSet-Cookie: a=b",
        "/\x00",
        "/ü",
        "/a b",
        "/..",
        "/../other",
        "/a/../../b",
        "/%2e%2e/other",
        "/%2e./other",
        "/..%2fother",
        "/" + "a" * MAX_PATH,
    ],
)
def test_a_way_out_of_the_sandbox_is_none(path: str) -> None:
    assert not is_own_path(path)


@pytest.mark.parametrize("typ", ["JWT", "at+jwt", "session+jwt", None, "LINK", 7])
def test_another_kind_of_token_is_no_link(typ: Any) -> None:
    ring = KeyRing()
    ring.replace("test", every_key())
    verifier = JwtVerifier(
        keys=ring,
        rules=RULES,
        is_refused=lambda p: False,
        remote=None,
        kind=LINKS,
        clock=lambda: NOW,
    )
    assert isinstance(verifier.verify(sign(CLAIMS, headers={"typ": "link+jwt"})), Principal)
    verdict = verifier.verify(sign(CLAIMS, headers={"typ": typ}))
    assert isinstance(verdict, Refusal)
    assert (verdict.mode, verdict.reason) == ("link", Reason.MALFORMED)
