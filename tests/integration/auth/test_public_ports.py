"""Public ports: opened by the operator and the sandbox's owner together, to everybody, and nothing beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from router.admin.explain import Question
from tests.fakes.links import PLATFORM_SECRET, bearer
from tests.integration.auth.door import Door, open_door, read_answer, request

PUBLIC = {"name": "box-p", "port": 80}


def flags(tmp_path: Path, **more: Any) -> dict[str, Any]:
    secret = tmp_path / "secret"
    secret.write_bytes(PLATFORM_SECRET)
    return {"auth": "jwt", "jwt_secret_file": secret, "public_ports": "true", **more}


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(tmp_path, **flags(tmp_path)) as door:
        yield door


async def test_a_public_port_needs_no_credential(door: Door) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert (await door.ask(method=method, **PUBLIC)).status == 200
    assert door.reached() == 3


async def test_on_a_kept_connection_it_is_remembered_and_nothing_else_is_open(door: Door) -> None:
    reader, writer = await door.connect()
    codes = []
    for port in (80, 80, 8888, 80):
        writer.write(request(name="box-p", port=port))
        codes.append((await read_answer(reader)).code)
    assert codes == ["", "", "unauthenticated", ""]


async def test_other_ports_and_other_sandboxes_need_one(door: Door) -> None:
    assert (await door.ask(name="box-p", port=8888)).code == "unauthenticated"
    assert (await door.ask(name="box-a", port=80)).code == "unauthenticated"
    assert (await door.ask(name="nowhere", port=80)).code == "unauthenticated"
    assert door.reached() == 0


async def test_the_owner_alone_opens_nothing(tmp_path: Path) -> None:
    async with open_door(tmp_path, **flags(tmp_path, public_ports="false")) as door:
        assert (await door.ask(**PUBLIC)).code == "unauthenticated"
        assert door.reached() == 0


async def test_a_credential_that_is_brought_is_checked_and_never_handed_on(door: Door) -> None:
    wrong = ("Authorization", "Bearer nonsense")
    assert (await door.ask(wrong, **PUBLIC)).code == "unauthenticated"
    assert door.reached() == 0
    good = ("Authorization", f"Bearer {bearer()}")
    assert (await door.ask(good, **PUBLIC)).status == 200, "a token for another sandbox"
    assert b"authorization" not in door.sandbox.heads[0].lower()


async def test_the_app_s_own_password_passes(door: Door) -> None:
    own = ("Authorization", "Basic dXNlcjp0aGUtYXBwLXMtb3du")
    assert (await door.ask(own, **PUBLIC)).status == 200
    assert b"\r\nAuthorization: Basic dXNlcjp0aGUtYXBwLXMtb3du\r\n" in door.sandbox.heads[0]


async def test_nobody_unknown_keeps_a_sandbox_awake_or_wakes_it(door: Door) -> None:
    awake = {"method": "POST", "path": "/.sandbox-router/awake", "body": b'{"seconds": 60}'}
    length = ("Content-Length", "15")
    assert (await door.ask(length, **awake, **PUBLIC)).code == "unauthenticated"
    assert (await door.ask(name="box-z", port=80)).code == "sandbox_suspended"
    assert (await door.ask(name="box-z", port=8888)).code == "unauthenticated"


async def test_it_is_counted_and_explained(door: Door) -> None:
    await door.ask(**PUBLIC)
    decisions = dict(door.worker.metrics.snapshot()["sandbox_router_authz_decisions_total"])
    assert decisions["team-a", "public"] == [1]
    told = await door.worker.explain(
        Question(((b"Host", b"router"),), name=b"box-p", namespace=b"team-a", port=b"80")
    )
    assert told["principal"]["mode"] == "public"
    assert told["decision"]["decision"] == "allowed"
    assert told["decision"]["by"].startswith("port 80 is public")
    assert told["outcome"]["code"] == ""
