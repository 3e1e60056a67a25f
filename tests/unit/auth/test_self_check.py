"""ReviewCheck: a router whose reviews are refused says so before a caller finds out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from router.auth import self_check
from router.auth.self_check import ReviewCheck
from router.errors import AuthUnavailable, ReviewRefused

REFUSAL = (
    "the API server refuses TokenReviews (TokenReview: HTTP 403 Forbidden): give the router's ServiceAccount"
    " the right to create tokenreviews.authentication.k8s.io"
)


class Api:
    """Creates reviews, unless it refuses their kind or is away."""

    def __init__(self) -> None:
        self.refuses: set[str] = set()
        self.is_away = False
        self.bodies: list[dict[str, Any]] = []
        self.created = 0

    async def review(self, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        await asyncio.sleep(0)
        if self.is_away:
            raise AuthUnavailable(reason="connection refused")
        if body["kind"] in self.refuses:
            raise ReviewRefused(reason=f"{body['kind']}: HTTP 403 Forbidden")
        self.created += 1
        return {"status": {}}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(self_check, "LONGEST_PAUSE_S", 0.001)


def _check(api: Api, *kinds: str, only: tuple[str, ...] = ()) -> ReviewCheck:
    return ReviewCheck(reviewer=api, kinds=kinds or ("TokenReview",), only_ways=frozenset(only))


@asynccontextmanager
async def _running(check: ReviewCheck) -> AsyncIterator[None]:
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(check.run())
        try:
            yield
        finally:
            task.cancel()


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def test_at_the_start_each_kind_is_asked_for_once(api: Api) -> None:
    check = _check(api, "TokenReview", "SubjectAccessReview")

    async with _running(check):
        await _until(lambda: len(api.bodies) == 2)
        for _ in range(50):
            await asyncio.sleep(0)

    assert [body["kind"] for body in api.bodies] == ["TokenReview", "SubjectAccessReview"]
    assert [body["apiVersion"] for body in api.bodies] == [
        "authentication.k8s.io/v1",
        "authorization.k8s.io/v1",
    ]
    assert (check.missing(), check.notes()) == ([], [])


async def test_a_refusal_at_the_start_is_missing_until_it_is_over(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    api.refuses = {"TokenReview"}
    check = _check(api)

    async with _running(check):
        await _until(lambda: len(api.bodies) > 2)
        assert check.missing() == [REFUSAL]
        api.refuses = set()
        await _until(lambda: not check.missing())

    assert [record.message for record in caplog.records] == [
        "the API server refuses this router's reviews, so the callers that need one get 503",
        "the API server accepts reviews again",
    ]


async def test_a_refusal_after_a_yes_is_a_note_while_others_can_still_be_let_in(api: Api) -> None:
    check = _check(api)
    async with _running(check):
        await _until(lambda: api.created == 1)
        await asyncio.sleep(0)
        api.refuses = {"TokenReview"}
        with pytest.raises(ReviewRefused):
            await check.review({"kind": "TokenReview"})

        assert (check.missing(), check.notes()) == ([], [REFUSAL])
        api.refuses = set()
        await _until(lambda: not check.notes())


async def test_a_refusal_after_a_yes_is_missing_where_reviews_are_the_only_way_in(
    api: Api,
) -> None:
    check = _check(api, only=("TokenReview",))
    await check.review({"kind": "TokenReview"})
    api.refuses = {"TokenReview"}

    with pytest.raises(ReviewRefused):
        await check.review({"kind": "TokenReview"})

    assert (check.missing(), check.notes()) == ([REFUSAL], [])


async def test_an_api_server_that_is_away_has_refused_nothing(api: Api) -> None:
    api.is_away = True
    check = _check(api)

    async with _running(check):
        await _until(lambda: len(api.bodies) == 1)
        for _ in range(10):
            await asyncio.sleep(0)

    assert (check.missing(), check.notes()) == ([], [])
    assert repr(check) == "<ReviewCheck TokenReview refused=[]>"
