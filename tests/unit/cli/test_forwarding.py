"""How a connection of this machine becomes one to the sandbox; the whole is in tests/integration/test_connect_command.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.cli import forwarding
from router.cli.forwarding import Forward, Way, run
from router.cli.raw_link import CannotConnect, RawLink, Router


def way(token_file: Path | None = None) -> Way:
    return Way(Router.of("http://127.0.0.1:1"), "team-a", "box", token_file)


class Attempts:
    """In the place of RawLink.open()."""

    def __init__(self, *ends: CannotConnect | None) -> None:
        self.ends = list(ends)
        self.tokens: list[str] = []

    async def __call__(self, router: object, *, token: str, **asked: object) -> str:
        self.tokens.append(token)
        end = self.ends.pop(0)
        if end is not None:
            raise end
        return "link"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(forwarding, "_PAUSES_S", (0.0, 0.0))
    return monkeypatch


async def test_what_may_pass_is_tried_again_with_the_token_as_it_is_then(
    quick: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    attempts = Attempts(CannotConnect("busy", is_passing=True), None)
    quick.setattr(RawLink, "open", attempts)
    assert await way(file).open(22) == "link"
    file.write_text("two\n")
    attempts.ends = [None]
    await way(file).open(22)
    assert attempts.tokens == ["one", "one", "two"]


async def test_what_lasts_is_told_at_once_and_what_does_not_pass_after_the_last_attempt(
    quick: pytest.MonkeyPatch,
) -> None:
    attempts = Attempts(CannotConnect("no"))
    quick.setattr(RawLink, "open", attempts)
    with pytest.raises(CannotConnect, match="no"):
        await way().open(22)
    attempts.ends = [CannotConnect(str(n), is_passing=True) for n in range(3)]
    with pytest.raises(CannotConnect, match="2"):
        await way().open(22)
    assert attempts.ends == []


@pytest.mark.parametrize("text", ["a b", "a\nb", "ü", "x" * 20_000])
async def test_a_token_that_can_be_none_is_not_sent(
    quick: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    (tmp_path / "token").write_text(text, "utf-8")
    quick.setattr(RawLink, "open", Attempts())
    with pytest.raises(CannotConnect) as caught:
        await way(tmp_path / "token").open(22)
    assert text not in str(caught.value)


def test_a_port_that_is_taken_is_told_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(way(), [Forward(port, 22)], stdio=False) == 2
    assert "0:22" in capsys.readouterr().err
