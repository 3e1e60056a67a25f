"""KubernetesReviewer: asks the API server who a token is, or what a user may do."""

from __future__ import annotations

from typing import Any

from router.errors import AuthUnavailable, ReviewRefused
from router.kube.api_client import ApiError, KubernetesApi

_PATHS = {
    "TokenReview": "/apis/authentication.k8s.io/v1/tokenreviews",
    "SubjectAccessReview": "/apis/authorization.k8s.io/v1/subjectaccessreviews",
}

_REFUSALS = (401, 403)


class KubernetesReviewer:
    """Creates review objects. Needs the right to `create` the kind that is asked for, nothing more.

    `api` should not be the watch's own client: a burst of reviews must not wait behind it, nor it behind them.
    """

    def __init__(self, *, api: KubernetesApi, timeout_s: float = 5.0) -> None:
        self._api = api
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<KubernetesReviewer {self._api!r}>"

    async def review(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the created TokenReview or SubjectAccessReview. Raises AuthUnavailable, ReviewRefused.

        The server's own words stay out of the error: a message could repeat the token.
        """
        try:
            return await self._api.post_json(_PATHS[body["kind"]], body, timeout_s=self._timeout_s)
        except ApiError as error:
            what = f"HTTP {error.status} {error.reason}".rstrip() if error.status else error.message
            kind = ReviewRefused if error.status in _REFUSALS else AuthUnavailable
            raise kind(reason=f"{body['kind']}: {what}") from error
