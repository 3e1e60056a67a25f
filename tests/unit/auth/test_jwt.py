"""Gateway tokens: the negative table, what is remembered, and who else is asked."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from router.auth.jwt import MAX_REMEMBERED, JwtVerifier
from router.auth.keys import KeyRing, VerificationKey, parse_key_file
from router.auth.policy import CurrentPolicy, NotBefore, Policy
from router.auth.principal import Principal
from router.auth.verifier import Reason, Refusal
from tests.unit.auth.tokens import (
    OTHER_RSA_KEY,
    OTHER_SECRET,
    RSA_KEY,
    SECRET,
    SIGNING_KEYS,
    Clock,
    public_pem,
    sign,
)

MakeVerifier = Callable[..., JwtVerifier]
HMAC_KEY = VerificationKey("", frozenset({"HS256", "HS384", "HS512"}), SECRET)


def _refused(verifier: JwtVerifier, token: bytes) -> Refusal:
    verdict = verifier.verify(token)
    assert isinstance(verdict, Refusal), verdict
    return verdict


def _accepted(verifier: JwtVerifier, token: bytes) -> Principal:
    verdict = verifier.verify(token)
    assert isinstance(verdict, Principal), verdict
    return verdict


def _forged(header: dict[str, Any], claims: dict[str, Any], signature: bytes) -> bytes:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)


class Remote:
    """Keys that come when somebody looks."""

    def __init__(self, ring: KeyRing, *keys: VerificationKey, is_loaded: bool = True) -> None:
        self.ring = ring
        self.keys = keys
        self.is_loaded = is_loaded
        self.looks = 0

    async def look_again(self) -> bool:
        self.looks += 1
        if not self.keys:
            return False
        self.is_loaded = True
        self.ring.replace("remote", self.keys)
        return True


# --- what is accepted ------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", SIGNING_KEYS)
def test_tokens_of_every_family_are_accepted(make_verifier: MakeVerifier, algorithm: str) -> None:
    token = sign({"sub": "alice"}, algorithm=algorithm)

    assert _accepted(make_verifier(), token).subject == "alice"


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_a_secret_of_32_bytes_serves_every_hmac_algorithm_without_a_warning(
    make_verifier: MakeVerifier, recwarn: pytest.WarningsRecorder
) -> None:
    secret = b"0123456789abcdef0123456789abcdef"
    tokens = [
        sign({}, algorithm=algorithm, key=secret) for algorithm in ("HS256", "HS384", "HS512")
    ]
    verifier = make_verifier(VerificationKey("", HMAC_KEY.algorithms, secret))
    recwarn.clear()

    for token in tokens:
        _accepted(verifier, token)

    assert not recwarn.list


def test_the_key_is_chosen_by_its_name(make_verifier: MakeVerifier) -> None:
    keys = parse_key_file(b"new " + SECRET + b"\nold " + OTHER_SECRET, allow_secrets=True)
    verifier = make_verifier(*keys)

    assert _accepted(verifier, sign({}, key=SECRET, headers={"kid": "new"}))
    assert _accepted(verifier, sign({}, key=OTHER_SECRET, headers={"kid": "old"}))
    refusal = _refused(verifier, sign({}, key=OTHER_SECRET, headers={"kid": "new"}))
    assert (refusal.reason, refusal.is_final) == (Reason.BAD_SIGNATURE, True)


def test_a_token_without_a_key_id_may_be_signed_by_any_key(make_verifier: MakeVerifier) -> None:
    keys = parse_key_file(b"new " + SECRET + b"\nold " + OTHER_SECRET, allow_secrets=True)

    assert _accepted(make_verifier(*keys), sign({}, key=OTHER_SECRET))


# --- the negative table ----------------------------------------------------------------------

NOW = int(time.time())


@pytest.fixture(autouse=True)
def at_now(clock: Clock) -> None:
    """The tables below were made when this file was read, which in a long run is minutes ago."""
    clock.now = float(NOW)


WRONG: list[tuple[str, bytes, Reason]] = [
    ("another secret", sign({}, key=OTHER_SECRET), Reason.BAD_SIGNATURE),
    ("another RSA key", sign({}, algorithm="RS256", key=OTHER_RSA_KEY), Reason.BAD_SIGNATURE),
    ("algorithm none", _forged({"alg": "none"}, {"exp": NOW + 60}, b"x"), Reason.WRONG_ALGORITHM),
    ("algorithm nOnE", _forged({"alg": "nOnE"}, {"exp": NOW + 60}, b"x"), Reason.WRONG_ALGORITHM),
    ("no signature", jwt.encode({}, None, algorithm="none").encode(), Reason.MALFORMED),
    (
        "RS256 by RS512",
        jwt.encode({"exp": NOW + 60}, RSA_KEY, "RS512").encode(),
        Reason.WRONG_ALGORITHM,
    ),
    ("no algorithm", _forged({}, {"exp": NOW + 60}, b"x"), Reason.MALFORMED),
    ("no exp", sign({"exp": None}), Reason.BAD_CLAIMS),
    ("expired", sign({"exp": NOW - 31}), Reason.EXPIRED),
    ("exp as text", sign({"exp": str(NOW + 60)}), Reason.BAD_CLAIMS),
    ("nbf ahead", sign({"nbf": NOW + 600}), Reason.NOT_YET_VALID),
    ("iat ahead", sign({"iat": NOW + 600}), Reason.NOT_YET_VALID),
    ("wrong audience", sign({"aud": "other"}), Reason.WRONG_AUDIENCE),
    ("critical extension", sign({}, headers={"crit": ["x"], "x": 1}), Reason.MALFORMED),
    ("another type", sign({}, headers={"typ": "dpop+jwt"}), Reason.MALFORMED),
    ("padded", sign({}) + b"=", Reason.MALFORMED),
    ("with a newline", sign({}) + b"\n", Reason.MALFORMED),
    ("non-ASCII", "caf\xe9.\xff.\xc3".encode("latin-1"), Reason.MALFORMED),
    ("not a token", b"not-a-token", Reason.MALFORMED),
    ("empty", b"", Reason.MALFORMED),
]


@pytest.mark.parametrize(("token", "reason"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_bad_token_is_refused_for_its_reason(
    make_verifier: MakeVerifier, token: bytes, reason: Reason
) -> None:
    verifier = make_verifier(leeway_s=30.0)

    assert _refused(verifier, token).reason is reason
    assert len(verifier._verified) == 0


def test_a_public_key_is_never_a_secret(make_verifier: MakeVerifier) -> None:
    """The confusion of HS and RS: sign with the public key's text, which everybody knows."""
    verifier = make_verifier(*parse_key_file(public_pem(RSA_KEY), allow_secrets=True))
    for secret in (public_pem(RSA_KEY), public_pem(RSA_KEY).strip()):
        unsigned = _forged({"alg": "HS256"}, {"exp": NOW + 60}, b"").rstrip(b".")
        signature = hmac.new(secret, unsigned, hashlib.sha256).digest()
        token = unsigned + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")

        assert _refused(verifier, token).reason is Reason.WRONG_ALGORITHM


