"""What a person is offered: what they may do by every method, on the ports that are worth trying."""

from __future__ import annotations

import asyncio
from types import MappingProxyType

import pytest

from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.policy import CurrentPolicy
from router.auth.principal import Grant, Principal
from router.home.rights import METHODS, Openables
from router.routing.endpoint import Endpoint, SandboxRef, State, Wishes


def box(name: str, state: State = State.READY, **facts: object) -> Endpoint:
    return Endpoint(SandboxRef("team-a", name), f"uid-{name}", state, **facts)  # type: ignore[arg-type]


def caller(*grants: Grant, issued_at: float | None = None) -> Principal:
    return Principal(subject="alice", mode="home", grants=grants, issued_at=issued_at)


def openables(*table: Endpoint, aliases: dict[str, str] | None = None) -> Openables:
    def names(endpoint: Endpoint, asked: SandboxRef) -> tuple[SandboxRef, ...]:
        claims = [k for k, v in (aliases or {}).items() if v == asked.name]
        return (asked, *(SandboxRef("team-a", claim) for claim in claims))

    return Openables(
        grants=GrantAuthorizer(policy=CurrentPolicy()),
        known=lambda: table,
        names=names,
        default_port=8888,
        is_wakeable=lambda endpoint: endpoint.wishes.wakes_on_request,
    )


ALL = caller(Grant("*", "*", wake=True))


async def test_those_that_a_grant_covers_are_offered_in_order() -> None:
    places = openables(box("b"), box("c"), box("a"))
    total, found = await places.of(
        caller(Grant("team-a", "a"), Grant("team-a", "b")), "", skip=0, take=9
    )
    assert (total, [one.endpoint.ref.name for one in found]) == (2, ["a", "b"])


async def test_a_part_of_the_list_is_returned_with_the_count_of_all() -> None:
    places = openables(*(box(f"box-{n:03}") for n in range(250)))
    total, found = await places.of(ALL, "team-a/box-1", skip=90, take=50)
    assert total == 100
    assert [one.endpoint.ref.name for one in found] == [f"box-{n}" for n in range(190, 200)]


async def test_a_grant_on_a_claim_s_name_counts() -> None:
    places = openables(box("pool-7"), aliases={"mine": "pool-7"})
    total, _ = await places.of(caller(Grant("team-a", "mine")), "", skip=0, take=9)
    assert total == 1


@pytest.mark.parametrize("missing", METHODS)
def test_whoever_lacks_a_method_is_offered_nothing(missing: bytes) -> None:
    methods = frozenset(METHODS) - {missing}
    assert openables().one(caller(Grant("*", "*", methods=methods)), box("a")) is None
    assert not openables().may_open(caller(Grant("*", "*", methods=methods)), box("a"), 8888)


def test_the_ports_are_the_usual_one_and_those_that_the_sandbox_names() -> None:
    endpoint = box(
        "a",
        ports=MappingProxyType({3000: 40001}),
        wishes=Wishes(public_ports=frozenset({80})),
    )
    one = openables().one(ALL, endpoint)
    assert one is not None
    assert one.ports == (8888, 3000, 80)
    only = openables().one(caller(Grant("*", "*", ports=frozenset({3000}))), endpoint)
    assert only is not None
    assert only.ports == (3000,)


def test_a_credential_that_is_too_old_for_the_sandbox_opens_it_not() -> None:
    old = caller(Grant("*", "*"), issued_at=5.0)
    assert openables().one(old, box("a", tokens_not_before=6.0)) is None
    assert openables().one(old, box("a", tokens_not_before=4.0)) is not None


@pytest.mark.parametrize(
    ("state", "wakes", "grant", "may_wake"),
    [
        (State.SUSPENDED, True, Grant("*", "*", wake=True), True),
        (State.SUSPENDED, False, Grant("*", "*", wake=True), False),
        (State.SUSPENDED, True, Grant("*", "*"), False),
        (State.READY, True, Grant("*", "*", wake=True), False),
    ],
)
def test_waking_is_offered_for_suspended_ones_where_the_grant_and_the_sandbox_allow_it(
    state: State, wakes: bool, grant: Grant, may_wake: bool
) -> None:
    one = openables().one(caller(grant), box("a", state, wishes=Wishes(wakes_on_request=wakes)))
    assert one is not None
    assert one.may_wake is may_wake


async def test_others_have_their_turn_while_a_large_table_is_gone_through() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(other())
        await openables(*(box(f"box-{n}") for n in range(3_000))).of(ALL, "", skip=0, take=1)
        task.cancel()
    assert turns > 20


async def test_many_lists_are_made_one_after_another() -> None:
    places = openables(*(box(f"box-{n}") for n in range(1_000)))
    begun: list[int] = []

    async def ask(number: int) -> None:
        await places.of(ALL, "", skip=0, take=1)
        begun.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(ask(number))
    assert begun == list(range(5))
