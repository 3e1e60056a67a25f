"""Each error has words for people: what happened, what to do, and the code."""

from __future__ import annotations

import pytest

from router.error_table import every_error
from router.errors import CrossOrigin, Forbidden, RouterError, SandboxNotReady, Unauthenticated
from router.proxy.wire.error_pages import TEXTS, error_page, signed_out_page

ALL = sorted(every_error(), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_has_words_for_people(kind: type[RouterError]) -> None:
    text = TEXTS[kind.code]
    body = error_page(kind())[0].decode()
    assert f"<code>{kind.status} {kind.code}</code>" in body
    for said in text:
        assert said in body
        assert not said.endswith(" ")
    assert text.happened.endswith(".")
    assert text.to_do.endswith(".")
    assert not text.heading.endswith(".")


def test_no_words_are_for_a_code_that_is_none() -> None:
    assert set(TEXTS) == {kind.code for kind in [*ALL, RouterError]}


def test_what_can_be_tried_again_can_be_clicked() -> None:
    assert '<a href="">Try again</a>' in error_page(SandboxNotReady())[0].decode()
    assert "Try again</a>" not in error_page(Forbidden())[0].decode()


def test_a_detail_is_no_markup_and_a_reason_is_not_shown() -> None:
    body = error_page(Forbidden("<script>&", reason="10.0.0.7"))[0].decode()
    assert "&lt;script&gt;&amp;" in body
    assert "10.0.0.7" not in body


def test_who_is_not_known_is_told_why() -> None:
    missing, over = Unauthenticated(), Unauthenticated()
    over.set_cookie = b"__Host-sandbox-router=; Max-Age=0"
    assert "needs a link" in error_page(missing)[0].decode()
    assert "session has ended" in error_page(over)[0].decode()
    assert "link does not work any more" in error_page(missing, is_link=True)[0].decode()


def test_where_people_sign_in_can_be_clicked() -> None:
    url = "https://login.example/?a=b&rd=c"
    body = error_page(Unauthenticated(), sign_in=url)[0].decode()
    assert '<a href="https://login.example/?a=b&amp;rd=c">Sign in</a>' in body
    assert "Sign in" not in error_page(Forbidden(), sign_in=url)[0].decode()


def test_who_is_somebody_else_can_sign_out_there() -> None:
    error = CrossOrigin()
    assert "<form" not in error_page(error, sign_out="/out")[0].decode()
    error.is_of_somebody_else = True
    page, lines = error_page(error, sign_out="/out")
    assert b'<form method="post" action="/out">' in page
    assert b"form-action 'self'" in lines[0]


def test_who_has_signed_out_is_told_so() -> None:
    assert b"You have signed out" in signed_out_page()
