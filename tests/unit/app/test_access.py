"""Who may call, built from the settings: every mode, its files, and what has to run for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from jwt.algorithms import ECAlgorithm

from router.app.access import Access, build_access, needs_reviews
from router.auth.anonymous import AnonymousAuthenticator
from router.auth.authenticator import Authenticated, CertificateIdentity, Credentials
from router.auth.authorizer import Permit
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.principal import Principal
from router.auth.subject_access_review import SubjectAccessReviewAuthorizer
from router.errors import AuthUnavailable, Forbidden, ReviewRefused, Unauthenticated
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.settings import Settings, load
from router.watched_file import reload_all
from tests.unit.app.conftest import MakeSettings
from tests.unit.auth.tokens import EC_KEY, SECRET, sign

BOX = Endpoint(SandboxRef("team-a", "box"), "pod-1", State.READY, ("10.0.0.5",))
TOKEN = "s3cr3t-shared-token-of-some-length"
GRANTS = {"sandboxes": [{"namespace": "team-a", "name": "*"}]}


class Reviews:
    """In the API server's place: knows one user, who may do everything."""

    async def review(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["kind"] == "TokenReview":
            return {"status": {"authenticated": True, "user": {"username": "carol"}}}
        return {"status": {"allowed": True}}


def built(settings: Settings, reviewer: Any = None) -> Access:
    return build_access(settings, reviewer=reviewer, current=lambda endpoint: endpoint)


async def caller(access: Access, **credentials: Any) -> str:
    """Returns the subject that these credentials prove."""
    answer = access.authenticator.authenticate(Credentials(**credentials))
    if isinstance(answer, Awaitable):
        answer = await answer
    assert isinstance(answer, Authenticated)
    return answer.principal.subject


async def may_call(access: Access, **credentials: Any) -> bool:
    answer = access.authenticator.authenticate(Credentials(**credentials))
    assert isinstance(answer, Authenticated)
    try:
        permit = access.authorizer.authorize(answer.principal, BOX, (BOX.ref,), 8888, b"GET")
    except Forbidden:
        return False
    assert isinstance(permit, Permit)
    return True


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "rules": [
                    {
                        "principal": {"subject": "alice"},
                        "sandboxes": [{"namespace": "team-a", "name": "box"}],
                    }
                ],
                "revoked": ["revoked-id"],
            }
        )
    )
    return path


# --- each mode ------------------------------------------------------------------------------


async def test_none_lets_everybody_in_with_nothing_to_run(make_settings: MakeSettings) -> None:
    access = built(make_settings())
    assert isinstance(access.authenticator, AnonymousAuthenticator)
    assert await caller(access) == "anonymous"
    assert await may_call(access)
    assert (access.files, access.runners, access.closers, access.missing) == ({}, [], [], [])


async def test_static_knows_the_tokens_of_its_file(
    make_settings: MakeSettings, token_file: Path
) -> None:
    access = built(make_settings(auth="static", static_token_file=token_file))
    assert await caller(access, authorization=b"Bearer " + TOKEN.encode()) == "static-token"
    assert list(access.files) == ["static_token"]
    assert len(access.runners) == 1
    with pytest.raises(Unauthenticated):
        await caller(access, authorization=b"Bearer another")
    assert sum(access.failures.values()) == 1


async def test_static_knows_the_token_of_the_environment_where_no_file_is_named(
    token_file: Path,
) -> None:
    flags = {"auth": "static", "discovery": "dns"}
    access = built(load(flags, {"ROUTER_AUTH_TOKEN": f" {TOKEN}\n"}).settings)
    assert await caller(access, sandbox_token=TOKEN.encode()) == "static-token"
    assert access.files == {}
    token_file.write_text("another-token-of-some-length-too")
    flags["static-token-file"] = str(token_file)
    access = built(load(flags, {"ROUTER_AUTH_TOKEN": TOKEN}).settings)
    with pytest.raises(Unauthenticated):
        await caller(access, sandbox_token=TOKEN.encode())


async def test_jwt_verifies_by_a_file_of_secrets(
    make_settings: MakeSettings, secret_file: Path
) -> None:
    access = built(
        make_settings(
            auth="jwt", jwt_secret_file=secret_file, jwt_issuer="issuer", jwt_audience="router"
        )
    )
    claims = {"sub": "alice", "iss": "issuer", "aud": "router"} | GRANTS
    assert await caller(access, authorization=b"Bearer " + sign(claims)) == "alice"
    assert await may_call(access, authorization=b"Bearer " + sign(claims))
    assert not await may_call(access, sandbox_token=sign(claims | {"sandboxes": []}))
    for wrong in ({"iss": "other"}, {"aud": "other"}):
        with pytest.raises(Unauthenticated):
            await caller(access, authorization=b"Bearer " + sign(claims | wrong))
    assert list(access.files) == ["jwt_secret"]