def test_a_key_that_the_token_brings_along_is_not_used(make_verifier: MakeVerifier) -> None:
    own = RSAAlgorithm.to_jwk(OTHER_RSA_KEY.public_key(), as_dict=True)
    token = sign({}, algorithm="RS256", key=OTHER_RSA_KEY, headers={"jwk": own, "jku": "https://x"})

    assert _refused(make_verifier(), token).reason is Reason.BAD_SIGNATURE


def test_a_token_of_one_rsa_algorithm_does_not_pass_a_key_for_the_other(
    make_verifier: MakeVerifier,
) -> None:
    verifier = make_verifier(VerificationKey("", frozenset({"PS256"}), RSA_KEY.public_key()))

    assert _accepted(verifier, sign({}, algorithm="PS256"))
    assert _refused(verifier, sign({}, algorithm="RS256")).reason is Reason.WRONG_ALGORITHM


@pytest.mark.parametrize("algorithm", SIGNING_KEYS)
def test_a_changed_byte_anywhere_is_refused(make_verifier: MakeVerifier, algorithm: str) -> None:
    token = sign({"sub": "alice", "iat": NOW}, algorithm=algorithm)
    verifier = make_verifier()

    for position in range(0, len(token), 7):
        changed = bytearray(token)
        changed[position] = ord("A") if changed[position] != ord("A") else ord("B")
        _refused(verifier, bytes(changed))


