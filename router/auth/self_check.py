"""ReviewCheck: may this router ask the API server its reviews at all? Asked at the start, and again after each refusal."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from router.auth.review import Reviewer
from router.errors import AuthUnavailable, ReviewRefused

logger = logging.getLogger("sandbox_router.auth")

FIRST_PAUSE_S: Final = 2.0
LONGEST_PAUSE_S: Final = 30.0

_SPECS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "TokenReview": (
        "authentication.k8s.io",
        {"token": "sandbox-router-asks-whether-it-may-ask"},
    ),
    "SubjectAccessReview": (
        "authorization.k8s.io",
        {
            "user": "system:anonymous",
            "resourceAttributes": {
                "verb": "connect",
                "group": "agents.x-k8s.io",
                "resource": "sandboxes",
                "subresource": "proxy",
                "name": "sandbox-router-asks-whether-it-may-ask",
                "namespace": "default",
            },
        },
    ),
}


class ReviewCheck:
    """Stands between whoever asks for reviews and the API server, and knows which kinds it refuses to create.

    An API server that doesn't answer has refused nothing. `only_ways` are the kinds without which nobody is let in: the
    router isn't ready while they are refused. With the others it is, once they were allowed, and says so in notes().
    """

    def __init__(
        self, *, reviewer: Reviewer, kinds: tuple[str, ...], only_ways: frozenset[str]
    ) -> None:
        self._reviewer = reviewer
        self._kinds = kinds
        self._only_ways = only_ways
        self._refusals: dict[str, str] = {}
        self._allowed_once: set[str] = set()
        self._wanted = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ReviewCheck {','.join(self._kinds)} refused={sorted(self._refusals)}>"

    def missing(self) -> list[str]:
        """Returns what keeps the router from being ready."""
        return [self._said(kind) for kind in self._refusals if self._is_missing(kind)]

    def notes(self) -> list[str]:
        """Returns what an operator should know although the router is ready."""
        return [self._said(kind) for kind in self._refusals if not self._is_missing(kind)]

    async def review(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the created review. Raises AuthUnavailable."""
        kind = body["kind"]
        try:
            answer = await self._reviewer.review(body)
        except ReviewRefused as error:
            self._refused(kind, error.reason)
            raise
        self._allowed(kind)
        return answer

    async def run(self) -> None:
        """Checks each kind now, and whenever one was refused until it is not; cancel it to stop."""
        pause_s = FIRST_PAUSE_S
        while True:
            self._wanted.clear()
            for kind in self._kinds:
                await self._check(kind)
            if self._refusals:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                pause_s = FIRST_PAUSE_S
                await self._wanted.wait()

    async def _check(self, kind: str) -> None:
        group, spec = _SPECS[kind]
        try:
            await self.review({"apiVersion": f"{group}/v1", "kind": kind, "spec": spec})
        except AuthUnavailable:
            # A refusal is noted by then; an API server that is away says nothing about rights.
            return

    def _is_missing(self, kind: str) -> bool:
        return kind in self._only_ways or kind not in self._allowed_once

    def _allowed(self, kind: str) -> None:
        self._allowed_once.add(kind)
        if self._refusals.pop(kind, None) is not None:
            logger.info("the API server accepts reviews again", extra={"fields": {"review": kind}})

    def _refused(self, kind: str, reason: str) -> None:
        is_news = kind not in self._refusals
        self._refusals[kind] = reason
        self._wanted.set()
        if is_news:
            logger.error(
                "the API server refuses this router's reviews, so the callers that need one get 503",
                extra={"fields": {"review": kind, "error": reason, "needs": _right(kind)}},
            )

    def _said(self, kind: str) -> str:
        return f"the API server refuses {kind}s ({self._refusals[kind]}): give the router's ServiceAccount {_right(kind)}"


def _right(kind: str) -> str:
    return f"the right to create {kind.lower()}s.{_SPECS[kind][0]}"
