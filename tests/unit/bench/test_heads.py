"""The requests that the load sends."""

from __future__ import annotations

from bench import heads
from bench.heads import Caller

CALLER = Caller("box-a", "secret")


def test_no_two_heads_are_alike() -> None:
    assert len(set(heads.different_gets(CALLER))) == heads.DIFFERENT_HEADS
    assert len(set(heads.different_posts(CALLER, 1_000))) == 1_000


def test_heads_differ_in_every_line_that_differs_in_life() -> None:
    first, second = (
        dict(line.split(b": ", 1) for line in request.split(b"\r\n")[1:] if line)
        for request in heads.different_gets(CALLER, 2)
    )

    for name in (b"X-Request-Id", b"traceparent", b"Cookie"):
        assert first[name] != second[name]
    for name in (b"X-Sandbox-ID", b"Authorization"):
        assert first[name] == second[name]


def test_every_run_sends_the_same_heads() -> None:
    assert heads.different_gets(CALLER, 10) == heads.different_gets(CALLER, 10)


def test_a_post_carries_the_length_of_its_body() -> None:
    (request,) = heads.different_posts(CALLER, 1)
    head, _, body = request.partition(b"\r\n\r\n")

    assert body == heads.POST_BODY
    assert len(body) == 1_024
    assert b"Content-Length: 1024" in head


def test_a_browser_s_gets_differ_in_their_paths_alone() -> None:
    by_token = heads.browser_gets("8888-box.boxes.example", authorization="t", count=3)
    by_session = heads.browser_gets("8888-box.boxes.example", session="s", count=3)
    assert len({head.partition(b"\r\n")[2] for head in by_session}) == 1
    assert [head.partition(b"\r\n")[0] for head in by_token] == [
        head.partition(b"\r\n")[0] for head in by_session
    ]
    assert b"\r\nAuthorization: Bearer t\r\n" in by_token[0]
    assert b"Authorization" not in by_session[0]
    assert by_session[0].endswith(b"; __Host-sandbox-router=s\r\n\r\n")