@pytest.mark.parametrize("algorithm", SIGNING_KEYS)
@pytest.mark.parametrize(
    "signature", [b"", b"\0", b"\0" * 64, b"\xff" * 64, b"\0" * 256, b"x" * 999]
)
def test_a_signature_of_any_shape_is_just_wrong(
    make_verifier: MakeVerifier, algorithm: str, signature: bytes
) -> None:
    token = _forged({"alg": algorithm}, {"exp": NOW + 60}, signature)

    assert _refused(make_verifier(), token).reason in (Reason.BAD_SIGNATURE, Reason.MALFORMED)


def test_no_refusal_repeats_anything_of_the_token(make_verifier: MakeVerifier) -> None:
    secrets = {"sub": "hunter2", "iss": "hunter2", "aud": "hunter2", "sandboxes": "hunter2"}
    for name, value in secrets.items():
        for extra in ({}, {"kid": "hunter2"}, {"typ": "hunter2"}):
            verifier = make_verifier(issuer="https://i.example" if name == "iss" else None)
            verdict = verifier.verify(sign({name: value, "exp": None}, headers=extra))
            assert "hunter2" not in repr(verdict)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    claims=st.fixed_dictionaries(
        {},
        optional={
            "exp": st.integers(NOW - 100, NOW + 1000) | st.just(None) | st.text(max_size=3),
            "nbf": st.integers(NOW - 100, NOW + 100),
            "iat": st.integers(NOW - 100, NOW + 100) | st.booleans(),
            "iss": st.sampled_from(["https://i.example", "https://other", 5]),
            "aud": st.sampled_from(["router", ["router", "x"], ["x"], [], "", 5]),
            "sub": st.text(max_size=3) | st.integers(),
            "jti": st.text(max_size=3),
        },
    ),
    algorithm=st.sampled_from([*SIGNING_KEYS, "RS512"]),
    issuer=st.sampled_from([None, "https://i.example"]),
    audiences=st.sampled_from([(), ("router",)]),
)
def test_whatever_is_accepted_pyjwt_accepts_too(
    make_verifier: MakeVerifier,
    clock: Clock,
    claims: dict[str, Any],
    algorithm: str,
    issuer: str | None,
    audiences: tuple[str, ...],
) -> None:
    """An independent judge: this verifier may be stricter than the library, never laxer."""
    clock.now = time.time()  # the judge knows no other clock
    key = SIGNING_KEYS.get(algorithm, RSA_KEY)
    body = {name: value for name, value in claims.items() if value is not None}
    token = jwt.PyJWS().encode(json.dumps(body).encode(), key, algorithm)
    verifier = make_verifier(issuer=issuer, audiences=audiences, leeway_s=5.0)

    verdict = verifier.verify(token.encode())

    if isinstance(verdict, Principal):
        public = key if isinstance(key, bytes) else key.public_key()
        jwt.decode(
            token,
            public,
            algorithms=[algorithm],
            audience=list(audiences) or None,
            issuer=issuer,
            leeway=6,
            options={"require": ["exp"]},
        )


# --- what is remembered ----------------------------------------------------------------------


def test_a_verified_token_is_not_verified_again_and_names_the_same_principal(
    make_verifier: MakeVerifier,
) -> None:
    verifier, token = make_verifier(), sign({"sub": "alice"})

    first = _accepted(verifier, token)

    assert _accepted(verifier, token) is first
    assert verifier.verifications == 1


def test_a_remembered_token_expires_to_the_second_with_its_leeway(
    make_verifier: MakeVerifier, clock: Clock
) -> None:
    verifier, token = make_verifier(leeway_s=30.0), sign({"exp": NOW + 100})
    _accepted(verifier, token)

    clock.now = NOW + 129.9
    _accepted(verifier, token)
    clock.now = NOW + 130.0

    assert _refused(verifier, token).reason is Reason.EXPIRED
    assert _refused(verifier, token).reason is Reason.EXPIRED


def test_memory_is_bounded(make_verifier: MakeVerifier) -> None:
    verifier = make_verifier()
    for number in range(MAX_REMEMBERED + 5):
        verifier._verified[number.to_bytes(32, "big")] = object()  # type: ignore[assignment]

    _accepted(verifier, sign({}))

    assert len(verifier._verified) == MAX_REMEMBERED


