"""The desk that the data path asks is the one that Sessions is."""

from __future__ import annotations

from router.auth.revocation import EndedSessions
from router.auth.session_desk import BegunSession, SessionDesk
from router.auth.sessions import Sessions


def test_sessions_are_a_desk() -> None:
    desk: SessionDesk = Sessions(
        is_refused=lambda principal: False, ended=EndedSessions(), longest_s=60.0
    )
    assert callable(desk.begin)


def test_a_session_that_has_begun_says_what_its_browser_needs() -> None:
    assert BegunSession("token", 60, "/lab") == ("token", 60, "/lab")
