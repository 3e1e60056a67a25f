"""The command `token home-link`, as a person types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router.auth.jws import parse_jws
from router.cli import main

URL = ("--url", "https://boxes.example")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("k1 0123456789012345678901234567890123456789\n")
    return path


def run(secret: Path, *more: str) -> Result:
    arguments = ["token", "home-link", "--secret-file", str(secret), *more]
    return CliRunner().invoke(main, arguments)


def test_it_is_one_line_that_can_be_clicked(secret: Path) -> None:
    result = run(secret, "team-a/*", "team-b/box", *URL, "--wake", "--subject", "alice")
    assert result.exit_code == 0, result.output
    place, _, token = result.stdout.strip().partition("?link=")
    assert place == "https://boxes.example/.sandbox-router/session"
    jws = parse_jws(token.encode())
    assert (jws.header["typ"], jws.header["kid"]) == ("home-link+jwt", "k1")
    assert jws.claims["exp"] - jws.claims["iat"] == 60
    assert jws.claims["sub"] == "alice"
    assert jws.claims["sandboxes"] == [
        {"namespace": "team-a", "name": "*", "wake": True},
        {"namespace": "team-b", "name": "box", "wake": True},
    ]


def test_its_session_can_be_shorter(secret: Path) -> None:
    result = run(secret, "team-a/*", *URL, "--session-ttl", "1h")
    token = result.stdout.strip().partition("?link=")[2]
    assert parse_jws(token.encode()).claims["session_ttl"] == 3600


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*URL,), "NAMESPACE/NAME"),
        (("box", *URL), "NAMESPACE/NAME, not box"),
        (("Team/box", *URL), "The router would refuse this link"),
        (("a/b", *URL, "--ttl", "11m"), "more than 600 seconds"),
        (("a/b", *URL, "--ttl", "0"), "longer than nothing"),
        (("a/b", "--url", "boxes.example"), "--url must be like"),
        (("a/b", "--url", "https://boxes.example/x"), "has no path"),
        (("a/b", *URL, "--kid", "other"), "holds no secret of that name"),
    ],
)
def test_what_would_not_work_is_refused_in_words(
    secret: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = run(secret, *arguments)
    assert result.exit_code != 0
    assert said in result.output


def test_the_link_can_be_inspected(secret: Path) -> None:
    token = run(secret, "team-a/*", *URL).stdout.strip().partition("?link=")[2]
    arguments = ["token", "inspect", token, "--secret-file", str(secret)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert '"verdict": "accepted"' in result.output
