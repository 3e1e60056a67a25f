"""Sessions: what their tokens say, by which keys they are known, and how they end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest

from router.auth.jws import parse_jws
from router.auth.policy import CurrentPolicy, NotBefore, Policy
from router.auth.principal import Grant, Principal
from router.auth.revocation import Revocation
from router.auth.rights import Rights
from router.auth.sessions import (
    SessionKeys,
    Sessions,
    parse_session_keys,
    watch_session_keys,
)
from router.auth.verifier import Refusal
from router.routing.endpoint import Endpoint, SandboxRef, State
from tests.unit.auth.tokens import Clock

OLD = b"old-old-old-old-old-old-old-old-old-old"
NEW = b"new-new-new-new-new-new-new-new-new-new"
BOX = Endpoint(SandboxRef("team-a", "box"), "pod-1", State.READY, sandbox_uid="sandbox-1")
ALICE = Principal(
    subject="alice",
    mode="link",
    issuer="https://platform.example",
    grants=(Grant("team-a", "box", ports=frozenset({8888}), wake=True),),
    token_id="link-1",
)


class Place:
    """Sessions with one key, a policy, and a clock."""

    def __init__(self, *, longest_s: float = 3600.0) -> None:
        self.clock = Clock()
        self.policy = CurrentPolicy()
        self.rights = Revocation(policy=self.policy, auth_grace_s=60.0)
        self.sessions = Sessions(
            is_refused=self.rights.is_refused,
            ended=self.rights.ended_sessions,
            longest_s=longest_s,
            clock=self.clock,
        )
        self.policy.on_change(self.sessions.forget)
        self.sessions.use(parse_session_keys(b"k1 " + OLD))

    def link(self, **claims: Any) -> bytes:
        now = int(self.clock())
        body = {"jti": "link-1", "iat": now, "exp": now + 60, "namespace": "team-a", "name": "box"}
        token = jwt.encode({**body, "port": 8888, **claims}, OLD, headers={"typ": "link+jwt"})
        return token.encode()

    def begin(self, caller: Principal = ALICE, **claims: Any) -> bytes:
        """Returns a new session's token."""
        return self.sessions.begin(caller, self.link(**claims), BOX).token.encode()

    def whose(self, token: bytes) -> Principal | None:
        return self.sessions.whose(token)


def test_a_session_is_its_caller_s_in_this_sandbox_alone() -> None:
    place = Place()
    principal = place.whose(place.begin())
    assert principal is not None
    assert (principal.mode, principal.subject, principal.issuer, principal.key_id) == (
        "session",
        "alice",
        "https://platform.example",
        "k1",
    )
    assert principal.grants == (
        Grant("team-a", "box", uid="sandbox-1", ports=frozenset({8888}), wake=True),
    )
    assert (principal.token_id != "", principal.made_of) == (True, "link-1")
    assert principal.issued_at == int(place.clock())
    assert principal.expires_at == int(place.clock()) + 3600


def test_two_sessions_of_one_link_are_two() -> None:
    place = Place()
    first, second = place.whose(place.begin()), place.whose(place.begin())
    assert first is not None
    assert second is not None
    assert first.token_id != second.token_id


def test_a_session_says_nothing_of_the_credential_that_made_it() -> None:
    place = Place()
    link = place.link(path="/secret-path")
    token = place.sessions.begin(ALICE, link, BOX).token.encode()
    assert set(parse_jws(token).claims) == {
        *("sid", "jti", "iat", "exp", "namespace", "name", "uid", "port", "sub", "iss", "wake")
    }


def test_without_a_sandbox_uid_the_pod_s_counts() -> None:
    place = Place()
    token = place.sessions.begin(ALICE, place.link(), replace(BOX, sandbox_uid="")).token
    principal = place.whose(token.encode())
    assert principal is not None
    assert principal.grants[0].uid == "pod-1"


@pytest.mark.parametrize(("wanted", "got"), [(None, 3600), (60, 60), (0.5, 1), (7200, 3600)])
def test_a_session_lasts_as_its_link_says_and_no_longer_than_the_setting(
    wanted: float | None, got: int
) -> None:
    place = Place(longest_s=3600.0)
    claims = {} if wanted is None else {"session_ttl": wanted}
    begun = place.sessions.begin(ALICE, place.link(**claims), BOX)
    assert begun.ttl_s == got
    place.clock.now += got + 31
    assert place.whose(begun.token.encode()) is None


def test_the_first_key_signs_and_all_verify() -> None:
    place = Place()
    before = place.begin()
    place.sessions.use(parse_session_keys(b"k2 " + NEW + b"\nk1 " + OLD))
    after = place.begin()
    assert parse_jws(after).header["kid"] == "k2"
    assert place.whose(before) is not None
    assert place.whose(after) is not None
    place.sessions.use(parse_session_keys(b"k2 " + NEW))
    assert place.whose(before) is None, "its key is gone"
    assert place.whose(after) is not None


