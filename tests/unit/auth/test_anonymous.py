"""Mode `none`: nobody is asked for anything."""

from __future__ import annotations

import math

from router.auth.anonymous import AnonymousAuthenticator
from router.auth.authenticator import Credentials


def test_everybody_is_let_in_and_keeps_their_own_authorization() -> None:
    authenticated = AnonymousAuthenticator().authenticate(Credentials(authorization=b"Basic abc"))

    assert authenticated.principal.mode == "none"
    assert not authenticated.consumed_authorization


def test_everybody_stays_welcome() -> None:
    authenticator = AnonymousAuthenticator()

    assert authenticator.valid_until(authenticator.authenticate(Credentials())) == math.inf
