"""Mode `static`: one shared bearer token, compared in constant time on bytes."""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Iterable
from pathlib import Path

from router.auth.principal import Principal
from router.auth.verifier import Reason, Refusal
from router.watched_file import WatchedFiles

_HOLDER = Principal(subject="static-token", mode="static")
_MISMATCH = Refusal(
    "static", Reason.MISMATCH, "The token is not one that this router knows.", is_final=False
)


class StaticTokenAuthenticator:
    """Accepts any of a few shared tokens: several at once while one is being replaced."""

    mode = "static"
    is_local = True

    def __init__(self, *, tokens: Iterable[bytes]) -> None:
        self._tokens: tuple[bytes, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        self.replace(tokens)

    def __repr__(self) -> str:
        return f"<StaticTokenAuthenticator tokens={len(self._tokens)}>"

    def replace(self, tokens: Iterable[bytes]) -> None:
        """Puts other tokens in force. Raises ValueError when there is none, or an empty one, which would let everybody in."""
        replacement = tuple(tokens)
        if not replacement or not all(replacement):
            raise ValueError("a static token must not be empty")
        self._tokens = replacement
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` whenever other tokens are in force."""
        self._listeners.append(listener)

    def valid_until(self, principal: Principal) -> float:
        """Returns infinity: a shared token has no expiry."""
        return math.inf

    def verify(self, token: bytes) -> Principal | Refusal:
        """Returns the holder when `token` equals one of the tokens; compares with every one, so time tells nothing."""
        matches = False
        for known in self._tokens:
            matches |= hmac.compare_digest(known, token)
        return _HOLDER if matches else _MISMATCH


def tokens_from_file(content: bytes) -> tuple[bytes, ...]:
    """Returns the tokens of a static token file: one a line, white space around it and empty lines ignored.

    Raises ValueError when there is none.
    """
    tokens = tuple(line.strip() for line in content.splitlines() if line.strip())
    if not tokens:
        raise ValueError("holds no token: write one on a line of its own")
    return tokens


def watch_static_tokens(
    authenticator: StaticTokenAuthenticator,
    path: Path,
    *,
    always: tuple[bytes, ...] = (),
    poll_interval_s: float = 1.0,
) -> WatchedFiles[tuple[bytes, ...]]:
    """Returns the watcher that keeps `authenticator` at the file's tokens, plus those of `always` (from the environment)."""
    return WatchedFiles(
        (path,),
        parse=lambda contents: tokens_from_file(contents[0]),
        apply=lambda tokens: authenticator.replace((*always, *tokens)),
        poll_interval_s=poll_interval_s,
    )
