"""Rights: the index finds exactly the grants that a walk through all of them would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.auth.policy import Policy, PrincipalMatch, Rule
from router.auth.principal import Grant, Principal
from router.auth.rights import Rights
from router.routing.endpoint import SandboxRef

WORDS = st.sampled_from(["a", "b", "c"])
GRANTS = st.lists(st.builds(Grant, namespace=WORDS | st.just("*"), name=WORDS | st.just("*")))


@given(GRANTS, GRANTS, WORDS, WORDS)
def test_the_index_finds_what_covers_the_name(
    own: list[Grant], by_policy: list[Grant], namespace: str, name: str
) -> None:
    principal = Principal("alice", "jwt", grants=tuple(own))
    policy = Policy(rules=(Rule(PrincipalMatch(subject="alice"), tuple(by_policy), 1, 1),))
    ref = SandboxRef(namespace, name)

    found = Rights(principal, policy).about(ref)

    walked = [grant for grant in (*own, *by_policy) if grant.covers_name(ref)]
    assert sorted(map(repr, walked)) == sorted(repr(grant) for grant, _ in found)


def test_each_grant_says_where_it_comes_from() -> None:
    principal = Principal("alice", "jwt", grants=(Grant("a", "b"),))
    policy = Policy(rules=(Rule(PrincipalMatch(subject="alice"), (Grant("a", "c"),), 2, 14),))

    rights = Rights(principal, policy)

    assert [source for _, source in rights.all()] == [
        "token claim sandboxes, entry 1",
        "policy rule 2 at line 14",
    ]
    assert repr(rights) == "<Rights of 'alice' on=2>"
