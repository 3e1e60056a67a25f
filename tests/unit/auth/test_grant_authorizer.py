"""GrantAuthorizer: the decision, its proof and its explanation."""

from __future__ import annotations

import dataclasses

import pytest

from router.auth.grant_authorizer import MAX_REMEMBERED, GrantAuthorizer
from router.auth.policy import CurrentPolicy, Policy, PrincipalMatch, Rule
from router.auth.principal import Grant, Principal
from router.errors import Forbidden, Unauthenticated
from router.routing.endpoint import Endpoint, SandboxRef, State

BOX = SandboxRef("team-a", "box")
CLAIM = SandboxRef("team-a", "claim")
ENDPOINT = Endpoint(BOX, "pod-1", State.READY, ("192.0.2.1",), sandbox_uid="sandbox-1")


def _alice(*grants: Grant, **facts: object) -> Principal:
    return Principal("alice", "jwt", grants=grants, **facts)  # type: ignore[arg-type]


@pytest.fixture
def current() -> CurrentPolicy:
    return CurrentPolicy()


@pytest.fixture
def authorizer(current: CurrentPolicy) -> GrantAuthorizer:
    return GrantAuthorizer(policy=current)


@pytest.mark.parametrize("mode", ["none", "static"])
def test_modes_of_the_operator_may_call_everything(authorizer: GrantAuthorizer, mode: str) -> None:
    caller = Principal("x", mode)

    authorizer.admit(caller, (BOX,), 1, b"DELETE")

    assert authorizer.authorize(caller, ENDPOINT, (BOX,), 1, b"DELETE").endpoint is ENDPOINT


@pytest.mark.parametrize("mode", ["jwt", "token-review", "mtls"])
def test_every_other_mode_may_call_nothing_without_a_grant(
    authorizer: GrantAuthorizer, mode: str
) -> None:
    with pytest.raises(Forbidden):
        authorizer.authorize(Principal("x", mode), ENDPOINT, (BOX,), 80, b"GET")


@pytest.mark.parametrize(
    ("grant", "is_allowed"),
    [
        (Grant("team-a", "box"), True),
        (Grant("*", "box"), True),
        (Grant("team-a", "*"), True),
        (Grant("*", "*"), True),
        (Grant("team-a", "bo"), False),
        (Grant("team-b", "box"), False),
        (Grant("team-b", "*"), False),
        (Grant("team-a", "box", ports=frozenset({80, 8888})), True),
        (Grant("team-a", "box", ports=frozenset({80})), False),
        (Grant("team-a", "box", methods=frozenset({b"GET"})), True),
        (Grant("team-a", "box", methods=frozenset({b"POST"})), False),
        (Grant("team-a", "box", uid="pod-1"), True),
        (Grant("team-a", "box", uid="sandbox-1"), True),
        (Grant("team-a", "box", uid="pod-0"), False),
    ],
)
def test_a_grant_must_cover_name_port_method_and_pod(
    authorizer: GrantAuthorizer, grant: Grant, is_allowed: bool
) -> None:
    try:
        permit = authorizer.authorize(_alice(grant), ENDPOINT, (BOX,), 8888, b"GET")
    except Forbidden:
        assert not is_allowed
    else:
        assert is_allowed
        assert (permit.endpoint, permit.port) == (ENDPOINT, 8888)


def test_two_grants_do_not_add_up_to_what_neither_covers(authorizer: GrantAuthorizer) -> None:
    caller = _alice(
        Grant("team-a", "box", ports=frozenset({80}), methods=frozenset({b"POST"})),
        Grant("team-a", "box", ports=frozenset({8888}), methods=frozenset({b"GET"})),
    )

    with pytest.raises(Forbidden):
        authorizer.authorize(caller, ENDPOINT, (BOX,), 80, b"GET")


def test_a_grant_on_any_of_its_names_opens_a_sandbox(authorizer: GrantAuthorizer) -> None:
    for granted in (BOX, CLAIM):
        caller = _alice(Grant(granted.namespace, granted.name))
        authorizer.admit(caller, (CLAIM, BOX), 80, b"GET")
        assert authorizer.authorize(caller, ENDPOINT, (CLAIM, BOX), 80, b"GET")


