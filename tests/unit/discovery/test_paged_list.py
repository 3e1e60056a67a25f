from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from router.discovery.pace import Pace
from router.discovery.paged_list import PagedList
from router.kube.api_client import ApiError, JsonObject


class Server:
    """Answers with the pages it was given, one after the other."""

    def __init__(self, *pages: JsonObject | ApiError) -> None:
        self.pages = list(pages)
        self.asked: list[Mapping[str, str]] = []

    async def get_json(
        self, path: str, params: Mapping[str, str], *, read_timeout_s: float
    ) -> JsonObject:
        self.asked.append(params)
        await asyncio.sleep(0)
        page = self.pages.pop(0)
        if isinstance(page, ApiError):
            raise page
        return page


def page(*items: str, token: str = "", version: str = "7") -> JsonObject:
    return {"metadata": {"resourceVersion": version, "continue": token}, "items": list(items)}


def listed(server: Server) -> PagedList:
    return PagedList(api=server, pace=Pace(page_size=2))  # type: ignore[arg-type]


async def read(pages: PagedList, **change: Any) -> tuple[str, list[str]]:
    found: list[Any] = []
    arguments = {"take": found.append, "on_answer": lambda: None, "rest_share": 0.0} | change
    return await pages.read("/api/v1/pods", {"labelSelector": "x"}, **arguments), found


async def test_pages_are_read_in_order_up_to_the_last_one() -> None:
    server = Server(page("a", "b", token="t1"), page("c", "d", token="t2"), page("e"))

    version, found = await read(listed(server))

    assert version == "7"
    assert found == ["a", "b", "c", "d", "e"]
    assert [query.get("continue") for query in server.asked] == [None, "t1", "t2"]
    assert all(query["limit"] == "2" for query in server.asked)
    assert all(query["labelSelector"] == "x" for query in server.asked)


@pytest.mark.parametrize(("rest_share", "asked"), [(0.0, [1, 2, 2]), (0.5, [1, 1, 2])])
async def test_the_next_page_is_asked_for_before_all_of_one_is_read_unless_it_has_to_rest(
    rest_share: float, asked: list[int]
) -> None:
    server = Server(page("a", "b", token="t1"), page("c"))
    asked_when: list[int] = []

    def take(item: JsonObject) -> None:
        asked_when.append(len(server.asked))

    # Each object fills a turn.
    async with asyncio.timeout(5.0):
        pages = listed(server)
        await read(pages, take=lambda item: (_busy(), take(item)), rest_share=rest_share)

    assert asked_when == asked


def _busy() -> None:
    until = time.perf_counter() + 0.004
    while time.perf_counter() < until:
        pass


async def test_each_page_that_comes_is_told_of() -> None:
    answers: list[int] = []

    await read(listed(Server(page("a", token="t"), page("b"))), on_answer=lambda: answers.append(1))

    assert answers == [1, 1]


async def test_a_page_that_fails_fails_the_list() -> None:
    with pytest.raises(ApiError, match="busy"):
        await read(listed(Server(page("a", token="t"), ApiError(503, "busy"))))


async def test_a_list_that_expires_is_read_in_larger_pages_until_it_ends() -> None:
    expired = ApiError(410, "too old", reason="Expired")
    server = Server(page("a", token="t"), expired, page("a", "b"), page("a", "b"))
    pages = listed(server)
    with pytest.raises(ApiError):
        await read(pages)

    await read(pages)
    await read(pages)

    assert [query["limit"] for query in server.asked] == ["2", "2", "8", "2"]


@pytest.mark.parametrize("items", [None, []])
async def test_an_empty_list_is_a_list(items: object) -> None:
    assert await read(listed(Server({"metadata": {"resourceVersion": "7"}, "items": items}))) == (
        "7",
        [],
    )
