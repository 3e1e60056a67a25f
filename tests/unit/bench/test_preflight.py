"""The check that a subject does the whole job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from bench import preflight
from bench.heads import ITEM_BODY
from bench.preflight import NotTheSameJobError, ask, check

from .conftest import CALLER


async def test_a_sandbox_without_a_proxy_fails_for_letting_strangers_in(sandbox_port: int) -> None:
    with pytest.raises(NotTheSameJobError, match="a wrong token isn't answered with 401"):
        await check(sandbox_port, CALLER)


async def test_a_proxy_that_answers_something_else_fails(
    answering: Callable[[bytes], Awaitable[int]],
) -> None:
    port = await answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with pytest.raises(NotTheSameJobError, match="doesn't bring the sandbox's answer"):
        await check(port, CALLER)


async def test_a_question_brings_status_and_body(sandbox_port: int) -> None:
    assert await ask(sandbox_port, CALLER.head("GET", "/items/1")) == (200, ITEM_BODY)


def test_a_proxy_that_agrees_on_another_cipher_fails() -> None:
    with pytest.raises(NotTheSameJobError, match="with ECDHE-RSA-AES128-GCM-SHA256, not"):
        preflight._check_cipher(("ECDHE-RSA-AES128-GCM-SHA256", "TLSv1.2", 128))