def test_a_key_needs_no_name() -> None:
    place = Place()
    place.sessions.use(parse_session_keys(OLD))
    token = place.begin()
    assert "kid" not in parse_jws(token).header
    assert place.whose(token) is not None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        b'{"keys": []}',
    ],
)
def test_a_file_without_a_secret_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse_session_keys(content)


async def test_the_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"k1 " + OLD)
    place = Place()
    watched = watch_session_keys(place.sessions, path, poll_interval_s=0.01)
    watched.load_once()
    token = place.begin()
    path.write_bytes(b"k2 " + NEW)
    assert await watched.poll()
    assert place.whose(token) is None
    path.write_bytes(b"too short")
    assert not await watched.poll()
    assert parse_jws(place.begin()).header["kid"] == "k2", "the old one stays in force"


def test_keys_are_never_shown() -> None:
    keys = parse_session_keys(OLD)
    assert isinstance(keys, SessionKeys)
    place = Place()
    assert OLD.decode() not in repr(keys) + repr(place.sessions)


# --- ends -----------------------------------------------------------------------------------


def ended(place: Place, session: Principal) -> None:
    place.sessions.end(session)


def revoked_itself(place: Place, session: Principal) -> None:
    place.policy.replace(Policy(revoked=frozenset({session.token_id})))


def its_link_revoked(place: Place, session: Principal) -> None:
    place.policy.replace(Policy(revoked=frozenset({"link-1"})))


def older_than_its_issuer_allows(place: Place, session: Principal) -> None:
    rule = NotBefore("https://platform.example", "", place.clock.now + 1)
    place.policy.replace(Policy(not_before=(rule,)))


def older_than_its_subject_allows(place: Place, session: Principal) -> None:
    place.policy.replace(Policy(not_before=(NotBefore("", "alice", place.clock.now + 1),)))


@pytest.mark.parametrize(
    "end",
    [
        ended,
        revoked_itself,
        its_link_revoked,
        older_than_its_issuer_allows,
        older_than_its_subject_allows,
    ],
)
def test_a_session_ends(end: Any) -> None:
    place = Place()
    token = place.begin()
    session = place.whose(token)
    assert session is not None
    assert not place.rights.is_revoked(session, BOX)
    end(place, session)
    assert place.whose(token) is None
    assert place.rights.is_revoked(session, BOX), "and what it has open is closed"


def test_a_session_that_was_ended_elsewhere_ends_here_though_it_was_remembered() -> None:
    here, elsewhere = Place(), Place()
    token = here.begin()
    session = here.whose(token)
    assert session is not None
    elsewhere.sessions.end(session)
    here.rights.ended_sessions.learn(elsewhere.rights.ended_sessions.known())
    assert here.whose(token) is None
    assert here.rights.is_revoked(session, BOX), "and what it has open is closed"


def test_a_session_that_is_older_than_its_sandbox_allows_is_over() -> None:
    place = Place()
    session = place.whose(place.begin())
    assert session is not None
    strict = replace(BOX, tokens_not_before=place.clock.now + 1)
    assert place.rights.is_revoked(session, strict)


def test_one_session_ends_and_another_of_the_same_person_goes_on() -> None:
    place = Place()
    first, second = place.begin(), place.begin()
    session = place.whose(first)
    assert session is not None
    place.sessions.end(session)
    assert place.whose(second) is not None


def test_whoever_remembers_answers_is_told_of_an_end() -> None:
    place = Place()
    told: list[str] = []
    place.sessions.verifier.on_change(lambda: told.append("changed"))
    session = place.whose(place.begin())
    assert session is not None
    place.sessions.end(session)
    assert told == ["changed"]


# --- rights ---------------------------------------------------------------------------------


def test_rules_for_its_subject_give_a_session_nothing_more() -> None:
    from router.auth.policy import PrincipalMatch, Rule

    place = Place()
    session = place.whose(place.begin())
    assert session is not None
    everything = Rule(PrincipalMatch(subject="alice"), (Grant("*", "*"),), 1, 1)
    rights = Rights(session, Policy(rules=(everything,)))
    assert [sourced.grant for sourced in rights.all()] == list(session.grants)


def test_the_router_s_own_links_are_known_by_the_same_keys() -> None:
    place = Place()
    caller = Principal(subject="alice", mode="forwarded")
    link = place.sessions.link(caller, BOX.ref, 3000, path="/x").encode()
    principal = place.sessions.links.verify(link)
    assert isinstance(principal, Principal)
    assert principal.grants == (Grant("team-a", "box", ports=frozenset({3000})),)
    assert isinstance(place.sessions.verifier.verify(link), Refusal)
