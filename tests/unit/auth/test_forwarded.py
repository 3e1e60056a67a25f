"""Mode `forwarded`: a trusted proxy is taken at its word, if the word is clear."""

from __future__ import annotations

from router.auth.authenticator import ForwardedIdentity
from router.auth.forwarded import MAX_REMEMBERED, ForwardedAuthenticator
from router.auth.policy import PrincipalMatch
from router.auth.principal import Principal
from router.auth.verifier import Reason, Refusal

ADA = ForwardedIdentity("ada@example.com", ("users",))


def test_the_caller_is_whom_the_proxy_names() -> None:
    assert ForwardedAuthenticator().verify(ADA) == Principal(
        subject="ada@example.com", mode="forwarded", groups=("users",)
    )


def test_the_same_person_is_the_same_object_and_with_other_groups_another() -> None:
    mode = ForwardedAuthenticator()
    assert mode.verify(ADA) is mode.verify(ForwardedIdentity("ada@example.com", ("users",)))
    assert mode.verify(ADA) != mode.verify(ForwardedIdentity("ada@example.com", ()))


def test_nobody_is_refused() -> None:
    verdict = ForwardedAuthenticator().verify(ForwardedIdentity(""))
    assert isinstance(verdict, Refusal)
    assert (verdict.mode, verdict.reason) == ("forwarded", Reason.MALFORMED)


def test_what_is_remembered_is_bounded() -> None:
    mode = ForwardedAuthenticator()
    for number in range(MAX_REMEMBERED + 10):
        mode.verify(ForwardedIdentity(f"u{number}"))
    assert repr(mode) == f"<ForwardedAuthenticator remembered={MAX_REMEMBERED}>"


def test_rules_match_its_subject_and_groups_and_no_certificate() -> None:
    principal = ForwardedAuthenticator().verify(ADA)
    assert isinstance(principal, Principal)
    assert PrincipalMatch(subject="ada@example.com").matches(principal)
    assert PrincipalMatch(group="users", mode="forwarded").matches(principal)
    assert not PrincipalMatch(group="users", mode="jwt").matches(principal)
    assert not PrincipalMatch(identity="ada@example.com", kind="cn").matches(principal)


def test_kubernetes_own_names_are_meant_for_nobody_else() -> None:
    principal = ForwardedAuthenticator().verify(ForwardedIdentity("system:admin", ("system:x",)))
    assert isinstance(principal, Principal)
    assert not PrincipalMatch(subject="system:admin").matches(principal)
    assert not PrincipalMatch(group="system:x").matches(principal)
