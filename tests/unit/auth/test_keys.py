"""Key files: what becomes a key, and what must never become one."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from router.auth.keys import (
    MAX_KEYS,
    KeyRing,
    VerificationKey,
    parse_jwks,
    parse_key_file,
    parse_secrets,
    watch_keys,
)
from tests.unit.auth.tokens import EC_KEY, ED_KEY, OTHER_SECRET, RSA_KEY, SECRET, public_pem

RSA_JWK = RSAAlgorithm.to_jwk(RSA_KEY.public_key(), as_dict=True)
EC_JWK = ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True)
ED_JWK = OKPAlgorithm.to_jwk(ED_KEY.public_key(), as_dict=True)
OCT_JWK = {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET).rstrip(b"=").decode()}


def _set(*keys: Any) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


# --- secrets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("around", [b"%b", b"%b\n", b"  %b \r\n\n", b"# ours\n%b\n"])
def test_white_space_and_comments_around_a_secret_are_not_part_of_it(around: bytes) -> None:
    [key] = parse_key_file(around % SECRET, allow_secrets=True)

    assert (key.kid, key.material) == ("", SECRET)


def test_several_secrets_may_have_names() -> None:
    content = b"new " + SECRET + b"\nold\t" + OTHER_SECRET + b"\n"

    assert parse_secrets(content) == [("new", SECRET), ("old", OTHER_SECRET)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no secret"),
        (b"# nothing\n", "holds no secret"),
        (b"short", "line 1: the secret is shorter than 32 bytes"),
        (SECRET + b"\nkid short", "line 2: the secret is shorter"),
        (b"a b " + SECRET, "line 1 has 3 words: write `secret` or `kid secret`"),
        (b"\xff" * 40, "line 1: write `secret`"),
        (b"caf\xc3\xa9" * 10, "line 1: write `secret`"),
        (b"ssh-ed25519 " + b"A" * 60, "line 1: this is a public key"),
    ],
)
def test_a_bad_file_of_secrets_is_an_error_with_its_line(content: bytes, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_key_file(content, allow_secrets=True)

    assert message in str(caught.value)
    assert "short" not in str(caught.value).replace("shorter", "")


def test_a_public_key_without_its_armour_never_becomes_a_secret() -> None:
    der = RSA_KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    with pytest.raises(ValueError, match="public key, not a secret"):
        parse_key_file(base64.b64encode(der), allow_secrets=True)


def test_a_key_set_never_becomes_a_secret() -> None:
    [key] = parse_key_file(_set(RSA_JWK), allow_secrets=True)
    assert "HS256" not in key.algorithms

    with pytest.raises(ValueError, match="JWK Set"):
        parse_key_file(json.dumps(RSA_JWK).encode(), allow_secrets=True)


def test_secrets_are_not_taken_from_a_file_of_public_keys() -> None:
    with pytest.raises(ValueError, match="neither a JWKS nor PEM"):
        parse_key_file(SECRET, allow_secrets=False)


def test_a_secret_does_not_show_in_a_repr() -> None:
    [key] = parse_key_file(SECRET, allow_secrets=True)

    assert SECRET.decode() not in repr(key)


# --- PEM -------------------------------------------------------------------------------------


def test_every_public_key_of_a_pem_file_is_read() -> None:
    pem = b"".join(public_pem(key) for key in (RSA_KEY, EC_KEY, ED_KEY))

    keys = parse_key_file(b"a comment\n" + pem, allow_secrets=False)

    assert [sorted(key.algorithms) for key in keys] == [["PS256", "RS256"], ["ES256"], ["EdDSA"]]


def test_a_certificate_gives_its_public_key() -> None:
    certificate = trustme.CA(key_type=trustme.KeyType.RSA).cert_pem.bytes()

    [key] = parse_key_file(certificate, allow_secrets=False)

    assert key.algorithms == {"RS256", "PS256"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            RSA_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "block 1 is a private key",
        ),
        (public_pem(RSA_KEY)[:-30], "broken PEM"),
        (public_pem(RSA_KEY) + b"-----BEGIN PUBLIC KEY-----\n", "broken PEM"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "PEM block 1"),
        (public_pem(rsa.generate_private_key(65537, 1024)), "shorter than 2048 bits"),
        (public_pem(RSA_KEY) * (MAX_KEYS + 1), "more than 64"),
    ],
)
def test_bad_pem_is_an_error(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_key_file(content, allow_secrets=True)


# --- JWK sets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jwk", "algorithms"),
    [
        (RSA_JWK, {"RS256", "PS256"}),
        ({**RSA_JWK, "alg": "RS256"}, {"RS256"}),
        ({**RSA_JWK, "alg": "PS256", "use": "sig", "key_ops": ["verify"]}, {"PS256"}),
        (EC_JWK, {"ES256"}),
        (ED_JWK, {"EdDSA"}),
        (OCT_JWK, {"HS256", "HS384", "HS512"}),
    ],
)
def test_a_jwk_allows_its_own_family_and_at_most_its_own_algorithm(
    jwk: dict[str, Any], algorithms: set[str]
) -> None:
    [key] = parse_jwks(_set({**jwk, "kid": "k1"}), allow_secrets=True)

    assert (key.kid, key.algorithms) == ("k1", algorithms)


@pytest.mark.parametrize(
    ("jwk", "message"),
    [
        (5, "is not an object"),
        ({**RSA_JWK, "use": "enc"}, "not for signatures: `use` is `enc`, not `sig`"),
        ({**RSA_JWK, "key_ops": ["encrypt"]}, "not for verifying"),
        ({**RSA_JWK, "key_ops": "verify"}, "not for verifying"),
        (
            {**RSA_JWK, "alg": "HS256"},
            "`alg` is `HS256`; a key of this kind can be used with PS256, RS256",
        ),
        ({**RSA_JWK, "alg": "none"}, "`alg` is `none`; a key of this kind"),
        ({**RSA_JWK, "alg": ["RS256"]}, "`alg` is a list; a key of this kind"),
        (
            {**OCT_JWK, "alg": "RS256"},
            "`alg` is `RS256`; a key of this kind can be used with HS256, HS384, HS512",
        ),
        ({**EC_JWK, "alg": "ES384"}, "`alg` is `ES384`; a key of this kind can be used with ES256"),
        ({**RSA_JWK, "kid": 5}, "`kid` must be"),
        ({**RSA_JWK, "kid": "k" * 300}, "`kid` must be"),
        ({**RSA_JWK, "n": "!!"}, "`n` is not base64url"),
        ({**RSA_JWK, "n": 5}, "`n` is not base64url"),
        ({"kty": "RSA", "e": "AQAB"}, "is broken"),
        ({**EC_JWK, "x": "AAAA"}, "is broken"),
        ({**EC_JWK, "crv": "P-384"}, "is broken"),
        ({**ED_JWK, "crv": "Ed448"}, "is broken"),
        ({**OCT_JWK, "k": "AAAA"}, "shorter than 32 bytes"),
        ({"kty": "oct"}, "is broken"),
        ({"kty": "AKP", "kid": "pq"}, "key 0 (kid `pq`): `kty` is `AKP`, not one of RSA, EC, OKP"),
        ({}, "`kty` is `null`, not one of"),
        (ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True) | {"d": "AAAA"}, "private key"),
    ],
)
def test_an_unusable_key_says_why(jwk: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_jwks(_set(jwk), allow_secrets=True)

    assert str(caught.value).startswith("holds no usable key; key 0")
    assert message in str(caught.value)


def test_keys_for_other_purposes_are_left_out_of_a_set() -> None:
    keys = parse_jwks(_set({**RSA_JWK, "use": "enc"}, {"kty": "new"}, EC_JWK), allow_secrets=False)

    assert [key.algorithms for key in keys] == [{"ES256"}]


def test_a_secret_in_a_public_set_is_left_out() -> None:
    with pytest.raises(ValueError, match="is a secret, and this set is public"):
        parse_jwks(_set(OCT_JWK), allow_secrets=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"<html>", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a JWK Set"),
        (b'{"keys": {}}', "not a JWK Set"),
        (b'{"keys": []}', "no usable key"),
        (_set(*[RSA_JWK] * (MAX_KEYS + 1)), "more than 64"),
    ],
)
def test_what_is_no_key_set_is_an_error(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_jwks(content, allow_secrets=True)


@given(st.binary(max_size=300), st.booleans())
def test_whatever_a_file_holds_is_keys_or_a_value_error(content: bytes, allow: bool) -> None:
    try:
        keys = parse_key_file(content, allow_secrets=allow)
    except ValueError:
        return

    assert keys


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["sig", "P-256"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    st.sampled_from([RSA_JWK, EC_JWK, ED_JWK, OCT_JWK]),
    st.dictionaries(
        st.sampled_from(
            ["kty", "kid", "alg", "use", "key_ops", "n", "e", "crv", "x", "y", "k", "d"]
        ),
        ANYTHING,
        max_size=4,
    ),
)
def test_whatever_an_issuer_publishes_is_a_key_or_a_value_error(
    jwk: dict[str, Any], strange: dict[str, Any]
) -> None:
    try:
        keys = parse_jwks(_set({**jwk, **strange}), allow_secrets=True)
    except ValueError:
        return

    assert len(keys) == 1


# --- the ring --------------------------------------------------------------------------------


def _key(kid: str, secret: bytes = SECRET) -> VerificationKey:
    return VerificationKey(kid, frozenset({"HS256"}), secret)


def test_candidates_are_the_keys_of_that_name_and_those_without_one() -> None:
    ring = KeyRing()
    first, second, unnamed = _key("a"), _key("b"), _key("")
    ring.replace("file", (first, unnamed))
    ring.replace("url", (second,))

    assert ring.candidates("a") == (first, unnamed)
    assert ring.candidates("b") == (second, unnamed)
    assert ring.candidates("c") == (unnamed,)
    assert set(ring.candidates(None)) == {first, second, unnamed}
    assert [ring.knows(kid) for kid in ("a", "c", "", None)] == [True, False, False, False]


def test_two_keys_may_share_a_name() -> None:
    ring = KeyRing()
    ring.replace("file", (_key("a"), _key("a", OTHER_SECRET)))

    assert len(ring.candidates("a")) == 2


def test_replacing_a_source_takes_its_former_keys_out_and_tells_listeners() -> None:
    ring = KeyRing()
    heard: list[int] = []
    ring.on_change(lambda: heard.append(len(ring.candidates(None))))
    ring.replace("file", (_key("a"), _key("b")))
    ring.replace("url", (_key("c"),))

    ring.replace("file", (_key("d"),))

    assert not ring.knows("a")
    assert heard == [2, 3, 2]
    assert repr(ring) == "<KeyRing {'file': 1, 'url': 1}>"


def test_a_key_verifies_nothing_by_an_algorithm_that_is_not_its_own() -> None:
    assert not _key("a").verifies("HS512", b"data", b"signature")


async def test_a_rotated_key_file_replaces_the_keys(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_bytes(b"old " + SECRET)
    ring = KeyRing()
    watched = watch_keys(ring, path, source="jwt-secret-file", allow_secrets=True)
    watched.load_once()

    path.write_bytes(b"new " + OTHER_SECRET)
    await watched.poll()

    assert ring.knows("new")
    assert not ring.knows("old")
