"""One JSON Patch whose tests make it harmless; what the API server says is told from what it refuses."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from router.kube.api_client import ApiError
from router.kube.waker import KubernetesWaker
from router.proxy.ports import WakeFailed
from router.routing.endpoint import Endpoint, SandboxRef, State

BOX = Endpoint(SandboxRef("team-a", "box"), "", State.SUSPENDED, sandbox_uid="uid-1")
ASLEEP = {"metadata": {"uid": "uid-1"}, "spec": {"operatingMode": "Suspended"}}
NOT_SERVED = ApiError(404, "404 page not found")
TEST_FAILED = ApiError(422, "the server rejected our request", reason="Invalid")


class Api:
    """A KubernetesApi with answers in store."""

    def __init__(self, *answers: ApiError | None, now: dict[str, Any] | ApiError = ASLEEP) -> None:
        self.answers = list(answers)
        self.now = now
        self.patched: list[tuple[str, list[dict[str, Any]]]] = []
        self.read: list[str] = []

    async def patch_json(self, path: str, operations: Any, *, timeout_s: float) -> dict[str, Any]:
        self.patched.append((path, copy.deepcopy(operations)))
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        return {}

    async def get_json(self, path: str, params: Any, *, read_timeout_s: float) -> dict[str, Any]:
        self.read.append(path)
        if isinstance(self.now, ApiError):
            raise self.now
        return self.now


def waker(api: Any) -> KubernetesWaker:
    return KubernetesWaker(api=api)


async def failure(api: Api) -> WakeFailed:
    with pytest.raises(WakeFailed) as told:
        await waker(api).wake(BOX)
    return told.value


async def test_only_the_mode_of_this_very_suspended_sandbox_is_changed() -> None:
    api = Api()
    assert await waker(api).wake(BOX) is True
    assert api.patched == [
        (
            "/apis/agents.x-k8s.io/v1beta1/namespaces/team-a/sandboxes/box",
            [
                {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
                {"op": "test", "path": "/spec/operatingMode", "value": "Suspended"},
                {"op": "replace", "path": "/spec/operatingMode", "value": "Running"},
            ],
        )
    ]
    assert api.read == []


@pytest.mark.parametrize("status", [409, 422])
@pytest.mark.parametrize(
    "now",
    [
        {"metadata": {"uid": "uid-1"}, "spec": {"operatingMode": "Running"}},
        {"metadata": {"uid": "uid-1"}, "spec": {}},
        {"metadata": {"uid": "uid-2"}, "spec": {"operatingMode": "Suspended"}},
        ApiError(404, "not found", reason="NotFound"),
    ],
)
async def test_a_failed_test_means_that_someone_else_was_faster(status: int, now: Any) -> None:
    api = Api(ApiError(status, "the server rejected our request", reason="Invalid"), now=now)
    assert await waker(api).wake(BOX) is False


async def test_a_422_about_a_sandbox_that_still_sleeps_is_a_refusal() -> None:
    told = await failure(Api(ApiError(422, "policy denied request", reason="Invalid")))
    assert told.reason == "HTTP 422 Invalid: policy denied request"
    assert not told.concerns_all


async def test_a_write_that_met_others_is_tried_again_a_few_times() -> None:
    conflict = ApiError(409, "the object has been modified", reason="Conflict")
    api = Api(conflict, conflict)
    assert await waker(api).wake(BOX) is True
    assert len(api.patched) == 3
    api = Api(*[conflict] * 9)
    assert not (await failure(api)).concerns_all
    assert len(api.patched) == 3


async def test_a_look_whose_answer_never_ends_is_given_up() -> None:
    class Dripping(Api):
        async def get_json(self, path: str, params: Any, *, read_timeout_s: float) -> Any:
            await asyncio.Event().wait()

    api: Any = Dripping(TEST_FAILED)
    with pytest.raises(WakeFailed, match="no answer") as told:
        await KubernetesWaker(api=api, timeout_s=0.01).wake(BOX)
    assert told.value.concerns_all


async def test_a_sandbox_that_is_gone_needs_no_waking() -> None:
    assert await waker(Api(ApiError(404, "gone", reason="NotFound"))).wake(BOX) is False


async def test_an_older_version_is_spoken_where_it_is_the_only_one_and_first_from_then_on() -> None:
    api = Api(NOT_SERVED)
    one = waker(api)
    assert await one.wake(BOX) is True
    assert await one.wake(BOX) is True
    versions = [path.split("/")[3] for path, _ in api.patched]
    assert versions == ["v1beta1", "v1alpha1", "v1alpha1"]
    assert api.patched[-1][1][1:] == [
        {"op": "test", "path": "/spec/replicas", "value": 0},
        {"op": "replace", "path": "/spec/replicas", "value": 1},
    ]
    assert "v1alpha1" in repr(one)


async def test_without_any_version_nothing_can_be_woken() -> None:
    told = await failure(Api(NOT_SERVED, NOT_SERVED))
    assert "not served" in told.reason
    assert told.concerns_all


@pytest.mark.parametrize(
    ("error", "concerns_all"),
    [
        (ApiError(403, "cannot patch", reason="Forbidden"), False),
        (ApiError(400, "bad"), False),
        (ApiError(401, "who"), True),
        (ApiError(429, "slow down", retry_after_s=7.0), True),
        (ApiError(500, "etcd"), True),
        (ApiError(0, "no answer in time", reason="Timeout"), True),
    ],
)
async def test_a_failure_says_why_and_whether_it_concerns_every_sandbox(
    error: ApiError, concerns_all: bool
) -> None:
    told = await failure(Api(error))
    assert error.message in told.reason
    assert told.concerns_all is concerns_all
    assert told.at_least_s == error.retry_after_s


async def test_a_long_reason_is_cut() -> None:
    told = await failure(Api(ApiError(403, "x" * 5000)))
    assert len(told.reason) < 400


async def test_a_look_that_fails_is_a_failure_too() -> None:
    told = await failure(Api(TEST_FAILED, now=ApiError(503, "away")))
    assert told.concerns_all
