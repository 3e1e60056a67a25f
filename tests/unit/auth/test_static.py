"""The shared token: equality of bytes, several at once, and a file that changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.auth.principal import Principal
from router.auth.static import (
    StaticTokenAuthenticator,
    tokens_from_file,
    watch_static_tokens,
)
from router.auth.verifier import Refusal


def _accepts(authenticator: StaticTokenAuthenticator, token: bytes) -> bool:
    verdict = authenticator.verify(token)
    assert isinstance(verdict, (Principal, Refusal))
    return isinstance(verdict, Principal)


def test_the_very_token_is_accepted() -> None:
    assert _accepts(StaticTokenAuthenticator(tokens=[b"s3cret"]), b"s3cret")


@pytest.mark.parametrize(
    "token",
    [b"", b"s3cre", b"s3crett", b"S3cret", b"s3cret\n", b" s3cret", "s3crët".encode("latin-1")],
)
def test_anything_else_is_not_of_this_kind(token: bytes) -> None:
    verdict = StaticTokenAuthenticator(tokens=[b"s3cret"]).verify(token)

    assert isinstance(verdict, Refusal)
    assert not verdict.is_final


def test_bytes_beyond_ascii_are_compared_like_all_others() -> None:
    assert _accepts(StaticTokenAuthenticator(tokens=[b"caf\xe9\xff"]), b"caf\xe9\xff")


def test_every_one_of_several_tokens_is_accepted() -> None:
    authenticator = StaticTokenAuthenticator(tokens=[b"old", b"new"])

    assert _accepts(authenticator, b"old")
    assert _accepts(authenticator, b"new")


def test_the_holder_may_be_told_from_other_modes() -> None:
    verdict = StaticTokenAuthenticator(tokens=[b"s3cret"]).verify(b"s3cret")

    assert isinstance(verdict, Principal)
    assert (verdict.mode, verdict.subject) == ("static", "static-token")


@pytest.mark.parametrize("tokens", [[], [b""], [b"good", b""]])
def test_an_empty_token_is_never_put_in_force(tokens: list[bytes]) -> None:
    with pytest.raises(ValueError, match="empty"):
        StaticTokenAuthenticator(tokens=tokens)


def test_a_repr_tells_how_many_and_not_which() -> None:
    assert "s3cret" not in repr(StaticTokenAuthenticator(tokens=[b"s3cret"]))


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        (b"one", (b"one",)),
        (b"one\n", (b"one",)),
        (b"  one \r\n\r\ntwo\n", (b"one", b"two")),
    ],
)
def test_a_file_holds_one_token_a_line_without_the_white_space(
    content: bytes, tokens: tuple[bytes, ...]
) -> None:
    assert tokens_from_file(content) == tokens


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_a_file_without_a_token_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match="no token"):
        tokens_from_file(content)


async def test_a_changed_file_replaces_its_tokens_and_keeps_the_environments(
    tmp_path: Path,
) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"one\n")
    authenticator = StaticTokenAuthenticator(tokens=[b"environment"])
    watched = watch_static_tokens(authenticator, path, always=(b"environment",))
    watched.load_once()

    path.write_bytes(b"two\n")
    await watched.poll()

    accepted = [t for t in (b"environment", b"one", b"two") if _accepts(authenticator, t)]
    assert accepted == [b"environment", b"two"]


async def test_an_emptied_file_keeps_the_old_tokens(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"one\n")
    authenticator = StaticTokenAuthenticator(tokens=[b"placeholder"])
    watched = watch_static_tokens(authenticator, path)
    watched.load_once()

    path.write_bytes(b"")
    await watched.poll()

    assert _accepts(authenticator, b"one")
    assert not _accepts(authenticator, b"")
    assert watched.reloads_failed == 1


def test_other_tokens_are_told_to_whoever_keeps_a_verdict() -> None:
    authenticator = StaticTokenAuthenticator(tokens=[b"old"])
    told = []
    authenticator.on_change(lambda: told.append("changed"))

    authenticator.replace([b"new"])

    assert told == ["changed"]
