"""Auth mode `forwarded` before a whole router: believed of a trusted proxy alone, and never handed on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.auth.door import Answer, Door, open_door

ADA = ("X-Auth-Request-Email", "ada@example.com")
USERS = ("X-Auth-Request-Groups", "users")


def flags(tmp_path: Path, **more: Any) -> dict[str, Any]:
    policy = tmp_path / "policy.yaml"
    rules = [
        {
            "principal": {"mode": "forwarded", "group": "users"},
            "sandboxes": [{"namespace": "team-a", "name": "*"}],
        }
    ]
    policy.write_text(yaml.safe_dump({"rules": rules}))
    return {
        "auth": "forwarded",
        "identity_header": "X-Auth-Request-Email",
        "groups_header": "X-Auth-Request-Groups",
        "trusted_proxies": "127.0.0.1",
        "policy_file": policy,
        **more,
    }


async def ask(door: Door, *headers: tuple[str, str], **how: Any) -> Answer:
    return await door.ask(*headers, **how)


async def test_a_trusted_proxy_is_believed_and_the_policy_decides(tmp_path: Path) -> None:
    async with open_door(tmp_path, **flags(tmp_path)) as door:
        assert (await ask(door, ADA, USERS)).status == 200
        assert (await ask(door, ADA)).code == "forbidden"
        assert (await ask(door, ADA, USERS, namespace="team-b", name="box-b")).code == "forbidden"
        assert (await ask(door)).code == "unauthenticated"


async def test_nobody_else_is(tmp_path: Path) -> None:
    async with open_door(tmp_path, **flags(tmp_path, trusted_proxies="10.0.0.0/8")) as door:
        assert (await ask(door, ADA, USERS)).code == "unauthenticated"
        assert door.reached() == 0


async def test_no_sandbox_learns_who_it_is_from_the_header(tmp_path: Path) -> None:
    given = flags(tmp_path, identity_header="X-Person", groups_header="X-Teams")
    tricks = [("X_Person", "root"), ("x_teams", "root"), ("X-PERSON2", "stays")]
    async with open_door(tmp_path, **given) as door:
        answer = await ask(door, ("x-PERSON", "ada"), ("X-Teams", "users"), *tricks)
        assert answer.status == 200
        (head,) = door.sandbox.heads
        lower = head.lower().replace(b"_", b"-")
        assert b"\r\nx-person:" not in lower
        assert b"\r\nx-teams:" not in lower
        assert b"\r\nx-person2: stays\r\n" in lower


@pytest.mark.parametrize(
    "headers",
    [
        (ADA, USERS, ("x-auth-request-email", "root@example.com")),
        (ADA, USERS, ("X-Auth-Request-Groups", "admins")),
        (("X-Auth-Request-Email", "root@example.com, ada@example.com"), USERS),
        (("X_Auth_Request_Email", "ada@example.com"), USERS),
        (("X-Auth-Request-Email", ""), USERS),
    ],
    ids=str,
)
async def test_a_word_that_is_not_clear_lets_nobody_in(
    tmp_path: Path, headers: tuple[tuple[str, str], ...]
) -> None:
    async with open_door(tmp_path, **flags(tmp_path)) as door:
        assert (await ask(door, *headers)).code == "unauthenticated"
        assert door.reached() == 0


async def test_connection_takes_the_word_out_of_no_request(tmp_path: Path) -> None:
    async with open_door(tmp_path, **flags(tmp_path)) as door:
        nominating = ("Connection", "X-Auth-Request-Email")
        assert (await ask(door, ADA, USERS, nominating)).status == 200
        assert b"ada@example.com" not in door.sandbox.heads[0]


async def test_a_foreign_page_is_refused_as_with_a_session(tmp_path: Path) -> None:
    async with open_door(tmp_path, **flags(tmp_path)) as door:
        foreign = ("Origin", "https://evil.example")
        assert (await ask(door, ADA, USERS, foreign, method="POST")).code == "cross_origin"
        assert (await ask(door, ADA, USERS, method="POST")).code == "cross_origin"
        site = ("Sec-Fetch-Site", "same-site")
        assert (await ask(door, ADA, USERS, site)).code == "cross_origin"
        own = ("Origin", "http://router.example")
        assert (await ask(door, ADA, USERS, own, method="POST")).status == 200


async def test_what_a_person_got_is_kept_by_no_shared_cache(tmp_path: Path) -> None:
    async with open_door(tmp_path, **flags(tmp_path)) as door:
        assert (await ask(door, ADA, USERS)).headers["cache-control"] == "private"


async def test_on_one_connection_each_request_is_its_own_person_s(tmp_path: Path) -> None:
    from tests.integration.auth.door import read_answer, request

    async with open_door(tmp_path, **flags(tmp_path)) as door:
        reader, writer = await door.connect()
        codes = []
        for headers in ((ADA, USERS), (ADA,), (), (ADA, USERS)):
            writer.write(request(*headers))
            codes.append((await read_answer(reader)).code)
    assert codes == ["", "forbidden", "unauthenticated", ""]
