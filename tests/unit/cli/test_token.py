"""The `token` commands, as a person types them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router.cli import main


def _run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["token", *map(str, arguments)], input=stdin)


def _output(*arguments: str | Path, stdin: str | None = None) -> str:
    result = _run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(_output("keygen"))
    return path


def _verdict(token: str, *options: str | Path) -> str:
    result = _run("inspect", *options, stdin=token)
    verdict: str = json.loads(result.stdout)["verdict"]
    assert result.exit_code == (0 if verdict == "accepted" else 1)
    return verdict


def test_a_minted_token_is_printed_alone_and_accepted(secret_file: Path) -> None:
    token = _output("mint", "--secret-file", secret_file, "--namespace", "team-a", "--name", "box")

    assert token.count("\n") == 1
    assert token.count(".") == 2
    assert _verdict(token, "--secret-file", secret_file) == "accepted"


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_the_private_key_mints_and_the_printed_key_set_verifies(
    tmp_path: Path, algorithm: str
) -> None:
    private, public = tmp_path / "private.pem", tmp_path / "jwks.json"
    public.write_text(_output("keygen", "--algorithm", algorithm, "--key-file", private))
    chosen = ["--algorithm", algorithm] if algorithm == "PS256" else []

    token = _output("mint", "--key-file", private, *chosen, "--namespace", "a", "--name", "*")

    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert "PRIVATE" not in public.read_text()
    assert _verdict(token, "--keys-file", public) == "accepted"


def test_a_secret_can_be_named_and_written_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    assert _output("keygen", "--kid", "k1", "--key-file", path) == ""

    assert path.read_text().startswith("k1 ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("precious")

    result = _run("keygen", "--algorithm", "EdDSA", "--key-file", path)

    assert result.exit_code == 1
    assert path.read_text() == "precious"


def test_a_public_key_algorithm_needs_a_place_for_the_private_key() -> None:
    assert "--key-file" in _run("keygen", "--algorithm", "EdDSA").output


def test_all_that_is_asked_for_stands_in_the_token(secret_file: Path) -> None:
    token = _output(
        *("mint", "--secret-file", secret_file),
        *("--namespace", "a", "--name", "b", "--uid", "u-1"),
        *("--port", "80", "--port", "8888", "--method", "GET", "--method", "POST"),
        *("--subject", "alice", "--ttl", "15m"),
        *("--issuer", "https://p", "--audience", "x", "--audience", "y"),
    )

    told = json.loads(_output("inspect", stdin=token))

    claims = told["claims"]
    assert claims["exp"] - claims["iat"] == 900
    assert (claims["sub"], claims["iss"], claims["aud"]) == ("alice", "https://p", ["x", "y"])
    assert claims["sandboxes"] == [
        {
            "namespace": "a",
            "name": "b",
            "uid": "u-1",
            "ports": [80, 8888],
            "methods": ["GET", "POST"],
        }
    ]
    assert told["times"]["exp"].endswith("+00:00")
    assert told["verdict"].startswith("not checked")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "b"], "--namespace"),
        (["--namespace", "a"], "--name"),
        (["--namespace", "A", "--name", "b"], "would refuse this grant"),
        (["--namespace", "a", "--name", "b", "--method", "get"], "would refuse this grant"),
        (["--namespace", "a", "--name", "b", "--port", "0"], "--port"),
        (["--namespace", "a", "--name", "b", "--ttl", "soon"], "is not a duration"),
        (["--namespace", "a", "--name", "b", "--ttl", "0"], "--ttl"),
        (["--namespace", "a", "--name", "b", "--algorithm", "ES256"], "--algorithm is for"),
        (["--namespace", "a", "--name", "b", "--kid", "other"], "no secret of that name"),
    ],
)
def test_a_slip_of_the_pen_is_named_and_nothing_is_minted(
    secret_file: Path, options: list[str], message: str
) -> None:
    result = _run("mint", "--secret-file", secret_file, *options)

    assert result.exit_code != 0
    assert message in result.output
    assert result.stdout == ""


def test_one_key_and_only_one_is_wanted(secret_file: Path) -> None:
    both = ("--secret-file", secret_file, "--key-file", secret_file)
    for keys in ((), both):
        result = _run("mint", *keys, "--namespace", "a", "--name", "b")
        assert "either --secret-file or --key-file" in result.output


def test_a_file_that_holds_no_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_text("short")

    for option in ("--secret-file", "--key-file"):
        result = _run("mint", option, path, "--namespace", "a", "--name", "b")
        assert f"{path}: " in result.output
        assert result.exit_code == 1


def test_inspecting_says_why_a_router_would_refuse(secret_file: Path, tmp_path: Path) -> None:
    token = _output(
        *("mint", "--secret-file", secret_file, "--namespace", "a", "--name", "b"),
        *("--audience", "router", "--issuer", "https://p"),
    )
    other = tmp_path / "other"
    other.write_text(_output("keygen"))
    keys = ("--secret-file", secret_file)

    assert _verdict(token, *keys, "--audience", "router") == "accepted"
    assert _verdict(token, *keys) == "The token is for another audience."
    assert _verdict(token, *keys, "--audience", "router", "--issuer", "https://q") == (
        "The token's issuer is not accepted."
    )
    assert _verdict(token, "--secret-file", other) == "The token's signature is wrong."


def test_a_token_may_be_given_as_an_argument(secret_file: Path) -> None:
    token = _output("mint", "--secret-file", secret_file, "--namespace", "a", "--name", "b")

    assert json.loads(_output("inspect", token.strip()))["header"]["alg"] == "HS256"


@pytest.mark.parametrize("text", ["", "abc", "a.b.c", "caf\u00e9.x.y"])
def test_what_is_no_token_is_an_error(text: str) -> None:
    result = _run("inspect", stdin=text)

    assert result.exit_code == 1
    assert "not a JSON Web Token" in result.output


def test_keys_that_can_not_be_read_are_named(secret_file: Path, tmp_path: Path) -> None:
    token = _output("mint", "--secret-file", secret_file, "--namespace", "a", "--name", "b")
    result = _run("inspect", "--keys-file", secret_file, stdin=token)

    assert "neither a JWKS nor PEM" in result.output


def test_inspecting_shows_no_signature(secret_file: Path) -> None:
    token = _output("mint", "--secret-file", secret_file, "--namespace", "a", "--name", "b")

    assert token.strip().rpartition(".")[2] not in _output("inspect", stdin=token)
