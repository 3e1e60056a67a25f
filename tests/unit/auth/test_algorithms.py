"""Algorithms: one family for each kind of key, and none for weak ones."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa

from router.auth.algorithms import EC, EDDSA, HMAC, RSA, SUPPORTED, family_of
from tests.unit.auth.tokens import EC_KEY, ED_KEY, RSA_KEY


@pytest.mark.parametrize(
    ("key", "family"),
    [
        (b"x" * 32, HMAC),
        (RSA_KEY.public_key(), RSA),
        (EC_KEY.public_key(), EC),
        (ED_KEY.public_key(), EDDSA),
    ],
)
def test_each_kind_of_key_belongs_to_one_family(key: Any, family: frozenset[str]) -> None:
    assert family_of(key) == family


def test_families_share_no_algorithm_and_none_is_in_none() -> None:
    families = (HMAC, RSA, EC, EDDSA)

    assert sum(len(family) for family in families) == len(SUPPORTED)
    assert not {name for name in SUPPORTED if name.lower() == "none"}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (b"x" * 31, "shorter than 32 bytes"),
        (rsa.generate_private_key(65537, 1024).public_key(), "shorter than 2048 bits"),
        (ec.generate_private_key(ec.SECP384R1()).public_key(), "only P-256"),
        (ed448.Ed448PrivateKey.generate().public_key(), "not supported"),
        (RSA_KEY, "not supported"),
        ("x" * 32, "not supported"),
    ],
)
def test_weak_and_foreign_keys_are_refused(key: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family_of(key)
