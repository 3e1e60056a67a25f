"""A worker listens nowhere unless it is given sockets."""

from __future__ import annotations

from router.app.sockets import Sockets


def test_nothing_is_listened_on_unless_it_is_given() -> None:
    nothing = Sockets()
    assert [*nothing.http, *nothing.https, *nothing.checks, *nothing.own] == []