def test_missing_and_forbidden_are_the_same_to_who_may_not_see_them(
    authorizer: GrantAuthorizer,
) -> None:
    caller = _alice(Grant("team-b", "*"))
    errors = []
    for names in ((BOX,), (SandboxRef("team-a", "no-such-box"),), (CLAIM, BOX)):
        with pytest.raises(Forbidden) as caught:
            authorizer.admit(caller, names, 80, b"GET")
        errors.append((caught.value.detail, caught.value.code))

    assert len(set(errors)) == 1


def test_who_may_not_use_the_port_or_method_does_not_get_to_wait_either(
    authorizer: GrantAuthorizer,
) -> None:
    caller = _alice(Grant("team-a", "box", ports=frozenset({80}), methods=frozenset({b"GET"})))

    for port, method in ((81, b"GET"), (80, b"POST")):
        with pytest.raises(Forbidden):
            authorizer.admit(caller, (BOX,), port, method)


def test_a_grant_with_a_uid_admits_by_name_and_authorises_by_pod(
    authorizer: GrantAuthorizer,
) -> None:
    caller = _alice(Grant("team-a", "box", uid="pod-1"))
    successor = dataclasses.replace(ENDPOINT, uid="pod-2", sandbox_uid="sandbox-2")

    authorizer.admit(caller, (BOX,), 80, b"GET")

    assert authorizer.authorize(caller, ENDPOINT, (BOX,), 80, b"GET")
    with pytest.raises(Forbidden):
        authorizer.authorize(caller, successor, (BOX,), 80, b"GET")


def test_tokens_older_than_the_sandbox_allows_are_refused_as_tokens(
    authorizer: GrantAuthorizer,
) -> None:
    strict = dataclasses.replace(ENDPOINT, tokens_not_before=100.0)
    for issued_at in (99.0, None):
        with pytest.raises(Unauthenticated) as caught:
            authorizer.authorize(
                _alice(Grant("*", "*"), issued_at=issued_at), strict, (BOX,), 80, b"GET"
            )
        assert 'error="invalid_token"' in caught.value.challenge

    newer = _alice(Grant("*", "*"), issued_at=100.0)
    assert authorizer.authorize(newer, strict, (BOX,), 80, b"GET")


def test_the_policy_adds_grants_and_a_new_policy_takes_them_away(
    authorizer: GrantAuthorizer, current: CurrentPolicy
) -> None:
    caller = _alice()
    rule = Rule(PrincipalMatch(subject="alice"), (Grant("team-a", "box"),), 1, 2)

    current.replace(Policy(rules=(rule,)))
    assert authorizer.authorize(caller, ENDPOINT, (BOX,), 80, b"GET")
    current.replace(Policy())

    with pytest.raises(Forbidden):
        authorizer.authorize(caller, ENDPOINT, (BOX,), 80, b"GET")


def test_what_is_remembered_is_bounded_and_never_mixes_principals_up(
    authorizer: GrantAuthorizer,
) -> None:
    for number in range(MAX_REMEMBERED + 10):
        good = _alice(Grant("team-a", "box"))
        bad = _alice(Grant("team-a", f"other-{number}"))
        assert authorizer.permits(good, ENDPOINT, (BOX,), 80, b"GET")
        assert not authorizer.permits(bad, ENDPOINT, (BOX,), 80, b"GET")

    assert len(authorizer._rights) <= MAX_REMEMBERED


def test_decisions_are_counted(authorizer: GrantAuthorizer) -> None:
    authorizer.authorize(_alice(Grant("*", "*")), ENDPOINT, (BOX,), 80, b"GET")
    with pytest.raises(Forbidden):
        authorizer.admit(_alice(), (BOX,), 80, b"GET")

    assert (authorizer.allowed, authorizer.denied) == (1, 1)
    assert repr(authorizer) == "<GrantAuthorizer allowed=1 denied=1 remembered=2>"