async def test_jwt_verifies_by_a_key_set(make_settings: MakeSettings, tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True)]}))
    access = built(make_settings(auth="jwt", jwks_file=path))
    token = sign({"sub": "alice"} | GRANTS, algorithm="ES256")
    assert await caller(access, sandbox_token=token) == "alice"
    assert list(access.files) == ["jwks"]


def test_jwt_by_url_is_not_ready_before_the_keys_have_come(
    make_settings: MakeSettings,
) -> None:
    access = built(make_settings(auth="jwt", jwks_url="https://issuer.test/keys"))
    (missing,) = access.missing
    assert missing() != []
    assert len(access.runners) == 1


async def test_mtls_takes_the_connections_certificate(
    make_settings: MakeSettings, tls_files: dict[str, Path]
) -> None:
    access = built(
        make_settings(
            auth="mtls",
            mtls="required",
            https_bind="127.0.0.1:0",
            http_bind="off",
            tls_cert_file=tls_files["cert"],
            tls_key_file=tls_files["key"],
            tls_client_ca_file=tls_files["ca"],
        )
    )
    identity = CertificateIdentity("spiffe://team/bot", "uri")
    assert await caller(access, certificate=identity) == "spiffe://team/bot"
    with pytest.raises(Unauthenticated):
        await caller(access)


@pytest.fixture
def tls_files(tmp_path: Path) -> dict[str, Path]:
    authority = trustme.CA()
    server = authority.issue_cert("localhost")
    files = {name: tmp_path / f"{name}.pem" for name in ("cert", "key", "ca")}
    server.cert_chain_pems[0].write_to_path(str(files["cert"]))
    server.private_key_pem.write_to_path(str(files["key"]))
    authority.cert_pem.write_to_path(str(files["ca"]))
    return files


async def test_token_review_asks_the_api_server_and_is_closed_in_the_end(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings(auth="token-review")
    assert needs_reviews(settings)
    access = built(settings, Reviews())
    assert await caller(access, authorization=b"Bearer a-token-of-the-cluster") == "carol"
    assert len(access.closers) == 1
    for close in access.closers:
        await close()


async def test_reviews_of_access_decide_after_the_grants(make_settings: MakeSettings) -> None:
    settings = make_settings(auth="token-review", subject_access_review="true")
    assert needs_reviews(settings)
    access = built(settings, Reviews())
    assert isinstance(access.authorizer, SubjectAccessReviewAuthorizer)
    carol = Principal("carol", "token-review")
    permit = access.authorizer.authorize(carol, BOX, (BOX.ref,), 8888, b"GET")
    assert isinstance(permit, Awaitable)
    assert (await permit).endpoint is BOX
    assert len(access.closers) == 2
    for close in access.closers:
        await close()


def test_nobody_else_needs_reviews(make_settings: MakeSettings, token_file: Path) -> None:
    assert not needs_reviews(make_settings())
    assert not needs_reviews(make_settings(auth="static", static_token_file=token_file))


def test_what_cannot_be_built_is_never_left_out(make_settings: MakeSettings) -> None:
    with pytest.raises(ValueError, match="token-review"):
        built(make_settings(auth="token-review"), None)


async def test_several_modes_are_tried_in_turn(
    make_settings: MakeSettings, token_file: Path, secret_file: Path
) -> None:
    access = built(
        make_settings(auth="jwt,static", jwt_secret_file=secret_file, static_token_file=token_file)
    )
    assert await caller(access, sandbox_token=sign({"sub": "alice"})) == "alice"
    assert await caller(access, sandbox_token=TOKEN.encode()) == "static-token"
    assert sorted(access.files) == ["jwt_secret", "static_token"]
    assert len(access.runners) == 2


# --- the policy -----------------------------------------------------------------------------


async def test_a_policy_grants_and_revokes(
    make_settings: MakeSettings, secret_file: Path, policy_file: Path
) -> None:
    access = built(make_settings(auth="jwt", jwt_secret_file=secret_file, policy_file=policy_file))
    assert isinstance(access.authorizer, GrantAuthorizer)
    assert sorted(access.files) == ["jwt_secret", "policy"]
    assert await may_call(access, sandbox_token=sign({"sub": "alice"}))
    assert not await may_call(access, sandbox_token=sign({"sub": "bob"}))
    with pytest.raises(Unauthenticated):
        await caller(access, sandbox_token=sign({"sub": "alice", "jti": "revoked-id"}))


async def test_a_new_policy_holds_for_tokens_that_were_verified_before(
    make_settings: MakeSettings, secret_file: Path, policy_file: Path
) -> None:
    access = built(make_settings(auth="jwt", jwt_secret_file=secret_file, policy_file=policy_file))
    token = sign({"sub": "alice", "jti": "alices-id"})
    assert await may_call(access, sandbox_token=token)
    policy_file.write_text("rules: []\nrevoked: [alices-id]\n")
    assert await access.files["policy"].poll()
    with pytest.raises(Unauthenticated):
        await caller(access, sandbox_token=token)


async def test_what_has_to_run_watches_its_file(
    make_settings: MakeSettings, token_file: Path
) -> None:
    access = built(make_settings(auth="static", static_token_file=token_file))
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(run()) for run in access.runners]
        await asyncio.sleep(0)
        assert not any(task.done() for task in running)
        for task in running:
            task.cancel()