def test_a_refused_token_is_looked_at_again_every_time(
    make_verifier: MakeVerifier, clock: Clock
) -> None:
    verifier, token = make_verifier(), sign({"nbf": NOW + 100})
    assert _refused(verifier, token).reason is Reason.NOT_YET_VALID

    clock.now = NOW + 101

    assert _accepted(verifier, token)


def test_a_token_of_a_key_that_was_taken_away_is_refused_at_once(
    make_verifier: MakeVerifier,
) -> None:
    ring = KeyRing()
    ring.replace("file", (HMAC_KEY,))
    verifier, token = make_verifier(ring=ring), sign({})
    _accepted(verifier, token)

    ring.replace("file", (VerificationKey("", HMAC_KEY.algorithms, OTHER_SECRET),))

    assert _refused(verifier, token).reason is Reason.BAD_SIGNATURE


@pytest.mark.parametrize(
    "new",
    [
        Policy(revoked=frozenset({"id-1"})),
        Policy(not_before=(NotBefore("", "alice", NOW + 0.0),)),
        Policy(not_before=(NotBefore("https://i", "", NOW + 0.0),)),
    ],
)
def test_a_token_that_the_policy_revokes_is_refused_at_once(
    make_verifier: MakeVerifier, policy: CurrentPolicy, new: Policy
) -> None:
    verifier = make_verifier()
    token = sign({"sub": "alice", "jti": "id-1", "iss": "https://i", "iat": NOW - 5})
    _accepted(verifier, token)

    policy.replace(new)

    assert _refused(verifier, token).reason is Reason.REVOKED


# --- whose token it is -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "is_final"),
    [
        (sign({"iss": "https://kubernetes"}, algorithm="RS256", headers={"kid": "k8s"}), False),
        (sign({"iss": "https://ours"}, key=OTHER_SECRET, headers={"kid": "unknown"}), True),
        (sign({"iss": "https://ours"}, key=OTHER_SECRET), True),
        (jwt.encode({"iss": "https://ours"}, RSA_KEY, "RS512").encode(), True),
        (sign({"iss": "https://ours", "exp": NOW - 5}), True),
        (sign({}), False),
    ],
)
def test_with_an_issuer_configured_its_tokens_are_ours_for_better_or_worse(
    make_verifier: MakeVerifier, token: bytes, is_final: bool
) -> None:
    refusal = _refused(make_verifier(issuer="https://ours"), token)

    assert refusal.is_final is is_final


def test_without_an_issuer_a_known_key_id_makes_a_token_ours(make_verifier: MakeVerifier) -> None:
    verifier = make_verifier(VerificationKey("k1", HMAC_KEY.algorithms, SECRET))

    ours = _refused(verifier, sign({}, key=OTHER_SECRET, headers={"kid": "k1"}))
    other = _refused(verifier, sign({}, key=OTHER_SECRET, headers={"kid": "k2"}))
    another = _refused(verifier, sign({}, algorithm="RS256", headers={"kid": "k1"}))

    assert (ours.reason, ours.is_final) == (Reason.BAD_SIGNATURE, True)
    assert (other.reason, other.is_final) == (Reason.UNKNOWN_KEY, False)
    assert (another.reason, another.is_final) == (Reason.WRONG_ALGORITHM, True)


def test_an_algorithm_that_only_others_use_is_left_to_them(make_verifier: MakeVerifier) -> None:
    verifier = make_verifier()

    assert not _refused(verifier, _forged({"alg": "ES384"}, {}, b"x")).is_final
    assert _refused(verifier, _forged({"alg": "none"}, {}, b"x")).is_final


# --- keys that somebody else publishes -------------------------------------------------------


async def _later(verifier: JwtVerifier, token: bytes) -> Principal | Refusal:
    verdict = verifier.verify(token)
    return verdict if isinstance(verdict, (Principal, Refusal)) else await verdict


async def test_an_unknown_key_is_looked_for_once_more(make_verifier: MakeVerifier) -> None:
    ring = KeyRing()
    ring.replace("remote", (VerificationKey("old", HMAC_KEY.algorithms, OTHER_SECRET),))
    remote = Remote(ring, VerificationKey("new", HMAC_KEY.algorithms, SECRET))
    verifier = make_verifier(ring=ring, remote=remote)

    verdict = await _later(verifier, sign({}, headers={"kid": "new"}))

    assert isinstance(verdict, Principal)
    assert remote.looks == 1


