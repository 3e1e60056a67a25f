"""mTLS at the router's own listener, and a trusted proxy's word about a certificate."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.integration.auth.door import Door, open_door, read_answer, request
from tests.unit.auth.tokens import SECRET, sign

REFUSED = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)
"""How a client learns that its handshake failed: with TLS 1.3 only after its own side is done."""

POLICY = """
rules:
  - principal: {identity: alice.example}
    sandboxes: [{namespace: team-a, name: "*"}]
  - principal: {identity: "spiffe://example/alice"}
    sandboxes: [{namespace: team-a, name: "*"}]
  - principal: {subject: carol@example.com}
    sandboxes: [{namespace: team-a, name: "*"}]
  - principal: {subject: "system:serviceaccount:team-a:robot"}
    sandboxes: [{namespace: team-a, name: "*"}]
"""


class Mount:
    """A Secret's directory, swapped at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.version = 0

    def put(self, server: trustme.LeafCert, client_ca: trustme.CA) -> None:
        self.version += 1
        data = self.root / f"..v{self.version}"
        data.mkdir()
        chain = b"".join(blob.bytes() for blob in server.cert_chain_pems)
        (data / "tls.crt").write_bytes(chain)
        (data / "tls.key").write_bytes(server.private_key_pem.bytes())
        (data / "ca.crt").write_bytes(client_ca.cert_pem.bytes())
        (self.root / "..new").symlink_to(data.name)
        os.rename(self.root / "..new", self.root / "..data")
        if self.version == 1:
            for name in ("tls.crt", "tls.key", "ca.crt"):
                (self.root / name).symlink_to(f"..data/{name}")


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def mount(tmp_path: Path, authority: trustme.CA) -> Mount:
    root = tmp_path / "tls"
    root.mkdir()
    made = Mount(root)
    made.put(authority.issue_cert("localhost"), authority)
    return made


@asynccontextmanager
async def _door(tmp_path: Path, mount: Mount, **flags: Any) -> AsyncIterator[Door]:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    given = {
        "auth": "mtls",
        "mtls": "required",
        "policy_file": policy,
        "tls_cert_file": mount.root / "tls.crt",
        "tls_key_file": mount.root / "tls.key",
        "tls_client_ca_file": mount.root / "ca.crt",
        **flags,
    }
    if "jwt" in given["auth"]:
        given["jwt_secret_file"] = secret
    async with open_door(tmp_path, **given) as opened:
        yield opened


