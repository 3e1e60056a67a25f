"""Kubernetes tokens: asked about once, remembered shortly, refused when nobody answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from router.auth.policy import CurrentPolicy, Policy
from router.auth.principal import Principal
from router.auth.revocation import Revocation
from router.auth.token_review import MAX_REFUSED, NEGATIVE_TTL_S, TokenReviewVerifier
from router.auth.verifier import Reason, Refusal, Verdict
from tests.unit.auth.kubernetes import FakeReviewer
from tests.unit.auth.tokens import Clock, sign

USER = {
    "username": "system:serviceaccount:team-a:runner",
    "uid": "u-1",
    "groups": ["system:serviceaccounts", "system:authenticated"],
    "extra": {"authentication.kubernetes.io/pod-name": ["runner-0"]},
}


@pytest.fixture
def api() -> FakeReviewer:
    fake = FakeReviewer()
    fake.users = {"opaque": USER}
    return fake


@pytest.fixture
def make(api: FakeReviewer, policy: CurrentPolicy, clock: Clock) -> Any:
    def make(**settings: Any) -> TokenReviewVerifier:
        verifier = TokenReviewVerifier(
            **{
                "reviewer": api,
                "audiences": (),
                "ttl_s": 30.0,
                "is_refused": Revocation(policy=policy, auth_grace_s=60).is_refused,
                "clock": clock,
                **settings,
            }
        )
        policy.on_change(verifier.forget)
        return verifier

    return make


async def _verdict(verifier: TokenReviewVerifier, token: bytes) -> Verdict:
    verdict = verifier.verify(token)
    return verdict if isinstance(verdict, (Principal, Refusal)) else await verdict


async def _reason(verifier: TokenReviewVerifier, token: bytes) -> Reason:
    verdict = await _verdict(verifier, token)
    assert isinstance(verdict, Refusal), verdict
    return verdict.reason


async def test_the_user_is_who_the_api_server_says(make: Any, api: FakeReviewer) -> None:
    verdict = await _verdict(make(), b"opaque")

    assert verdict == Principal(
        "system:serviceaccount:team-a:runner",
        "token-review",
        groups=("system:serviceaccounts", "system:authenticated"),
        extra=(("authentication.kubernetes.io/pod-name", ("runner-0",)),),
        user_uid="u-1",
    )
    assert api.bodies == [
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": "opaque"},
        }
    ]


async def test_a_known_answer_is_given_at_once_until_its_time_is_over(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    verifier = make()
    first = await _verdict(verifier, b"opaque")

    clock.now += 29.9
    assert verifier.verify(b"opaque") is first
    clock.now += 0.1
    await _verdict(verifier, b"opaque")

    assert len(api.bodies) == 2


async def test_five_hundred_first_uses_of_one_token_are_one_review(
    make: Any, api: FakeReviewer
) -> None:
    verifier = make()

    verdicts = await asyncio.gather(*(_verdict(verifier, b"opaque") for _ in range(500)))

    assert len(api.bodies) == verifier.calls_started == 1
    assert all(isinstance(verdict, Principal) for verdict in verdicts)


async def test_a_waiter_that_leaves_leaves_the_review_to_the_others(
    make: Any, api: FakeReviewer
) -> None:
    verifier = make()

    async with asyncio.TaskGroup() as group:
        first = group.create_task(_verdict(verifier, b"opaque"))
        second = group.create_task(_verdict(verifier, b"opaque"))
        await asyncio.sleep(0)
        first.cancel()

    assert isinstance(second.result(), Principal)
    assert len(api.bodies) == 1


async def test_a_token_is_never_remembered_beyond_its_own_expiry(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    token = sign(
        {"exp": int(clock.now) + 10, "iat": int(clock.now), "jti": "j", "iss": "https://k"}
    )
    api.users[token.decode()] = USER
    verifier = make()

    principal = await _verdict(verifier, token)
    assert isinstance(principal, Principal)
    assert (principal.token_id, principal.issuer) == ("j", "https://k")
    assert principal.expires_at == int(clock.now) + 10
    clock.now += 11
    del api.users[token.decode()]

    assert await _reason(verifier, token) is Reason.REJECTED


async def test_an_expired_token_is_refused_even_if_the_api_server_is_lenient(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    token = sign({"exp": int(clock.now) - 10})
    api.users[token.decode()] = USER

    assert await _reason(make(), token) is Reason.EXPIRED


async def test_a_no_is_remembered_for_seconds_only(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    verifier = make()
    for _ in range(3):
        assert await _reason(verifier, b"wrong") is Reason.REJECTED
    assert len(api.bodies) == 1
    api.users["wrong"] = USER

    clock.now += NEGATIVE_TTL_S

    assert isinstance(await _verdict(verifier, b"wrong"), Principal)


async def test_no_answer_is_unavailable_and_not_remembered(make: Any, api: FakeReviewer) -> None:
    verifier = make()
    api.is_down = True
    assert await _reason(verifier, b"opaque") is Reason.UNAVAILABLE
    api.is_down = False

    assert isinstance(await _verdict(verifier, b"opaque"), Principal)
    assert verifier.calls_failed == 1


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"status": None},
        {"status": {"authenticated": True}},
        {"status": {"authenticated": True, "user": {}}},
        {"status": {"authenticated": True, "user": {"username": 5}}},
    ],
)
async def test_an_answer_without_sense_is_no_answer(
    make: Any, api: FakeReviewer, answer: dict[str, Any]
) -> None:
    api.answer = answer

    assert await _reason(make(), b"opaque") is Reason.UNAVAILABLE


@pytest.mark.parametrize("authenticated", [False, None, "true", 1])
async def test_only_a_plain_yes_is_a_yes(
    make: Any, api: FakeReviewer, authenticated: object
) -> None:
    api.answer = {"status": {"authenticated": authenticated, "user": USER}}

    assert await _reason(make(), b"opaque") is Reason.REJECTED


async def test_a_token_must_be_for_one_of_the_audiences(make: Any, api: FakeReviewer) -> None:
    api.audiences = ["router"]
    assert isinstance(await _verdict(make(audiences=("router", "x")), b"opaque"), Principal)

    assert await _reason(make(audiences=("other",)), b"opaque") is Reason.REJECTED


async def test_an_api_server_that_does_not_know_audiences_has_said_nothing_about_ours(
    make: Any, api: FakeReviewer
) -> None:
    api.audiences = None

    assert await _reason(make(audiences=("router",)), b"opaque") is Reason.WRONG_AUDIENCE


@pytest.mark.parametrize("token", [b"", b"a b", b"caf\xe9", b"a\n", b"\x00", b"a,b"])
async def test_what_can_be_no_token_is_not_asked_about(
    make: Any, api: FakeReviewer, token: bytes
) -> None:
    assert await _reason(make(), token) is Reason.MALFORMED
    assert api.bodies == []


async def test_a_policy_that_revokes_the_token_refuses_it_at_once(
    make: Any, api: FakeReviewer, policy: CurrentPolicy
) -> None:
    token = sign({"jti": "j-1"})
    api.users[token.decode()] = USER
    verifier = make()
    assert isinstance(await _verdict(verifier, token), Principal)

    policy.replace(Policy(revoked=frozenset({"j-1"})))

    assert await _reason(verifier, token) is Reason.REVOKED
    assert await _reason(verifier, token) is Reason.REVOKED


async def test_with_no_time_to_live_every_use_is_asked_about(make: Any, api: FakeReviewer) -> None:
    verifier = make(ttl_s=0.0)

    for _ in range(3):
        await _verdict(verifier, b"opaque")

    assert len(api.bodies) == 3


async def test_closing_ends_it(make: Any) -> None:
    verifier = make()
    await verifier.close()

    assert await _reason(verifier, b"opaque") is Reason.UNAVAILABLE
    assert "opaque" not in repr(verifier)


async def test_a_verdict_stands_as_long_as_the_answer_is_remembered(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    verifier = make(ttl_s=30.0)
    caller = await _verdict(verifier, b"opaque")
    assert isinstance(caller, Principal)

    assert verifier.valid_until(caller) == clock.now + 30.0


async def test_a_verdict_stands_no_longer_than_the_token(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    token = sign({"exp": int(clock.now) + 10})
    api.users[token.decode()] = USER
    verifier = make(ttl_s=30.0)
    caller = await _verdict(verifier, token)
    assert isinstance(caller, Principal)

    assert verifier.valid_until(caller) == int(clock.now) + 10


async def test_an_answer_from_memory_does_not_stand_longer_for_being_used(
    make: Any, clock: Clock
) -> None:
    verifier = make(ttl_s=30.0)
    end = clock.now + 30.0
    await _verdict(verifier, b"opaque")
    clock.now += 20
    caller = await _verdict(verifier, b"opaque")
    assert isinstance(caller, Principal)

    assert verifier.valid_until(caller) == end


def test_forgetting_tells_whoever_keeps_a_verdict(make: Any) -> None:
    verifier = make()
    told = []
    verifier.on_change(lambda: told.append("changed"))

    verifier.forget()

    assert told == ["changed"]


# --- floods and outages ----------------------------------------------------------------------


async def test_tokens_that_strangers_invent_push_out_none_that_was_accepted(
    make: Any, api: FakeReviewer
) -> None:
    verifier = make()
    await _verdict(verifier, b"opaque")

    for start in range(0, MAX_REFUSED + 200, 400):
        await asyncio.gather(
            *(_verdict(verifier, b"invented-%d" % number) for number in range(start, start + 400))
        )

    assert isinstance(verifier.verify(b"opaque"), Principal)


async def test_a_known_token_is_reviewed_while_strangers_fill_their_queue(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    verifier = make()
    await _verdict(verifier, b"opaque")
    clock.now += 30

    async with asyncio.TaskGroup() as group:
        flood = [
            group.create_task(_verdict(verifier, b"invented-%d" % number)) for number in range(2000)
        ]
        await asyncio.sleep(0)
        known = group.create_task(_verdict(verifier, b"opaque"))

    assert isinstance(known.result(), Principal)
    reasons = Counter(task.result().reason for task in flood)
    assert reasons[Reason.UNAVAILABLE] == 2000 - 512


async def test_while_the_api_server_is_away_a_known_token_stays_accepted_for_the_stale_time(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    verifier = make(stale_s=300.0)
    await _verdict(verifier, b"opaque")
    api.is_down = True

    clock.now += 30 + 299
    assert isinstance(await _verdict(verifier, b"opaque"), Principal)
    assert await _reason(verifier, b"never-seen") is Reason.UNAVAILABLE
    clock.now += 1
    assert await _reason(verifier, b"opaque") is Reason.UNAVAILABLE
    assert verifier.stale_answers == 1


async def test_by_default_no_answer_stands_without_the_api_server(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    verifier = make()
    await _verdict(verifier, b"opaque")
    api.is_down = True
    clock.now += 30

    assert await _reason(verifier, b"opaque") is Reason.UNAVAILABLE


async def test_a_token_is_never_accepted_past_its_own_end(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    token = sign({"exp": int(clock.now) + 60})
    api.users[token.decode()] = USER
    verifier = make(stale_s=3600.0)
    await _verdict(verifier, token)
    api.is_down = True

    clock.now = int(clock.now) + 61
    assert await _reason(verifier, token) is Reason.UNAVAILABLE


async def test_what_stands_in_for_an_answer_may_be_kept_by_nobody(
    make: Any, api: FakeReviewer, clock: Clock
) -> None:
    verifier = make(stale_s=300.0)
    await _verdict(verifier, b"opaque")
    api.is_down = True
    clock.now += 31

    caller = await _verdict(verifier, b"opaque")

    assert isinstance(caller, Principal)
    assert verifier.valid_until(caller) <= clock.now


async def test_a_new_policy_during_an_outage_refuses_whom_it_revokes_and_keeps_the_others(
    make: Any, api: FakeReviewer, policy: CurrentPolicy
) -> None:
    revoked = sign({"jti": "j-1"})
    api.users[revoked.decode()] = USER
    verifier = make()
    await _verdict(verifier, b"opaque")
    await _verdict(verifier, revoked)
    api.is_down = True

    policy.replace(Policy(revoked=frozenset({"j-1"})))
    assert isinstance(await _verdict(verifier, b"opaque"), Principal)
    assert await _reason(verifier, revoked) is Reason.REVOKED
    policy.replace(Policy())

    assert await _reason(verifier, revoked) is Reason.UNAVAILABLE
