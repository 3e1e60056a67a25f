"""The router's own answers, byte for byte."""

from __future__ import annotations

import json

import httptools
import pytest

from router.error_table import every_error
from router.errors import (
    Forbidden,
    MissingSandboxId,
    RouterError,
    SandboxNotReady,
    Unauthenticated,
)
from router.proxy.wire.local_responses import error_answer, health_answer, redirect_answer


class Answer:
    """An answer as a client's parser sees it."""

    def __init__(self, data: bytes) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.is_complete = False
        parser = httptools.HttpResponseParser(self)
        parser.feed_data(data)
        self.status = parser.get_status_code()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True

    def __getitem__(self, name: bytes) -> bytes:
        (value,) = [value for key, value in self.fields if key == name]
        return value

    def __contains__(self, name: bytes) -> bool:
        return name in dict(self.fields)


def test_an_error_is_exactly_these_bytes() -> None:
    assert error_answer(MissingSandboxId(), is_head=False, close=False) == (
        b"HTTP/1.1 400 Bad Request\r\n"
        b"Content-Type: application/json\r\n"
        b"Cache-Control: no-store\r\n"
        b"Content-Length: 92\r\n"
        b"X-Sandbox-Router-Error: missing_sandbox_id\r\n"
        b"\r\n"
        b'{"detail":"X-Sandbox-ID header is required.","code":"missing_sandbox_id","retryable":false}\n'
    )


def test_health_is_exactly_these_bytes() -> None:
    assert health_answer(is_head=False, close=True) == (
        b"HTTP/1.1 200 OK\r\n"
        b"Content-Type: application/json\r\n"
        b"Cache-Control: no-store\r\n"
        b"Content-Length: 15\r\n"
        b"Connection: close\r\n"
        b"\r\n"
        b'{"status":"ok"}'
    )


@pytest.mark.parametrize("kind", sorted(every_error(), key=lambda kind: kind.__name__))
def test_every_error_is_a_whole_answer_that_says_its_code(kind) -> None:
    answer = Answer(error_answer(kind(), is_head=False, close=False))
    assert answer.is_complete
    assert answer.status == kind.status
    assert answer[b"x-sandbox-router-error"] == kind.code.encode()
    assert json.loads(answer.body) == {
        "detail": kind.default_detail,
        "code": kind.code,
        "retryable": kind.retryable,
    }
    wanted = kind.retry_after_s
    assert (b"retry-after" in answer) == (wanted is not None)
    if wanted is not None:
        assert answer[b"retry-after"] == str(wanted).encode()


def test_an_answer_to_head_has_the_length_and_no_body() -> None:
    whole = error_answer(Forbidden(), is_head=False, close=False)
    head = error_answer(Forbidden(), is_head=True, close=False)
    assert whole.startswith(head)
    assert head.endswith(b"\r\n\r\n")
    assert health_answer(is_head=True, close=False).endswith(b"\r\n\r\n")


@pytest.mark.parametrize("close", [True, False])
def test_connection_close_is_said_exactly_when_it_closes(close: bool) -> None:
    answer = Answer(error_answer(SandboxNotReady(), is_head=False, close=close))
    assert (b"connection" in answer) == close


def test_only_an_unknown_caller_is_challenged() -> None:
    assert Answer(error_answer(Unauthenticated(), is_head=False, close=False))[
        b"www-authenticate"
    ] == (b'Bearer realm="sandbox-router"')
    assert b"www-authenticate" not in Answer(error_answer(Forbidden(), is_head=False, close=False))


def test_the_challenge_says_what_the_error_knows() -> None:
    error = Unauthenticated()
    error.challenge += ', error="invalid_token"'
    answer = Answer(error_answer(error, is_head=False, close=False))
    assert answer[b"www-authenticate"] == (b'Bearer realm="sandbox-router", error="invalid_token"')


def test_a_detail_from_outside_stays_inside_its_json() -> None:
    detail = 'a "quoted"\r\nX-Evil: 1\r\n\r\nname\x00é'
    answer = Answer(error_answer(Forbidden(detail), is_head=False, close=False))
    assert b"x-evil" not in answer
    assert json.loads(answer.body)["detail"] == detail


def test_the_reason_for_the_log_never_reaches_the_client() -> None:
    made = error_answer(Forbidden(reason="10.0.0.7:8888"), is_head=False, close=False)
    assert b"10.0.0.7" not in made


@pytest.mark.parametrize("error", list(every_error()))
def test_the_body_of_an_error_ends_with_its_line(error: type[RouterError]) -> None:
    body = Answer(error_answer(error(), is_head=False, close=False)).body
    assert body.endswith(b"}\n")
    assert body.count(b"\n") == 1


@pytest.mark.parametrize("close", [True, False])
def test_a_redirect_says_where_to_and_nothing_else(close: bool) -> None:
    answer = Answer(redirect_answer(b"/s/a/", is_head=False, close=close))
    assert (answer.status, answer[b"location"], answer.body) == (308, b"/s/a/", b"")
    assert answer.is_complete
    assert (b"connection" in answer) is close
