"""What is kept of an earlier answer: every cause that makes it another begins a generation, or was told beforehand."""

from __future__ import annotations

import datetime
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from router.app.access import Access, build_access
from router.auth.authenticator import Authenticated, Credentials
from router.errors import Forbidden, Unauthenticated
from router.routing.endpoint import Endpoint, SandboxRef, State
from tests.unit.app.conftest import MakeSettings
from tests.unit.auth.tokens import OTHER_SECRET, SECRET, sign

BOX = Endpoint(SandboxRef("team-a", "box"), "pod-1", State.READY, ("10.0.0.5",))
OPEN = '{principal: {subject: alice}, sandboxes: [{namespace: "*", name: "*"}]}'


def _built(settings: Any, reviewer: Any = None) -> Access:
    return build_access(settings, reviewer=reviewer, current=lambda endpoint: endpoint)


async def _authenticated(access: Access, token: bytes) -> Authenticated:
    answer = access.authenticator.authenticate(Credentials(sandbox_token=token))
    return await answer if isinstance(answer, Awaitable) else answer


@pytest.fixture
def jwt_access(make_settings: MakeSettings, tmp_path: Path) -> Access:
    """Returns gateway tokens with a policy that lets alice call everything."""
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "policy").write_text(f"rules: [{OPEN}]\n")
    return _built(
        make_settings(
            auth="jwt",
            jwt_secret_file=tmp_path / "secret",
            policy_file=tmp_path / "policy",
            jwt_leeway="30s",
        )
    )


def _tomorrow() -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)).isoformat("T")


REFUSED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "the key that signed it is gone": ("jwt_secret", lambda: OTHER_SECRET),
    "its id is revoked": ("policy", lambda: f"rules: [{OPEN}]\nrevoked: [id-1]\n".encode()),
    "not-before was raised": (
        "policy",
        lambda: (
            f"rules: [{OPEN}]\nnot-before: [{{subject: alice, time: '{_tomorrow()}'}}]\n".encode()
        ),
    ),
}


@pytest.mark.parametrize("cause", REFUSED)
async def test_what_refuses_an_accepted_token_begins_a_generation(
    jwt_access: Access, cause: str
) -> None:
    name, content = REFUSED[cause]
    token = sign({"sub": "alice", "jti": "id-1", "iat": 1})
    await _authenticated(jwt_access, token)
    before = jwt_access.authenticator.generation

    jwt_access.files[name].paths[0].write_bytes(content())
    assert await jwt_access.files[name].poll()

    assert jwt_access.authenticator.generation != before
    with pytest.raises(Unauthenticated):
        await _authenticated(jwt_access, token)


async def test_a_grant_that_is_taken_away_begins_a_generation_of_permits(
    jwt_access: Access,
) -> None:
    caller = (await _authenticated(jwt_access, sign({"sub": "alice"}))).principal
    jwt_access.authorizer.authorize(caller, BOX, (BOX.ref,), 80, b"GET")
    before = jwt_access.authorizer.generation

    jwt_access.files["policy"].paths[0].write_text("rules: []\n")
    assert await jwt_access.files["policy"].poll()

    assert jwt_access.authorizer.generation != before
    with pytest.raises(Forbidden):
        jwt_access.authorizer.authorize(caller, BOX, (BOX.ref,), 80, b"GET")


async def test_a_token_is_kept_until_its_own_end_with_leeway(jwt_access: Access) -> None:
    accepted = await _authenticated(jwt_access, sign({"sub": "alice", "exp": 4102444800}))

    assert jwt_access.authenticator.valid_until(accepted) == 4102444800 + 30


async def test_a_shared_token_that_is_replaced_begins_a_generation(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("the-old-shared-token")
    access = _built(make_settings(auth="static", static_token_file=tmp_path / "token"))
    accepted = await _authenticated(access, b"the-old-shared-token")
    before = access.authenticator.generation

    (tmp_path / "token").write_text("the-new-shared-token")
    assert await access.files["static_token"].poll()

    assert access.authenticator.valid_until(accepted) == math.inf
    assert access.authenticator.generation != before


class _Reviews:
    """In the API server's place: says yes to everybody."""

    async def review(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"status": {"authenticated": True, "user": {"username": "carol"}}}


async def test_a_reviewed_token_is_never_kept_past_the_reviews_own_time(
    make_settings: MakeSettings,
) -> None:
    access = _built(make_settings(auth="token-review", token_review_ttl="0"), _Reviews())
    token = sign({"exp": 4102444800})

    accepted = await _authenticated(access, token)

    assert accepted.principal.expires_at == 4102444800
    assert access.authenticator.valid_until(accepted) < 4102444800 - 3600
    for close in access.closers:
        await close()


async def test_a_policy_that_changes_begins_a_generation_of_reviewed_tokens(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    (tmp_path / "policy").write_text("rules: []\n")
    access = _built(make_settings(auth="token-review", policy_file=tmp_path / "policy"), _Reviews())
    before = access.authenticator.generation

    (tmp_path / "policy").write_text("rules: []\nrevoked: [a]\n")
    assert await access.files["policy"].poll()

    assert access.authenticator.generation != before
    for close in access.closers:
        await close()


async def test_a_file_that_only_looks_new_keeps_the_generation(jwt_access: Access) -> None:
    before = (jwt_access.authenticator.generation, jwt_access.authorizer.generation)

    path = jwt_access.files["policy"].paths[0]
    path.write_bytes(path.read_bytes())
    await jwt_access.files["policy"].poll()

    assert (jwt_access.authenticator.generation, jwt_access.authorizer.generation) == before
