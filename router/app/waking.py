"""Builds what wakes suspended sandboxes, where the operator wants that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from router.proxy.ports import Telemetry, Waker
from router.proxy.wakes import Wakes
from router.routing.endpoint import Endpoint
from router.routing.index import EndpointIndex
from router.settings import Settings


def needs_wakes(settings: Settings) -> bool:
    """Returns True when requests may wake sandboxes."""
    return settings.waking.wake != "off"


def build_wakes(
    settings: Settings,
    resources: contextlib.AsyncExitStack,
    *,
    waker: Waker | None,
    index: EndpointIndex | None,
    telemetry: Telemetry,
) -> Wakes | None:
    """Returns what wakes sandboxes until `resources` are closed, None when nothing does. `waker` and `index` must be given when needs_wakes()."""
    if waker is None or index is None or not needs_wakes(settings):
        return None
    waking, workers = settings.waking, settings.listeners.workers
    wakes = Wakes(
        waker=waker,
        find=index.find,
        # The workers of one router share what it may begin.
        rate=waking.wake_rate / workers,
        rate_per_namespace=waking.wake_rate_per_namespace / workers,
        timeout_s=waking.wake_timeout_s,
        telemetry=telemetry,
    )
    resources.push_async_callback(wakes.close)
    return wakes


def outlook_of(wakes: Wakes | None) -> Callable[[Endpoint], str]:
    """Returns what says what would come of waking a sandbox now."""
    return _nothing if wakes is None else wakes.outlook


def _nothing(endpoint: Endpoint) -> str:
    return "nothing is woken here"
