"""docs/browsers.md: the code that platforms copy makes links that the router takes, and the tables say what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from router.auth.claims import ClaimRules
from router.auth.jwt import JwtVerifier
from router.auth.keys import KeyRing, parse_key_file
from router.auth.links import LINKS, MAX_LIFE_S
from router.auth.principal import Principal
from router.proxy.wire.session_cookie import OF_A_HOST, OF_A_PATH, ON_LOOPBACK
from router.routing.target import Asked, TargetParser

PAGE = (Path(__file__).parents[2] / "docs" / "browsers.md").read_text("utf-8")
SECRET = "platform-secret-platform-secret-platform"


def test_the_code_that_is_shown_makes_a_link_to_that_sandbox() -> None:
    [code] = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "browsers.md", "exec"), names)
    link_to = names["link_to"]
    assert callable(link_to)
    url = urlsplit(link_to(SECRET, "team-a", "box-a", 8888, "ada@example.com", "/lab?a=b"))
    assert (url.scheme, url.path) == ("https", "/.sandbox-router/session")
    targets = TargetParser(
        base_domain="sandboxes.example.com",
        path_prefix="",
        default_port=8888,
        default_namespace="default",
        proxy_timeout_s=180.0,
    )
    target = targets.parse(Asked(), url.netloc.encode(), b"/")
    [link] = parse_qs(url.query)["link"]

    ring = KeyRing()
    ring.replace("test", parse_key_file(SECRET.encode(), allow_secrets=True))
    verifier = JwtVerifier(
        keys=ring,
        rules=ClaimRules(None, (), 0.0),
        is_refused=lambda principal: False,
        remote=None,
        kind=LINKS,
    )
    principal = verifier.verify(link.encode())
    assert isinstance(principal, Principal)
    assert principal.subject == "ada@example.com"
    (grant,) = principal.grants
    assert grant.covers_name(target.ref)
    assert grant.ports == {target.port}


def test_the_cookies_that_are_shown_are_those_that_are_set() -> None:
    for name in (OF_A_HOST, OF_A_PATH, ON_LOOPBACK):
        assert f"| `{name.decode()}` |" in PAGE


def test_a_link_lives_as_long_as_the_page_says() -> None:
    assert f"at most {MAX_LIFE_S} seconds apart" in PAGE
    assert "at most ten minutes" in PAGE
    assert MAX_LIFE_S == 600
