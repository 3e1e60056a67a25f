"""SubjectAccessReviewAuthorizer: where grants don't decide, Kubernetes RBAC does for its own users."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from router.auth.authorizer import Permit
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.principal import CONNECT, Principal
from router.auth.remembered import Answer, RememberedAnswers
from router.auth.review import Reviewer
from router.errors import AuthUnavailable, Forbidden
from router.routing.endpoint import Endpoint, SandboxRef

MAX_REMEMBERED = 16384
MAX_REFUSED = 4096
MAX_PER_CALLER = 64
"""Reviews that one caller may have waiting: who asks for invented names must not take every place."""
NEGATIVE_TTL_S = 3.0

_Key: TypeAlias = tuple[
    str, str, tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...], SandboxRef, str
]
"""Who, about which name, about which subresource."""
_VERBS = {"proxy": "connect", "portforward": "create", "wake": "create"}
"""What is asked about, by the subresource of `sandboxes`."""


class SubjectAccessReviewAuthorizer:
    """Asks whether a Kubernetes user may `connect` `sandboxes/proxy` (group `agents.x-k8s.io`) of that name, or `create` `sandboxes/wake`;
    for a raw TCP connection whether they may `create` `sandboxes/portforward`.

    Only callers of mode `token-review` are Kubernetes users: the subject of a gateway token or a certificate that happens
    to be spelled like one is never asked about. Grants come first; RBAC can add rights, not take them away. Where no
    answer can be had, a right that RBAC allowed lately stands for `stale_s` longer.
    """

    def __init__(
        self,
        *,
        grants: GrantAuthorizer,
        reviewer: Reviewer,
        ttl_s: float,
        stale_s: float = 0.0,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._grants = grants
        self.generation = -1
        """RBAC changes without a word to anybody: what it allowed is asked about again and again."""
        self._reviewer = reviewer
        self._ttl_s = ttl_s
        self._clock = clock
        self._answers: RememberedAnswers[_Key, bool] = RememberedAnswers(
            name="subject-access-review",
            max_yes=MAX_REMEMBERED,
            max_no=MAX_REFUSED,
            stale_s=stale_s,
            timeout_s=timeout_s,
            clock=clock,
            max_per_share=MAX_PER_CALLER,
        )

    def __repr__(self) -> str:
        return f"<SubjectAccessReviewAuthorizer {self._answers!r}>"

    @property
    def allowed(self) -> int:
        """How many calls were permitted, by grants or by RBAC."""
        return self._grants.allowed

    @property
    def denied(self) -> int:
        """How many were not."""
        return self._grants.denied

    @property
    def calls_started(self) -> int:
        """How many reviews were asked for."""
        return self._answers.calls_started

    @property
    def calls_failed(self) -> int:
        """How many of them had no answer."""
        return self._answers.calls_failed

    @property
    def stale_answers(self) -> int:
        """How often a right stood by what was remembered, because the API server was away."""
        return self._answers.stale_answers

    async def close(self) -> None:
        """Ends the reviews that still run."""
        await self._answers.close()

    def admit(
        self, principal: Principal, names: tuple[SandboxRef, ...], port: int, method: bytes
    ) -> Awaitable[None] | None:
        """Says whether the caller may know about a sandbox of these names at all. Raises Forbidden, AuthUnavailable."""
        if principal.mode != "token-review" or self._grants.admits(principal, names, port, method):
            self._grants.admit(principal, names, port, method)
            return None
        return self._admit_by_rbac(principal, names, None, port, method)

    def authorize(
        self,
        principal: Principal,
        endpoint: Endpoint,
        names: tuple[SandboxRef, ...],
        port: int,
        method: bytes,
    ) -> Permit | Awaitable[Permit]:
        """Returns the Permit for this endpoint. Raises Forbidden, Unauthenticated, AuthUnavailable."""
        if principal.mode != "token-review" or self._grants.permits(
            principal, endpoint, names, port, method
        ):
            return self._grants.authorize(principal, endpoint, names, port, method)
        self._grants.check_age(principal, endpoint)
        known = self._known(principal, names, _right_to(method))
        if known:
            self._grants.allowed += 1
            return Permit(principal, endpoint, port)
        return self._authorize_by_rbac(principal, endpoint, names, port, method)

    def may_wake(
        self,
        principal: Principal,
        endpoint: Endpoint,
        names: tuple[SandboxRef, ...],
        port: int,
        method: bytes,
    ) -> bool | Awaitable[bool]:
        """Says whether the caller may make this suspended sandbox run. Raises Unauthenticated, AuthUnavailable."""
        if self._grants.may_wake(principal, endpoint, names, port, method):
            return True
        if principal.mode != "token-review":
            return False
        # Who was let know of it by a grant that doesn't cover this very Sandbox would be refused once it is up.
        is_covered = self._grants.permits(principal, endpoint, names, port, method)
        needed = ("wake",) if is_covered else ("wake", _right_to(method))
        if all(self._known(principal, names, what) for what in needed):
            return True
        return self._are_allowed(principal, names, needed)

    def explain(
        self,
        principal: Principal,
        names: tuple[SandboxRef, ...],
        endpoint: Endpoint | None,
        port: int,
        method: bytes,
    ) -> dict[str, Any]:
        """Returns what the grants say, and what RBAC has said lately; never asks."""
        explanation = self._grants.explain(principal, names, endpoint, port, method)
        if principal.mode != "token-review" or explanation["decision"] != "forbidden":
            return explanation
        answers = [self._answers.peek(_key(principal, ref, _right_to(method))) for ref in names]
        if any(answer is not None and answer.value for answer in answers):
            return {**explanation, "decision": "allowed", "by": "Kubernetes RBAC, asked lately"}
        if any(answer is None for answer in answers):
            return {**explanation, "decision": "unknown", "by": "Kubernetes RBAC, not asked yet"}
        return {**explanation, "by": "no grant covers it and Kubernetes RBAC says no"}

    async def _admit_by_rbac(
        self,
        principal: Principal,
        names: tuple[SandboxRef, ...],
        endpoint: Endpoint | None,
        port: int,
        method: bytes,
    ) -> None:
        what = _right_to(method)
        if not await self._is_allowed(principal, names, what):
            self._grants.denied += 1
            lacking = self._grants.shortfall(principal, names, endpoint, port, method)
            raise Forbidden(
                reason=f"{lacking}; Kubernetes RBAC does not allow {_VERBS[what]} on sandboxes/{what}"
                f" {names[0]}"
            )

    async def _authorize_by_rbac(
        self,
        principal: Principal,
        endpoint: Endpoint,
        names: tuple[SandboxRef, ...],
        port: int,
        method: bytes,
    ) -> Permit:
        await self._admit_by_rbac(principal, names, endpoint, port, method)
        self._grants.allowed += 1
        return Permit(principal, endpoint, port)

    def _known(self, principal: Principal, names: tuple[SandboxRef, ...], what: str) -> bool:
        """Returns True when RBAC has lately allowed one of the names."""
        for ref in names:
            key = _key(principal, ref, what)
            answer = self._answers.fresh(key)
            if answer is None:
                answer = self._answers.stand_in(key, partial(self._review, principal, ref, what))
            if answer is not None and answer.value:
                return True
        return False

    async def _is_allowed(
        self, principal: Principal, names: tuple[SandboxRef, ...], what: str
    ) -> bool:
        """Asks about one name after the other, the one asked for first, until one is allowed. Raises AuthUnavailable."""
        unavailable: AuthUnavailable | None = None
        for ref in names:
            try:
                if await self._allows(principal, ref, what):
                    return True
            except AuthUnavailable as error:
                # Another name may still be remembered as allowed.
                unavailable = error
        if unavailable is not None:
            raise unavailable
        return False

    async def _are_allowed(
        self, principal: Principal, names: tuple[SandboxRef, ...], needed: tuple[str, ...]
    ) -> bool:
        for what in needed:
            if not await self._is_allowed(principal, names, what):
                return False
        return True

    async def _allows(self, principal: Principal, ref: SandboxRef, what: str) -> bool:
        key = _key(principal, ref, what)
        known = self._answers.fresh(key)
        if known is not None:
            return known.value
        return await self._answers.ask(
            key, partial(self._review, principal, ref, what), share=_share(key)
        )

    async def _review(self, principal: Principal, ref: SandboxRef, what: str) -> Answer[bool]:
        answer = await self._reviewer.review(_review_of(principal, ref, what))
        status = answer.get("status")
        if not isinstance(status, dict) or not isinstance(status.get("allowed"), bool):
            raise AuthUnavailable(reason="the SubjectAccessReview came back without an answer")
        is_allowed = status["allowed"] and status.get("denied") is not True
        ttl_s = self._ttl_s if is_allowed else min(NEGATIVE_TTL_S, self._ttl_s)
        return Answer(is_allowed, is_allowed, self._clock() + ttl_s, math.inf)


def _right_to(method: bytes) -> str:
    """Returns the subresource whose right such a call needs."""
    return "portforward" if method == CONNECT else "proxy"


def _key(principal: Principal, ref: SandboxRef, what: str) -> _Key:
    return (principal.subject, principal.user_uid, principal.groups, principal.extra, ref, what)


def _share(key: _Key) -> tuple[object, ...]:
    """Returns who asks, without the name that is asked about."""
    return key[:-2]


def _review_of(principal: Principal, ref: SandboxRef, what: str) -> dict[str, Any]:
    """Returns the SubjectAccessReview to create (authorization.k8s.io/v1)."""
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": principal.subject,
            "uid": principal.user_uid,
            "groups": list(principal.groups),
            "extra": {key: list(values) for key, values in principal.extra},
            "resourceAttributes": {
                "namespace": ref.namespace,
                "verb": _VERBS[what],
                "group": "agents.x-k8s.io",
                "resource": "sandboxes",
                "subresource": what,
                "name": ref.name,
            },
        },
    }
