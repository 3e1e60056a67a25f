"""KubernetesWaker: sets a suspended Sandbox's operating mode to Running, if it still is the one and still suspended."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from router.kube.api_client import ApiError, JsonObject, KubernetesApi
from router.proxy.ports import WakeFailed
from router.routing.endpoint import Endpoint

_GROUP: Final = "/apis/agents.x-k8s.io"
_VERSIONS: Final = ("v1beta1", "v1alpha1")
_MODES: Final = {
    "v1beta1": ("/spec/operatingMode", "Suspended", "Running"),
    "v1alpha1": ("/spec/replicas", 0, 1),
}
_MAX_REASON: Final = 300
_CONFLICTS: Final = 3
"""How often a write is tried that met too many others."""
_MAY_BE_A_TEST: Final = (409, 422)
"""A failed test of a JSON Patch is a 422 with no word of its own, a write that met too many others a 409; but an admission
policy refuses with 422 too. Only the object tells them apart."""


class KubernetesWaker:
    """Needs the rights to `patch` and `get` `sandboxes`. Touches nothing but the mode.

    `api` should not be the watch's own client: a storm of wakes must not hold it up.
    """

    def __init__(self, *, api: KubernetesApi, timeout_s: float = 10.0) -> None:
        self._api = api
        self._timeout_s = timeout_s
        self._version = _VERSIONS[0]

    def __repr__(self) -> str:
        return f"<KubernetesWaker {self._version} {self._api!r}>"

    async def wake(self, endpoint: Endpoint) -> bool:
        """Returns True when this call made the Sandbox run, False when it needs no waking any more. Raises WakeFailed."""
        for version in sorted(_VERSIONS, key=lambda version: version != self._version):
            try:
                did = await self._wake(endpoint, version)
            except ApiError as error:
                if _is_not_served(error):
                    continue
                if error.status == 404:
                    return False  # it is gone, as the watch will say
                raise _failure(error) from error
            self._version = version
            return did
        raise WakeFailed("HTTP 404: agents.x-k8s.io is not served", concerns_all=True)

    async def _wake(self, endpoint: Endpoint, version: str) -> bool:
        mode, suspended, running = _MODES[version]
        ref = endpoint.ref
        path = f"{_GROUP}/{version}/namespaces/{ref.namespace}/sandboxes/{ref.name}"
        operations: list[JsonObject] = [
            {"op": "test", "path": "/metadata/uid", "value": endpoint.sandbox_uid},
            {"op": "test", "path": mode, "value": suspended},
            {"op": "replace", "path": mode, "value": running},
        ]
        for tries_left in reversed(range(_CONFLICTS)):
            try:
                await self._api.patch_json(path, operations, timeout_s=self._timeout_s)
            except ApiError as error:
                if error.status not in _MAY_BE_A_TEST:
                    raise
                if await self._read(path, mode) != (endpoint.sandbox_uid, suspended):
                    return False
                # Its controller writes to it too: that is no refusal.
                if error.status != 409 or not tries_left:
                    raise
            else:
                break
        return True

    async def _read(self, path: str, mode: str) -> tuple[object, object]:
        """Returns the UID and the mode as they are now. Raises ApiError, also for an answer that never ends."""
        try:
            async with asyncio.timeout(self._timeout_s):
                now = await self._api.get_json(path, {}, read_timeout_s=self._timeout_s)
        except TimeoutError as error:
            raise ApiError(0, "no answer in time", reason="Timeout") from error
        return _value(now, "/metadata/uid"), _value(now, mode)


def _value(item: JsonObject, pointer: str) -> object:
    value: Any = item
    for step in pointer.split("/")[1:]:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _is_not_served(error: ApiError) -> bool:
    """Returns True when the path itself is unknown; that an object is gone is told by a Status with its reason."""
    return error.status == 404 and not error.reason


def _failure(error: ApiError) -> WakeFailed:
    said = f"HTTP {error.status} {error.reason}".rstrip() if error.status else "no answer"
    return WakeFailed(
        f"{said}: {error.message[:_MAX_REASON]}",
        concerns_all=error.status in (0, 401, 408, 429) or error.status >= 500,
        at_least_s=error.retry_after_s,
    )
