"""The command `token link`, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from router.auth.jws import parse_jws
from router.cli import main

SECRET = "k1 0123456789012345678901234567890123456789\n"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


def run(secret: Path, *more: str, sandbox: str = "team-a/box", port: str = "8888") -> Result:
    arguments = ["token", "link", sandbox, "--port", port, "--secret-file", str(secret), *more]
    return CliRunner().invoke(main, arguments)


def made(secret: Path, *more: str, **how: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Returns the URL in front of the token, and the token's header and claims."""
    result = run(secret, *more, **how)
    assert result.exit_code == 0, result.output
    place, _, token = result.stdout.strip().partition("?link=")
    jws = parse_jws(token.encode())
    return place, jws.header, jws.claims


def test_a_link_is_one_line_that_can_be_clicked(secret: Path) -> None:
    place, header, claims = made(secret, "--url", "https://boxes.example")
    assert place == "https://8888-box--team-a.boxes.example/.sandbox-router/session"
    assert (header["typ"], header["kid"]) == ("link+jwt", "k1")
    assert claims["exp"] - claims["iat"] == 60
    assert {name: claims[name] for name in ("namespace", "name", "port")} == {
        "namespace": "team-a",
        "name": "box",
        "port": 8888,
    }
    assert set(claims) == {"jti", "iat", "exp", "namespace", "name", "port"}


def test_what_it_is_to_say_it_says(secret: Path) -> None:
    _, _, claims = made(
        secret,
        *("--url", "https://boxes.example", "--ttl", "5m", "--path", "/lab?x", "--uid", "u1"),
        *("--session-ttl", "1h", "--wake", "--subject", "alice", "--issuer", "i"),
        *("--audience", "a"),
    )
    assert claims["exp"] - claims["iat"] == 300
    told = {name: claims[name] for name in claims if name not in ("jti", "iat", "exp")}
    assert told == {
        "namespace": "team-a",
        "name": "box",
        "port": 8888,
        "uid": "u1",
        "path": "/lab?x",
        "session_ttl": 3600,
        "wake": True,
        "sub": "alice",
        "iss": "i",
        "aud": "a",
    }


def test_by_path_and_with_a_port_it_leads_there_too(secret: Path) -> None:
    place, _, _ = made(secret, "--url", "http://localhost:8080", "--path-prefix", "/s/")
    assert place == "http://localhost:8080/s/team-a/box/8888/.sandbox-router/session"
    place, _, _ = made(secret, "--url", "http://localhost:8080/")
    assert place == "http://8888-box--team-a.localhost:8080/.sandbox-router/session"


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--url", "https://b.example", "--ttl", "11m"), "more than 600 seconds"),
        (("--url", "https://b.example", "--ttl", "0"), "longer than nothing"),
        (("--url", "https://b.example", "--path", "//evil.example"), "no path in the sandbox"),
        (("--url", "boxes.example"), "--url must be like"),
        (("--url", "https://me@boxes.example"), "--url must be like"),
        (("--url", "https://boxes.example/s"), "--path-prefix is for that"),
        ((), "--url"),
    ],
)
def test_a_link_that_could_not_work_is_not_made(
    secret: Path, more: tuple[str, ...], complaint: str
) -> None:
    result = run(secret, *more)
    assert result.exit_code == 2
    assert complaint in result.output


@pytest.mark.parametrize("sandbox", ["box", "team-a/*", "Team/box", "a/b/c"])
def test_one_sandbox_is_named(secret: Path, sandbox: str) -> None:
    result = run(secret, "--url", "https://b.example", sandbox=sandbox)
    assert result.exit_code == 2


def test_a_host_name_that_is_too_long_is_told(secret: Path) -> None:
    long = f"team-a/{'b' * 60}"
    assert "DNS allows 63" in run(secret, "--url", "https://b.example", sandbox=long).output
    place, _, _ = made(secret, "--url", "https://b.example", "--path-prefix", "/s", sandbox=long)
    assert place.startswith("https://b.example/s/team-a/bbb")


def test_inspect_knows_a_link(secret: Path) -> None:
    token = run(secret, "--url", "https://b.example").stdout.strip().partition("?link=")[2]
    result = CliRunner().invoke(
        main, ["token", "inspect", "--secret-file", str(secret)], input=token
    )
    assert json.loads(result.stdout)["verdict"] == "accepted"
