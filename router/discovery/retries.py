"""Retries: what follows when a list or a watch ends other than it should, and how long that waits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from router.discovery.backoff import Backoff
from router.discovery.pace import Pace
from router.kube.api_client import ApiError

REFUSALS_BEFORE_LIST = 5
"""So many refusals of a watch lead to a new list: to this version the server may never answer well."""


class Retry(NamedTuple):
    """The next step: after how long, and whether it must be a new list."""

    delay_s: float
    needs_list: bool


class Retries:
    """Tells failures from the ends that every watch meets. `uniform` is random.uniform."""

    def __init__(
        self, *, pace: Pace, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._pace = pace
        self._uniform = uniform
        self._backoff = Backoff(
            initial_s=pace.first_retry_s, limit_s=pace.retry_limit_s, uniform=uniform
        )
        self._expiries = 0
        """Versions that expired in a row, without anything that went well in between."""

    def __repr__(self) -> str:
        return f"<Retries failures={self._backoff.failures} expiries={self._expiries}>"

    def went_well(self) -> None:
        """Notes that a watch stood, or brought a change."""
        self._backoff.reset()
        self._expiries = 0

    def after(self, error: ApiError, *, stood_s: float, is_garbage: bool = False) -> Retry:
        """Returns what follows `error`, with which a watch ended that had stood for so long; 0 when it never began.

        `is_garbage`: what came could not be understood, so nothing that it brought is believed.
        """
        if stood_s >= self._pace.short_watch_s:
            self.went_well()
            if not (error.is_expired or is_garbage or error.retry_after_s):
                # A load balancer cuts quiet connections all day: that is no failure.
                return Retry(0.0, needs_list=False)
        if error.is_expired:
            self._expiries += 1
            if self._expiries == 1:
                return Retry(self._uniform(0.0, self._pace.relist_jitter_s), needs_list=True)
        delay_s = self._backoff.next_s(at_least_s=error.retry_after_s)
        # While the server can't be reached at all the version is kept: so its restart is not followed by everybody's lists.
        is_hopeless = error.status and self._backoff.failures % REFUSALS_BEFORE_LIST == 0
        needs_list = error.is_expired or is_garbage or error.status == 404 or bool(is_hopeless)
        return Retry(delay_s, needs_list)