def test_the_explanation_names_the_grant_that_decides_and_why_others_do_not(
    authorizer: GrantAuthorizer, current: CurrentPolicy
) -> None:
    current.replace(
        Policy(rules=(Rule(PrincipalMatch(subject="alice"), (Grant("team-a", "*"),), 3, 17),))
    )
    caller = _alice(
        Grant("team-b", "box"),
        Grant("team-a", "other"),
        Grant("team-a", "box", ports=frozenset({80}), methods=frozenset({b"PUT"})),
        Grant("team-a", "box", uid="pod-0"),
    )

    told = authorizer.explain(caller, (BOX,), ENDPOINT, 8888, b"GET")

    assert told["decision"] == "allowed"
    assert told["by"] == "policy rule 3 at line 17"
    assert [one["why_not"] for one in told["grants"]] == [
        ["namespace"],
        ["name"],
        ["port", "method"],
        ["uid"],
        [],
    ]
    assert [one["grant"] for one in told["grants"]][2:4] == [
        {"namespace": "team-a", "name": "box", "ports": [80], "methods": ["PUT"]},
        {"namespace": "team-a", "name": "box", "uid": "pod-0"},
    ]


def test_the_explanation_agrees_with_the_decision(authorizer: GrantAuthorizer) -> None:
    strict = dataclasses.replace(ENDPOINT, tokens_not_before=100.0)
    cases = [
        (Principal("x", "static"), ENDPOINT, "allowed"),
        (_alice(), ENDPOINT, "forbidden"),
        (_alice(Grant("*", "*")), strict, "unauthenticated"),
        (_alice(Grant("*", "*")), None, "allowed"),
    ]

    for caller, endpoint, decision in cases:
        assert authorizer.explain(caller, (BOX,), endpoint, 80, b"GET")["decision"] == decision


def test_a_new_policy_begins_a_generation(
    authorizer: GrantAuthorizer, current: CurrentPolicy
) -> None:
    before = authorizer.generation

    current.replace(Policy())

    assert authorizer.generation != before
    assert before >= 0


def test_a_refusal_tells_the_log_what_was_missing_and_the_caller_nothing(
    authorizer: GrantAuthorizer,
) -> None:
    caller = _alice(Grant("team-a", "box", ports=frozenset({80})))

    with pytest.raises(Forbidden) as admitted:
        authorizer.admit(caller, (BOX,), 8080, b"GET")
    with pytest.raises(Forbidden) as authorised:
        authorizer.authorize(caller, ENDPOINT, (BOX,), 8080, b"GET")

    for caught in (admitted, authorised):
        assert caught.value.reason == (
            "no grant covers the call; the nearest, token claim sandboxes, entry 1, lacks port 8080"
        )
        assert caught.value.detail == "Not allowed to call this sandbox."


# --- waking ---------------------------------------------------------------------------------

ASLEEP = Endpoint(BOX, "", State.SUSPENDED, sandbox_uid="sandbox-1")


@pytest.mark.parametrize(
    ("mode", "may_wake"),
    [("none", True), ("static", True), ("preflight", False), ("jwt", False), ("mtls", False)],
)
def test_who_may_call_everything_may_wake_it_but_for_a_preflight(
    authorizer: GrantAuthorizer, mode: str, may_wake: bool
) -> None:
    assert authorizer.may_wake(Principal("x", mode), ASLEEP, (BOX,), 80, b"GET") is may_wake


@pytest.mark.parametrize(
    ("grant", "may_wake"),
    [
        (Grant("team-a", "box"), False),
        (Grant("team-a", "box", wake=True), True),
        (Grant("*", "*", wake=True), True),
        (Grant("team-a", "claim", wake=True), True),
        (Grant("team-b", "box", wake=True), False),
        (Grant("team-a", "box", "sandbox-1", wake=True), True),
        (Grant("team-a", "box", "sandbox-2", wake=True), False),
        (Grant("team-a", "box", ports=frozenset({80}), wake=True), True),
        (Grant("team-a", "box", ports=frozenset({81}), wake=True), False),
        (Grant("team-a", "box", methods=frozenset({b"POST"}), wake=True), False),
    ],
)
def test_a_grant_to_wake_is_for_the_call_that_it_covers(
    authorizer: GrantAuthorizer, grant: Grant, may_wake: bool
) -> None:
    assert authorizer.may_wake(_alice(grant), ASLEEP, (BOX, CLAIM), 80, b"GET") is may_wake


