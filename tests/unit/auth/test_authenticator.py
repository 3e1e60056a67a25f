"""Credentials: secrets, so nothing of them shows."""

from __future__ import annotations

from router.auth.authenticator import CertificateIdentity, Credentials


def test_a_repr_names_what_was_offered_and_nothing_of_it() -> None:
    offered = Credentials(b"Bearer s3cret", b"s3cret", b"s3cret", CertificateIdentity("a", "uri"))

    assert repr(offered) == (
        "<Credentials offered=['authorization', 'sandbox_token', 'subprotocol_token', 'certificate']>"
    )
    assert repr(Credentials()) == "<Credentials offered=[]>"