# --- files that are no good -----------------------------------------------------------------

FILES = [
    ("static", "static_token_file", b"  \n\n"),
    ("jwt", "jwt_secret_file", b"short"),
    ("jwt", "jwks_file", b"{not json"),
    ("none", "policy_file", b"rules: 5"),
]


@pytest.mark.parametrize(("auth", "setting", "content"), FILES)
def test_a_file_that_cannot_be_used_is_named(
    make_settings: MakeSettings, tmp_path: Path, auth: str, setting: str, content: bytes
) -> None:
    path = tmp_path / "bad-file"
    path.write_bytes(b"some content, for the settings look into some files too")
    settings = make_settings(auth=auth, **{setting: path})
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        built(settings)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("auth", "setting"), [(auth, setting) for auth, setting, _ in FILES])
def test_a_file_that_is_not_there_is_named(
    make_settings: MakeSettings, tmp_path: Path, auth: str, setting: str
) -> None:
    path = tmp_path / "no-such-file"
    path.write_text("there when the settings are checked, gone when it is read")
    settings = make_settings(auth=auth, **{setting: path})
    path.unlink()
    with pytest.raises((ValueError, OSError)) as caught:
        built(settings)
    assert str(path) in str(caught.value)


async def test_everything_that_is_read_again_is_reloaded_at_once_by_one_call(
    make_settings: MakeSettings, secret_file: Path, policy_file: Path
) -> None:
    access = built(make_settings(auth="jwt", jwt_secret_file=secret_file, policy_file=policy_file))
    token = sign({"sub": "alice", "jti": "alices-id"})
    policy_file.write_text("revoked: [alices-id]\n")

    statuses = await reload_all(access.sources())

    assert {status.name: status.ok for status in statuses} == {"jwt_secret": True, "policy": True}
    with pytest.raises(Unauthenticated):
        await caller(access, sandbox_token=token)


def test_keys_by_url_are_among_what_is_read_again(make_settings: MakeSettings) -> None:
    access = built(make_settings(auth="jwt", jwks_url="https://issuer.test/keys"))

    assert not access.sources()["jwks_url"].status("jwks_url").ok


# --- reviews that are refused ---------------------------------------------------------------


class Refused:
    """In the API server's place: lets the router create nothing."""

    async def review(self, body: dict[str, Any]) -> dict[str, Any]:
        raise ReviewRefused(reason=f"{body['kind']}: HTTP 403 Forbidden")


async def _checked(access: Access) -> None:
    """Runs what has to run until the reviews were checked once."""
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(run()) for run in access.runners]
        for _ in range(20):
            await asyncio.sleep(0)
        for task in running:
            task.cancel()


def _said(sources: list[Any]) -> list[str]:
    return [sentence for tell in sources for sentence in tell()]


async def test_a_router_that_may_not_ask_is_not_ready_and_says_what_it_needs(
    make_settings: MakeSettings,
) -> None:
    access = built(make_settings(auth="token-review", subject_access_review="true"), Refused())

    await _checked(access)

    assert [sentence.partition(" (")[0] for sentence in _said(access.missing)] == [
        "the API server refuses TokenReviews",
        "the API server refuses SubjectAccessReviews",
    ]
    for close in access.closers:
        await close()


async def test_a_router_that_may_ask_is_ready(make_settings: MakeSettings) -> None:
    access = built(make_settings(auth="token-review"), Reviews())

    await _checked(access)

    assert (_said(access.missing), _said(access.notes)) == ([], [])
    for close in access.closers:
        await close()


async def test_where_others_can_be_let_in_a_later_refusal_is_a_note(
    make_settings: MakeSettings, token_file: Path
) -> None:
    answers: list[Any] = [Reviews(), Refused()]

    class Turning:
        async def review(self, body: dict[str, Any]) -> dict[str, Any]:
            answer: dict[str, Any] = await answers[0].review(body)
            return answer

    settings = make_settings(auth="static,token-review", static_token_file=token_file)
    access = built(settings, Turning())
    await caller(access, sandbox_token=b"a-token-of-the-cluster")
    del answers[0]

    with pytest.raises(AuthUnavailable):
        await caller(access, sandbox_token=b"another-token-of-the-cluster")

    assert _said(access.missing) == []
    assert "refuses TokenReviews" in _said(access.notes)[0]
    for close in access.closers:
        await close()
