"""The page about tokens: its examples work, and it quotes what the router says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from router.auth.claims import ClaimRules, principal_of
from router.auth.jwt import JwtVerifier
from router.auth.keys import KeyRing, parse_jwks, parse_key_file
from router.auth.minting import SigningKey, public_jwk
from router.auth.policy_file import parse_policy
from router.auth.principal import Grant, Principal

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tokens.md").read_text("utf-8")
RULES = ClaimRules("https://platform.example.com", ("sandbox-router",), 30.0)


def _blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [block for kind, block in fenced if kind == language]


def test_the_example_of_a_platform_mints_what_the_router_accepts() -> None:
    key = SigningKey.generate("EdDSA")
    [example] = [block for block in _blocks("python") if "def token_for" in block]
    names: dict[str, object] = {}
    exec(compile(example, "tokens.md", "exec"), names)
    token_for = names["token_for"]
    assert callable(token_for)

    token = token_for("box-a", "team-a", "session-1", key.private_pem(), key.kid)

    ring = KeyRing()
    jwks = json.dumps({"keys": [public_jwk(key.material, "EdDSA")]}).encode()
    ring.replace("page", parse_jwks(jwks, allow_secrets=False))
    verifier = JwtVerifier(keys=ring, rules=RULES, is_refused=lambda principal: False, remote=None)
    verdict = verifier.verify(token.encode())
    assert isinstance(verdict, Principal)
    assert verdict.grants == (Grant("team-a", "box-a", ports=frozenset({8888})),)


def test_the_claims_that_are_shown_are_accepted() -> None:
    [shown] = _blocks("json")

    principal = principal_of(json.loads(shown), RULES, now=1796083201.0)

    assert (principal.subject, principal.token_id) == ("session-8c1f", "5f0c6c7e9d3b4f6a")


def test_the_policies_that_are_shown_can_be_read() -> None:
    policies = [block for block in _blocks("yaml") if "rules:" in block or "revoked:" in block]

    assert len(policies) == 2
    for policy in policies:
        parse_policy(policy.encode())


def test_the_secrets_that_are_shown_have_the_form_that_is_read() -> None:
    [shown] = [block for block in _blocks("") if "--kid 2026-12" in block]
    whole = re.sub(r"(\S+)…", lambda match: match[1].ljust(40, "x"), shown)

    keys = parse_key_file(whole.encode(), allow_secrets=True)

    assert [key.kid for key in keys] == ["2026-12", "2026-06"]


def test_every_quoted_detail_is_one_that_the_router_gives() -> None:
    sources = "".join(
        path.read_text("utf-8") for path in sorted((ROOT / "router" / "auth").glob("*.py"))
    )
    table = PAGE.partition("## When it is refused")[2]
    quoted = [
        detail
        for cell in re.findall(r"^\| (`The .+?) \|", table, re.MULTILINE)
        for detail in re.findall(r"`(The [^`]+)`", cell)
    ]

    assert len(quoted) == 10
    for detail in quoted:
        words = detail.partition(": …")[0].replace("The token's exp is", "The token's {name} is")
        assert words in sources, detail