def test_a_rule_of_the_policy_may_give_the_right_to_wake(
    authorizer: GrantAuthorizer, current: CurrentPolicy
) -> None:
    assert not authorizer.may_wake(_alice(), ASLEEP, (BOX,), 80, b"GET")
    grants = (Grant("team-a", "*", wake=True),)
    current.replace(Policy(rules=(Rule(PrincipalMatch(subject="alice"), grants, 1, 1),)))
    assert authorizer.may_wake(_alice(), ASLEEP, (BOX,), 80, b"GET")


def test_a_token_older_than_the_sandbox_allows_wakes_nothing(authorizer: GrantAuthorizer) -> None:
    asleep = dataclasses.replace(ASLEEP, tokens_not_before=100.0)
    caller = _alice(Grant("team-a", "box", wake=True), issued_at=99.0)
    with pytest.raises(Unauthenticated):
        authorizer.may_wake(caller, asleep, (BOX,), 80, b"GET")


def test_an_explanation_shows_the_right_to_wake(authorizer: GrantAuthorizer) -> None:
    caller = _alice(Grant("team-a", "box", wake=True))
    explained = authorizer.explain(caller, (BOX,), ASLEEP, 80, b"GET")
    assert explained["grants"][0]["grant"] == {"namespace": "team-a", "name": "box", "wake": True}


_GET, _PUT = frozenset({b"GET"}), frozenset({b"PUT"})


@pytest.mark.parametrize(
    "grants",
    [
        (),
        (Grant("team-a", "box"),),
        (Grant("team-a", "claim"),),
        (Grant("team-a", "box", methods=_GET),),
        (Grant("team-a", "box", methods=_GET), Grant("*", "box", methods=_PUT)),
        (Grant("team-a", "box", methods=_GET | _PUT),),
        (Grant("team-a", "box", ports=frozenset({80})),),
        (Grant("team-a", "box", ports=frozenset({81})),),
        (Grant("team-a", "box", uid="sandbox-1"),),
        (Grant("team-a", "box", uid="another"),),
        (Grant("team-b", "box"),),
    ],
)
def test_all_methods_at_once_are_each_of_them(
    authorizer: GrantAuthorizer, grants: tuple[Grant, ...]
) -> None:
    caller, names, methods = _alice(*grants), (BOX, CLAIM), (b"GET", b"PUT")
    each = [authorizer.permits(caller, ENDPOINT, names, 80, method) for method in methods]
    assert authorizer.permits_all(caller, ENDPOINT, names, 80, methods) is all(each)


@pytest.mark.parametrize("mode", ["session", "forwarded", "link", "public", "preflight"])
def test_what_a_browser_adds_by_itself_opens_no_raw_connection(
    authorizer: GrantAuthorizer, mode: str
) -> None:
    grant = Grant("*", "*", ports=frozenset({22}), methods=frozenset({b"CONNECT"}), wake=True)
    caller = Principal("x", mode, grants=(grant,))
    with pytest.raises(Forbidden):
        authorizer.authorize(caller, ENDPOINT, (BOX,), 22, b"CONNECT")
    assert not authorizer.admits(caller, (BOX,), 22, b"CONNECT")
    assert not authorizer.may_wake(caller, ENDPOINT, (BOX,), 22, b"CONNECT")
    explained = authorizer.explain(caller, (BOX,), ENDPOINT, 22, b"CONNECT")
    assert explained["decision"] == "forbidden"
    assert mode in explained["by"]


def test_a_public_port_is_none_for_raw_connections(current: CurrentPolicy) -> None:
    wishes = ENDPOINT.wishes._replace(public_ports=frozenset({22}))
    endpoint = dataclasses.replace(ENDPOINT, wishes=wishes)
    authorizer = GrantAuthorizer(policy=current, public_ports=True)
    assert authorizer.permits(_alice(), endpoint, (BOX,), 22, b"GET")
    assert not authorizer.permits(_alice(), endpoint, (BOX,), 22, b"CONNECT")
