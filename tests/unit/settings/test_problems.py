"""Tests of the message that names everything wrong at once."""

from __future__ import annotations

from router.settings.problems import DEFAULT, Origin, Problem, SettingsError, Source


def test_an_origin_names_its_place() -> None:
    origins = [
        Origin(Source.FLAG, "--auth"),
        Origin(Source.ENVIRONMENT, "KUBECONFIG"),
        Origin(Source.FILE, "/etc/router.yaml", 7),
        DEFAULT,
    ]

    assert [str(origin) for origin in origins] == [
        "flag --auth",
        "environment KUBECONFIG",
        "file /etc/router.yaml, line 7",
        "default",
    ]


def test_one_message_names_every_problem() -> None:
    problems = [
        Problem("auth", None, "no mode is set", "set one"),
        Problem("origin = x", Origin(Source.FLAG, "--origin"), "is unknown", "write keep"),
    ]

    assert str(SettingsError(problems)) == (
        "the settings have 2 problems:\n"
        "  - auth: no mode is set; set one\n"
        "  - origin = x (flag --origin): is unknown; write keep"
    )


def test_one_problem_is_counted_as_one() -> None:
    error = SettingsError([Problem("auth", None, "wrong", "right")])

    assert str(error).startswith("the settings have 1 problem:")
