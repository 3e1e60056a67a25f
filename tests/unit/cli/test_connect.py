"""`sandbox-router connect`: what its words mean, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from router.cli import forwarding, main
from router.cli.forwarding import Forward, Way


class Ran:
    way: Way
    forwards: list[Forward]
    stdio: bool


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    ran = Ran()

    def run(way: Way, forwards: list[Forward], *, stdio: bool) -> int:
        ran.way, ran.forwards, ran.stdio = way, forwards, stdio
        return 7

    monkeypatch.setattr(forwarding, "run", run)
    return ran


def call(*words: str, **environment: Any) -> Result:
    return CliRunner().invoke(main, ["connect", *words], env=environment)


def test_ports_of_this_machine_are_the_sandboxs_or_others(ran: Ran) -> None:
    result = call("team-a/box", "22", "2222:22", "0:80", SANDBOX_URL="http://router")
    assert result.exit_code == 7
    assert ran.forwards == [Forward(22, 22), Forward(2222, 22), Forward(0, 80)]
    assert str(ran.way) == "team-a/box"
    assert not ran.stdio


def test_a_sandbox_may_be_named_alone_and_the_router_by_an_option(ran: Ran) -> None:
    assert call("--stdio", "--url", "http://router/x", "box", "22").exit_code == 7
    assert (ran.way.namespace, ran.way.name) == ("", "box")
    assert ran.way.router.path == "/x/.sandbox-router/tcp"
    assert ran.stdio


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("box", "0"), "from 1 to 65535"),
        (("box", "70000"), "from 1 to 65535"),
        (("box", "70000:22"), "from 1 to 65535"),
        (("box", "ssh"), "is no port"),
        (("box", "1:2:3"), "is no port"),
        (("box", "٢٢"), "is no port"),
        (("Box", "22"), "names no sandbox"),
        (("a/b/c", "22"), "names no sandbox"),
        (("/box", "22"), "names no sandbox"),
        (("--stdio", "box", "1:22"), "is no port: PORT"),
        (("--stdio", "box", "22", "23"), "takes one PORT"),
        (("--url", "ftp://x", "box", "22"), "--url"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    ran: Ran, words: tuple[str, ...], why: str
) -> None:
    result = call(*words, SANDBOX_URL="http://router")
    assert result.exit_code == 2
    assert why in result.output


def test_without_an_address_it_says_how_to_give_one(ran: Ran) -> None:
    result = call("box", "22", SANDBOX_URL="")
    assert result.exit_code == 2
    assert "SANDBOX_URL" in result.output


def test_a_token_can_not_be_given_in_the_arguments(ran: Ran) -> None:
    result = call("--token", "secret", "box", "22", SANDBOX_URL="http://router")
    assert result.exit_code == 2
    assert "No such option" in result.output
