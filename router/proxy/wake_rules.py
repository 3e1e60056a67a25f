"""WakeRules: which requests may wake a suspended sandbox, and why others don't."""

from __future__ import annotations

from typing import Final

from router.proxy.options import ProxyOptions
from router.proxy.wire.navigation import is_navigation
from router.proxy.wire.request_head import RequestHead
from router.routing.endpoint import Endpoint

PAGE_AFTER_S: Final = 2.0
"""How long a person's browser waits before it is given a page to look at."""

_PREFETCHES: Final = (b"sec-purpose:", b"purpose:")
_PREFETCH_WORDS: Final = (b"prefetch", b"prerender", b"preview")


class WakeRules:
    """What the operator allows. Decides about heads and endpoints alone; who may wake is asked elsewhere."""

    def __init__(self, options: ProxyOptions) -> None:
        self.is_on = bool(options.wakes)
        self._wakes_all = options.wakes == "all"
        self._timeout_s = options.wake_timeout_s
        self._websockets = options.wake_websockets

    def __repr__(self) -> str:
        return f"<WakeRules on={self.is_on} all={self._wakes_all} websockets={self._websockets}>"

    def concern(self, endpoint: Endpoint) -> bool:
        """Returns True when requests may wake this sandbox."""
        return self.is_on and (self._wakes_all or endpoint.wishes.wakes_on_request)

    def why_not(self, head: RequestHead, endpoint: Endpoint) -> str:
        """Returns why the request does not wake the sandbox, for the operator; "" when it does."""
        if not self.is_on:
            return "waking is off (wake)"
        if not self.concern(endpoint):
            return "the Sandbox has no annotation router.agents.x-k8s.io/wake: on-request (wake: annotated)"
        return self._why_not_this(head)

    def _why_not_this(self, head: RequestHead) -> str:
        if head.method == b"OPTIONS":
            return "OPTIONS never wakes"
        if _is_prefetch(head):
            return "a prefetch never wakes (Sec-Purpose, Purpose)"
        if head.upgrade is not None:
            return "" if self._websockets else "an upgrade does not wake (wake-websockets)"
        modes = _fetch_modes(head)
        if any(mode != b"navigate" for mode in modes):
            return (
                f"what a page loads never wakes (Sec-Fetch-Mode: {modes[0].decode('latin-1')[:32]})"
            )
        return ""

    def is_on_its_way(self, endpoint: Endpoint, now: float) -> bool:
        """Returns True while a sandbox that was suspended a moment ago (monotonic seconds) may still be coming up."""
        return (
            endpoint.resumed_at > 0.0
            and now < endpoint.resumed_at + self._timeout_s
            and self.concern(endpoint)
        )

    def ends_at(self, waits_since: float) -> float:
        """Returns until when (monotonic seconds) a request that waits since then may wait for a waking sandbox."""
        return waits_since + self._timeout_s


def page_at(head: RequestHead, waits_since: float) -> float | None:
    """Returns when (monotonic seconds) the request of a person's browser gets a page; None for everyone else, who just waits."""
    return waits_since + PAGE_AFTER_S if is_navigation(head) else None


def _is_prefetch(head: RequestHead) -> bool:
    for line in head.lines[1:]:
        lowered = line.lower()
        if lowered.startswith(_PREFETCHES):
            _, _, value = lowered.partition(b":")
            if any(word in value for word in _PREFETCH_WORDS):
                return True
    return False


def _fetch_modes(head: RequestHead) -> list[bytes]:
    found = []
    for line in head.lines[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"sec-fetch-mode":
            found.append(value.strip(b" \t").lower())
    return found
