"""Suspension: reads one Sandbox anew, and suspends it only if nothing has changed since it was judged."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from router.discovery.objects import SANDBOX_GROUP, section
from router.kube.api_client import ApiError, JsonObject, KubernetesApi
from router.suspender.candidates import Candidate, parse_candidate

TIMEOUT_S: Final = 10.0
_POLICY: Final = "ValidatingAdmissionPolicy"
"""How the API server begins to name what refused; both that and a failed test are a 422."""


class Outcome(enum.Enum):
    """What became of one Sandbox that may be suspended."""

    SUSPENDED = "suspended"
    WOULD_SUSPEND = "would_suspend"
    """Only with --dry-run."""
    CHANGED = "changed"
    """It is not any more what it was when it was judged; the next round judges anew."""
    CONFLICT = "conflict"
    """It changed in the very moment, or another suspender was faster."""
    WITHHELD = "withheld"
    """The lease was lost, or the routers' answers grew too old, before it was its turn."""
    REFUSED = "refused"
    """By the API server: a right is missing, or a policy forbids it."""
    UNAVAILABLE = "unavailable"
    """The API server didn't answer, or had no time."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome, with the API server's words where it refused."""

    outcome: Outcome
    reason: str = ""


class Suspension:
    """Writes to Sandboxes, nothing but `spec.operatingMode`."""

    def __init__(self, *, api: KubernetesApi, is_dry_run: bool) -> None:
        self._api = api
        self._is_dry_run = is_dry_run

    async def suspend(self, candidate: Candidate, may_act: Callable[[], bool]) -> Result:
        """Returns what became of it. `may_act` is asked last before the change. Never raises for what the API says."""
        try:
            item = await self._read(candidate)
            now = parse_candidate(item)
            if now != candidate:
                return Result(Outcome.CHANGED)
            if not may_act():
                return Result(Outcome.WITHHELD)
            if self._is_dry_run:
                return Result(Outcome.WOULD_SUSPEND)
            return _checked(
                await self._api.patch_json(_path(now), _patch(now), timeout_s=TIMEOUT_S)
            )
        except (ApiError, ValueError) as error:
            return _failed(error)

    async def _read(self, candidate: Candidate) -> JsonObject:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._api.get_json(_path(candidate), {}, read_timeout_s=TIMEOUT_S)
        except TimeoutError as error:
            raise ApiError(0, "no answer in time", reason="Timeout") from error


def _path(candidate: Candidate) -> str:
    namespace, name = (quote(part, safe="") for part in candidate.ref)
    return f"/apis/{SANDBOX_GROUP}/v1beta1/namespaces/{namespace}/sandboxes/{name}"


def _patch(candidate: Candidate) -> list[JsonObject]:
    mode = "/spec/operatingMode"
    tests: list[JsonObject] = [
        {"op": "test", "path": "/metadata/uid", "value": candidate.uid},
        # The object as it was judged, to the letter: whatever happened since makes this fail.
        {"op": "test", "path": "/metadata/resourceVersion", "value": candidate.version},
    ]
    if not candidate.says_mode:
        return [*tests, {"op": "add", "path": mode, "value": "Suspended"}]
    tests.append({"op": "test", "path": mode, "value": "Running"})
    return [*tests, {"op": "replace", "path": mode, "value": "Suspended"}]


def _checked(changed: JsonObject) -> Result:
    if section(changed, "spec").get("operatingMode") == "Suspended":
        return Result(Outcome.SUSPENDED)
    return Result(Outcome.REFUSED, "the API server dropped spec.operatingMode: update the CRD")


def _failed(error: ApiError | ValueError) -> Result:
    if not isinstance(error, ApiError):
        return Result(Outcome.CHANGED, str(error))
    if error.status == 404:
        return Result(Outcome.CHANGED, "it is gone")
    if error.status in (409, 422) and _POLICY not in error.message:
        return Result(Outcome.CONFLICT, str(error))
    if error.status == 0 or error.status == 429 or error.status >= 500:
        return Result(Outcome.UNAVAILABLE, str(error))
    return Result(Outcome.REFUSED, str(error))
