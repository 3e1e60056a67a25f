"""Certificates: who they name, by the TLS layer's word or a trusted proxy's."""

from __future__ import annotations

import datetime
import ssl
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from router.auth.authenticator import CertificateIdentity
from router.auth.mtls import (
    MAX_IDENTITY_LENGTH,
    MAX_REMEMBERED,
    NOBODY,
    CertificateAuthenticator,
    identity_of,
    parse_xfcc,
)
from router.auth.principal import Principal
from router.auth.verifier import Refusal


def _peer(*names: tuple[str, str], common_names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns a certificate in the shape of SSLObject.getpeercert()."""
    subject = tuple((("commonName", name),) for name in common_names)
    return {
        "subject": ((("organizationName", "Acme"),), *subject),
        "subjectAltName": names,
        "notAfter": "Jan  1 00:00:00 2040 GMT",
    }


@pytest.mark.parametrize(
    ("peer", "identity", "kind"),
    [
        (
            _peer(
                ("DNS", "a.example"),
                ("URI", "spiffe://x/a"),
                ("URI", "spiffe://x/b"),
                common_names=("c",),
            ),
            "spiffe://x/a",
            "uri",
        ),
        (_peer(("DNS", "A.Example"), ("DNS", "b"), common_names=("c",)), "a.example", "dns"),
        (_peer(("IP Address", "192.0.2.1"), common_names=("client",)), "client", "cn"),
        (_peer(common_names=("Zoë",)), "Zoë", "cn"),
    ],
)
def test_the_identity_is_the_uri_then_the_dns_name_then_the_common_name(
    peer: dict[str, Any], identity: str, kind: str
) -> None:
    named = identity_of(peer)

    assert named == CertificateIdentity(identity, kind, 2208988800.0)


@pytest.mark.parametrize(
    "peer",
    [
        _peer(),
        _peer(("IP Address", "192.0.2.1")),
        _peer(common_names=("",)),
        _peer(common_names=("one", "two")),
        _peer(("URI", "spiffe://x/a\nlevel=admin")),
        _peer(("URI", "x" * (MAX_IDENTITY_LENGTH + 1))),
        _peer(("DNS", "a\x00b")),
    ],
)
def test_a_certificate_that_names_nobody_or_too_much_is_an_invalid_credential(
    peer: dict[str, Any],
) -> None:
    assert identity_of(peer) is NOBODY
    assert isinstance(CertificateAuthenticator().verify(NOBODY), Refusal)


@pytest.mark.parametrize("peer", [None, {}])
def test_no_certificate_is_no_credential(peer: dict[str, Any] | None) -> None:
    assert identity_of(peer) is None


def test_a_real_certificate_names_its_owner() -> None:
    authority = trustme.CA()
    until = datetime.datetime(2039, 5, 1, tzinfo=datetime.UTC)
    leaf = authority.issue_cert("client.example", not_after=until)
    server = authority.issue_cert("localhost")
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.configure_cert(server_context)
    authority.configure_trust(server_context)
    server_context.verify_mode = ssl.CERT_REQUIRED
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(client_context)
    leaf.configure_cert(client_context)
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(one, other, server_hostname="localhost")
    accepted = server_context.wrap_bio(other, one, server_side=True)
    for _ in range(4):
        for side in (client, accepted):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass

    named = identity_of(accepted.getpeercert())

    certificate = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
    assert certificate.public_bytes(Encoding.DER) == accepted.getpeercert(binary_form=True)
    assert named == CertificateIdentity("client.example", "dns", until.timestamp())


# --- X-Forwarded-Client-Cert -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "identity", "kind"),
    [
        (b"By=spiffe://x/router;Hash=ab;URI=spiffe://x/alice", "spiffe://x/alice", "uri"),
        (b'Hash=ab;Subject="CN=alice,OU=dev";URI=;DNS=alice.example', "alice.example", "dns"),
        (b'Hash=ab;Subject="CN=alice,OU=dev,O=Acme\\, Inc"', "alice", "cn"),
        (b'Subject="OU=dev + CN=alice"', "alice", "cn"),
        (b'Subject="CN=Smith\\, Jane,O=x"', "Smith, Jane", "cn"),
        (b'Subject="CN=Zo\\C3\\AB"', "Zoë", "cn"),
        (b'Subject="2.5.4.3=alice"', "alice", "cn"),
        (b'uri="spiffe://x/a,b;c=d"', "spiffe://x/a,b;c=d", "uri"),
        (b'URI="spiffe://x/\\"q\\""', 'spiffe://x/"q"', "uri"),
        (b"URI=spiffe://x/evil, URI=spiffe://x/alice", "spiffe://x/alice", "uri"),
        (b"URI=spiffe://x/a;URI=spiffe://x/b;DNS=c", "spiffe://x/a", "uri"),
        (b" URI=spiffe://x/alice ; DNS=a ", "spiffe://x/alice", "uri"),
    ],
)
def test_the_last_element_says_who_the_trusted_proxys_own_client_was(
    value: bytes, identity: str, kind: str
) -> None:
    assert parse_xfcc(value) == CertificateIdentity(identity, kind)


@pytest.mark.parametrize(
    "value",
    [
        b"Hash=ab",
        b"URI=spiffe://x/evil,Hash=ab",
        b"By=spiffe://x/router;Hash=ab;URI=",
        b'Subject=""',
        b'Subject="O=Acme"',
        b'Subject="O=CN=alice"',
        b'Subject="CN=alice,CN=bob"',
        b'URI="spiffe://x/a\nb"',
    ],
)
def test_an_element_that_names_nobody_does_so_whatever_came_before_it(value: bytes) -> None:
    assert parse_xfcc(value) is NOBODY


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"alice",
        b"URI",
        b"=x",
        b"URI=spiffe://x/alice,",
        b"URI=a,,URI=b",
        b"URI=a;;DNS=b",
        b'URI="a',
        b'URI="a"b',
        b'URI=a"b"',
        b'Subject="garbage"',
        b"URI=\xff",
    ],
)
def test_a_malformed_value_is_an_invalid_credential_and_not_none(value: bytes) -> None:
    assert parse_xfcc(value) is NOBODY


@given(st.binary(max_size=100) | st.text('URIDNSubjectCN=",;\\+ ax', max_size=60).map(str.encode))
def test_whatever_the_bytes_are_they_name_somebody_or_nobody(value: bytes) -> None:
    named = parse_xfcc(value)

    assert named is NOBODY or (named.identity and named.identity.isprintable())


@given(
    st.text(
        st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="\\"),
        min_size=1,
        max_size=30,
    )
)
def test_a_quoted_value_comes_back_as_it_was(text: str) -> None:
    quoted = text.replace('"', '\\"')

    named = parse_xfcc(f'By=x;URI="{quoted}";Hash=1'.encode())

    assert named.identity == (text if text.isprintable() else "")


# --- the authenticator -----------------------------------------------------------------------


def test_the_same_certificate_is_the_same_principal_object() -> None:
    authenticator = CertificateAuthenticator(clock=lambda: 100.0)
    certificate = CertificateIdentity("spiffe://x/alice", "uri", 200.0)

    principal = authenticator.verify(certificate)

    assert isinstance(principal, Principal)
    assert (principal.mode, principal.identity, principal.expires_at) == (
        "mtls",
        "spiffe://x/alice",
        200.0,
    )
    assert authenticator.verify(CertificateIdentity("spiffe://x/alice", "uri", 200.0)) is principal


def test_what_is_remembered_is_bounded() -> None:
    authenticator = CertificateAuthenticator(clock=lambda: 100.0)

    for number in range(MAX_REMEMBERED + 10):
        authenticator.verify(CertificateIdentity(f"spiffe://x/{number}", "uri"))

    assert repr(authenticator) == "<CertificateAuthenticator remembered=10>"


@pytest.mark.parametrize("kind", ["uri", "dns", "cn"])
def test_the_caller_knows_which_of_the_certificates_names_it_is(kind: str) -> None:
    caller = CertificateAuthenticator().verify(CertificateIdentity("spiffe://x/alice", kind))

    assert isinstance(caller, Principal)
    assert (caller.mode, caller.kind, caller.identity) == ("mtls", kind, "spiffe://x/alice")
