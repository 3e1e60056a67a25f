"""A Reviewer that knows a few tokens and rules, and counts."""

from __future__ import annotations

import asyncio
from typing import Any

from router.errors import AuthUnavailable


class FakeReviewer:
    """Answers TokenReviews from `users` and SubjectAccessReviews from `allowed`, in the shape of the API server's answers."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self.audiences: list[str] | None = None
        self.allowed: set[tuple[str, str, str]] = set()
        self.forbidden: set[str] = set()
        """Subresources that nobody may use."""
        self.bodies: list[dict[str, Any]] = []
        self.is_down = False
        self.answer: dict[str, Any] | None = None

    async def review(self, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        await asyncio.sleep(0.001)
        if self.is_down:
            raise AuthUnavailable(reason="HTTP 500")
        if self.answer is not None:
            return self.answer
        spec = body["spec"]
        if body["kind"] == "TokenReview":
            return {**body, "status": self._token(spec)}
        wanted = spec["resourceAttributes"]
        key = (spec["user"], wanted["namespace"], wanted["name"])
        is_allowed = key in self.allowed and wanted["subresource"] not in self.forbidden
        return {**body, "status": {"allowed": is_allowed, "reason": "RBAC"}}

    def _token(self, spec: dict[str, Any]) -> dict[str, Any]:
        user = self.users.get(spec["token"])
        if user is None:
            return {"authenticated": False, "error": "invalid bearer token"}
        status: dict[str, Any] = {"authenticated": True, "user": user}
        asked = spec.get("audiences")
        if asked and self.audiences is not None:
            status["audiences"] = [one for one in asked if one in self.audiences]
            if not status["audiences"]:
                return {"authenticated": False, "error": "token audiences is invalid"}
        return status
