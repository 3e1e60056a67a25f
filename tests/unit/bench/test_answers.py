"""The heads of answers."""

from __future__ import annotations

import pytest

from bench.answers import AnswerHead, BadAnswerError, header, read_head


def test_a_head_with_a_length() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n"

    assert read_head(head + b"body") == AnswerHead(200, 12, len(head))


def test_a_chunked_head() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"

    assert read_head(head) == AnswerHead(200, None, len(head))


def test_a_head_that_is_not_whole_is_none() -> None:
    assert read_head(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r") is None


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n",
    ],
)
def test_an_answer_of_another_kind_is_refused(head: bytes) -> None:
    with pytest.raises(BadAnswerError):
        read_head(head)


def test_a_header_is_found_by_its_whole_name() -> None:
    head = b"HTTP/1.1 200 OK\r\nX-Content-Length: 9\r\nContent-Length:  7 \r\n"

    assert header(head, b"content-length") == b"7"
    assert header(head, b"length") is None
