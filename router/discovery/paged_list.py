"""PagedList: a complete list in pages, where the server can't send it as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from router.discovery.objects import section, text
from router.discovery.pace import Pace
from router.discovery.turns import Turns
from router.kube.api_client import ApiError, JsonObject, KubernetesApi


class PagedList:
    """Reads lists of one resource; remembers how large the pages must be so that a list ends before its version expires."""

    def __init__(self, *, api: KubernetesApi, pace: Pace) -> None:
        self._api = api
        self._pace = pace
        self._page_size = pace.page_size

    def __repr__(self) -> str:
        return f"<PagedList page_size={self._page_size}>"

    async def read(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        take: Callable[[JsonObject], None],
        on_answer: Callable[[], None],
        rest_share: float,
    ) -> str:
        """Hands each object to `take` and returns the list's resourceVersion. Raises ApiError.

        It rests in between, `rest_share` times as long as it works; with 0, for a list on which everybody waits, not at all:
        then the next page is on its way while one is read.
        """
        turns = Turns()
        page = await self._page(path, params, "")
        while True:
            if isinstance(page, ApiError):
                raise page
            on_answer()
            metadata = section(page, "metadata")
            token = text(metadata, "continue")
            if not token:
                await _hand_over(page, take, turns, rest_share)
                self._page_size = self._pace.page_size
                return text(metadata, "resourceVersion")
            if rest_share:
                await _hand_over(page, take, turns, rest_share)
                await turns.rest(rest_share)
                page = await self._page(path, params, token)
                continue
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._page(path, params, token))
                await _hand_over(page, take, turns, rest_share)
            page = following.result()

    async def _page(
        self, path: str, params: Mapping[str, str], token: str
    ) -> JsonObject | ApiError:
        """Returns one page, or why there is none. Without a resourceVersion, which means the newest state."""
        query = {**params, "limit": str(self._page_size)}
        if token:
            query["continue"] = token
        try:
            return await self._api.get_json(path, query, read_timeout_s=self._pace.read_timeout_s)
        except ApiError as error:
            if error.is_expired:
                # The list took longer than the server keeps history: fewer, larger pages.
                self._page_size *= 4
            return error


async def _hand_over(
    page: JsonObject, take: Callable[[JsonObject], None], turns: Turns, rest_share: float
) -> None:
    items = page.pop("items", None) or []
    items.reverse()
    turns.begin()
    while items:
        # Popped: each object's memory is given back as it goes, not a page's at once.
        take(items.pop())
        if turns.is_over:
            await turns.rest(rest_share)
    turns.end()