async def test_a_key_that_is_known_is_answered_at_once(make_verifier: MakeVerifier) -> None:
    ring = KeyRing()
    ring.replace("remote", (VerificationKey("old", HMAC_KEY.algorithms, SECRET),))
    remote = Remote(ring)

    _accepted(make_verifier(ring=ring, remote=remote), sign({}, headers={"kid": "old"}))

    assert remote.looks == 0


async def test_a_key_that_nobody_publishes_is_unknown(make_verifier: MakeVerifier) -> None:
    ring = KeyRing()
    ring.replace("remote", (VerificationKey("old", HMAC_KEY.algorithms, SECRET),))
    remote = Remote(ring)

    verdict = await _later(
        make_verifier(ring=ring, remote=remote), sign({}, headers={"kid": "made-up"})
    )

    assert isinstance(verdict, Refusal)
    assert verdict.reason is Reason.UNKNOWN_KEY


async def test_before_keys_were_ever_loaded_the_answer_is_unavailable(
    make_verifier: MakeVerifier,
) -> None:
    ring = KeyRing()
    remote = Remote(ring, is_loaded=False)

    for headers in ({"kid": "any"}, {}):
        verdict = await _later(make_verifier(ring=ring, remote=remote), sign({}, headers=headers))
        assert isinstance(verdict, Refusal)
        assert verdict.reason is Reason.UNAVAILABLE


async def test_keys_of_a_file_work_while_the_published_ones_are_missing(
    make_verifier: MakeVerifier,
) -> None:
    ring = KeyRing()
    ring.replace("file", (HMAC_KEY,))

    verdict = await _later(make_verifier(ring=ring, remote=Remote(ring, is_loaded=False)), sign({}))

    assert isinstance(verdict, Principal)


async def test_an_expired_token_of_a_known_key_makes_nobody_look(
    make_verifier: MakeVerifier,
) -> None:
    ring = KeyRing()
    ring.replace("file", (HMAC_KEY,))
    remote = Remote(ring)

    await _later(
        make_verifier(ring=ring, remote=remote),
        sign({"exp": NOW - 5}, headers={"kid": "unnamed-keys-serve-any"}),
    )

    assert remote.looks == 0


def test_its_repr_tells_counts_and_no_secret(make_verifier: MakeVerifier) -> None:
    assert repr(make_verifier()) == "<JwtVerifier jwt <KeyRing {'test': 4}> remembered=0>"


def test_forgetting_tells_whoever_keeps_a_verdict(make_verifier: MakeVerifier) -> None:
    ring = KeyRing()
    ring.replace("test", (HMAC_KEY,))
    verifier = make_verifier(ring=ring)
    told = []
    verifier.on_change(lambda: told.append("changed"))

    ring.replace("test", ())
    verifier.forget()

    assert told == ["changed", "changed"]


def test_a_verdict_stands_until_the_token_expires_leeway_included(
    make_verifier: MakeVerifier, clock: Clock
) -> None:
    verifier = make_verifier(leeway_s=7.0)
    token = sign({"exp": NOW + 60})
    until = verifier.valid_until(_accepted(verifier, token))

    clock.now = until - 0.01
    _accepted(verifier, token)
    clock.now = until

    assert _refused(verifier, token).reason is Reason.EXPIRED


def test_the_caller_carries_the_ids_of_its_token_and_of_the_key_that_verified_it(
    make_verifier: MakeVerifier,
) -> None:
    named = VerificationKey("2026-12", HMAC_KEY.algorithms, SECRET)

    caller = _accepted(make_verifier(named), sign({"jti": "j-1"}, headers={"kid": "2026-12"}))

    assert (caller.subject, caller.token_id, caller.key_id) == ("", "j-1", "2026-12")


def test_a_key_id_that_a_token_invents_is_not_repeated(make_verifier: MakeVerifier) -> None:
    caller = _accepted(make_verifier(HMAC_KEY), sign({}, headers={"kid": "made-up"}))

    assert caller.key_id == ""