def client(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    """Returns a client's context, with a certificate for these names if any."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if names:
        authority.issue_cert(*names).configure_cert(context)
    return context


async def test_a_certificate_of_the_ca_gets_what_the_policy_grants_it(
    tmp_path: Path, mount: Mount, authority: trustme.CA
) -> None:
    async with _door(tmp_path, mount) as door:
        alice = await door.ask(tls=client(authority, "alice.example"))
        bob = await door.ask(tls=client(authority, "bob.example"))

    assert (alice.status, bob.status) == (200, 403)
    assert door.reached() == 1


async def test_required_means_that_nobody_gets_in_without_one(
    tmp_path: Path, mount: Mount, authority: trustme.CA
) -> None:
    foreign = client(authority)
    trustme.CA().issue_cert("alice.example").configure_cert(foreign)

    async with _door(tmp_path, mount) as door:
        for context in (client(authority), foreign):
            with pytest.raises(REFUSED):
                await door.ask(tls=context)

    assert door.reached() == 0


async def test_optional_lets_in_without_one_and_then_a_token_decides(
    tmp_path: Path, mount: Mount, authority: trustme.CA
) -> None:
    grants = [{"namespace": "team-a", "name": "box-a"}]
    bearer = ("Authorization", f"Bearer {sign({'sandboxes': grants}).decode()}")
    async with _door(tmp_path, mount, auth="jwt,mtls", mtls="optional") as door:
        without = await door.ask(tls=client(authority))
        with_token = await door.ask(bearer, tls=client(authority))
        with_certificate = await door.ask(tls=client(authority, "alice.example"))
        with_bad_token = await door.ask(
            ("Authorization", "Bearer bad"), tls=client(authority, "alice.example")
        )

    assert (without.status, with_token.status) == (401, 200)
    assert (with_certificate.status, with_bad_token.status) == (200, 401)
    assert door.reached() == 2


async def test_with_only_mtls_on_authorization_is_the_apps_own(
    tmp_path: Path, mount: Mount, authority: trustme.CA
) -> None:
    async with _door(tmp_path, mount) as door:
        await door.ask(
            ("Authorization", "Bearer of-the-app"), tls=client(authority, "alice.example")
        )

    assert b"Authorization: Bearer of-the-app\r\n" in door.sandbox.heads[0]


async def test_a_rotated_client_ca_counts_for_new_connections_and_keeps_open_ones(
    tmp_path: Path, mount: Mount, authority: trustme.CA
) -> None:
    new_authority = trustme.CA()
    async with _door(tmp_path, mount) as door, asyncio.timeout(10):
        alice = client(authority, "alice.example")
        reader, writer = await door.connect(alice)
        writer.write(request())
        assert (await read_answer(reader)).status == 200

        mount.put(authority.issue_cert("localhost"), new_authority)
        newcomer = client(authority)
        new_authority.issue_cert("alice.example").configure_cert(newcomer)
        while True:
            try:
                if (await door.ask(tls=newcomer)).status == 200:
                    break
            except REFUSED:
                await asyncio.sleep(0.05)

        with pytest.raises(REFUSED):
            await door.ask(tls=alice)
        writer.write(request())
        assert (await read_answer(reader)).status == 200


XFCC = "X-Forwarded-Client-Cert"
ALICE = "Hash=ab;URI=spiffe://example/alice"


@asynccontextmanager
async def _behind_a_proxy(
    tmp_path: Path, mount: Mount, trusted: str, **flags: Any
) -> AsyncIterator[Door]:
    settings = {"mtls": "optional", "trusted_proxies": trusted, **flags}
    async with _door(tmp_path, mount, **settings) as opened:
        yield opened


async def test_a_trusted_proxys_word_about_a_certificate_counts(
    tmp_path: Path, mount: Mount
) -> None:
    async with _behind_a_proxy(tmp_path, mount, "127.0.0.1/32") as door:
        alice = await door.ask((XFCC, ALICE))
        mallory = await door.ask((XFCC, "URI=spiffe://example/mallory"))
        appended = await door.ask((XFCC, f"{ALICE},URI=spiffe://example/mallory"))
        nobody = await door.ask((XFCC, "Hash=ab"))
        malformed = await door.ask((XFCC, "garbage"))
        none = await door.ask()

    assert alice.status == 200
    assert (mallory.status, appended.status) == (403, 403)
    assert (nobody.status, malformed.status, none.status) == (401, 401, 401)
    assert door.reached() == 1
    assert b"spiffe" not in door.sandbox.heads[0]


@pytest.mark.parametrize(
    ("vouched_for", "status"),
    [
        ("URI=spiffe://example/alice", 200),
        ('Subject="CN=spiffe://example/alice"', 403),
        ("DNS=alice.example", 200),
        ('Subject="CN=alice.example"', 403),
        ('Subject="CN=carol@example.com"', 403),
        ('Subject="CN=system:serviceaccount:team-a:robot"', 403),
        ("URI=system:serviceaccount:team-a:robot", 403),
    ],
)
async def test_a_name_counts_as_the_kind_that_a_rule_means_and_as_no_other(
    tmp_path: Path, mount: Mount, vouched_for: str, status: int
) -> None:
    async with _behind_a_proxy(tmp_path, mount, "127.0.0.1/32") as door:
        assert (await door.ask((XFCC, vouched_for))).status == status


async def test_a_strangers_word_about_a_certificate_counts_for_nothing(
    tmp_path: Path, mount: Mount
) -> None:
    async with _behind_a_proxy(tmp_path, mount, "192.0.2.0/24") as door:
        answer = await door.ask((XFCC, ALICE))

    assert answer.status == 401
    assert door.reached() == 0


async def test_a_proxy_that_vouches_for_nobody_does_not_lend_its_own_identity(
    tmp_path: Path, mount: Mount, authority: trustme.CA
) -> None:
    """The confused deputy: the proxy itself may call everything, its client came without a usable certificate."""
    async with _behind_a_proxy(tmp_path, mount, "127.0.0.1/32") as door:
        proxy = client(authority, "alice.example")
        answers = [
            await door.ask((XFCC, value), tls=proxy) for value in ("Hash=ab", "By=x;URI=", "a b")
        ]

    assert {answer.status for answer in answers} == {401}
    assert door.reached() == 0
