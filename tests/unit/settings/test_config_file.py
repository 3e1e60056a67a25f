"""Tests of reading a configuration file: values as written, and every fault with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.settings.config_file import ConfigFile, parse_config, read_config_file
from router.settings.problems import Origin, Source

ORIGIN = Origin(Source.FILE, "r.yaml")


def parse(text: str) -> ConfigFile:
    return parse_config(text, ORIGIN)


def values_in(text: str) -> dict[str, object]:
    found = parse(text)
    assert found.problems == []
    return {key: raw for key, (raw, _) in found.given.items()}


def problems_in(text: str) -> list[str]:
    return [str(problem) for problem in parse(text).problems]


def test_scalars_are_taken_as_they_are_written() -> None:
    text = (
        'mtls: off\nworkers: 010\nmax-connections: 1_000\nproxy-timeout: 1:30\naccess-log: "yes"\n'
    )

    assert values_in(text) == {
        "mtls": "off",
        "workers": "010",
        "max-connections": "1_000",
        "proxy-timeout": "1:30",
        "access-log": "yes",
    }


def test_a_bind_needs_no_quotes_except_for_an_ipv6_host() -> None:
    assert values_in("http-bind: :8080\nadmin-bind: '[::1]:9090'\n") == {
        "http-bind": ":8080",
        "admin-bind": "[::1]:9090",
    }


def test_a_list_is_block_or_flow() -> None:
    assert values_in("auth: [jwt, static]\nnamespaces:\n  - a\n  - b\njwt-audience: []\n") == {
        "auth": ("jwt", "static"),
        "namespaces": ("a", "b"),
        "jwt-audience": (),
    }


def test_every_value_keeps_its_line() -> None:
    given = parse("# comment\nauth: none\n\nworkers: 2\n").given

    assert [origin.line for _, origin in given.values()] == [2, 4]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_says_nothing(text: str) -> None:
    assert parse(text) == ConfigFile()


def test_an_unknown_key_gets_the_nearest_one() -> None:
    assert problems_in("auth: none\nacces-log: false\nhttp_bind: :80\nfrob: 1\n") == [
        "acces-log (file r.yaml, line 2): is no setting; did you mean access-log?",
        "http_bind (file r.yaml, line 3): is no setting; did you mean http-bind?",
        "frob (file r.yaml, line 4): is no setting; see docs/configuration.md for the keys",
    ]


def test_groups_are_not_part_of_the_file() -> None:
    assert problems_in("limits:\n  max-connections: 5\n") == [
        "limits (file r.yaml, line 1): is a group's name, not a key; write the keys of the group at the top level"
    ]


def test_the_token_itself_does_not_belong_in_the_file() -> None:
    (problem,) = problems_in("static-token: correct-horse\n")

    assert problem == (
        "static-token (file r.yaml, line 1): is a secret; set it by ROUTER_AUTH_TOKEN, or use static-token-file"
    )


def test_a_key_that_stands_twice_is_refused() -> None:
    assert problems_in("auth: jwt\nworkers: 1\nauth: none\n") == [
        "auth (file r.yaml, line 3): stands in line 1 already; remove one of the two"
    ]


@pytest.mark.parametrize("value", ["", "null", "~"])
def test_a_key_without_a_value_is_refused(value: str) -> None:
    assert problems_in(f"jwt-audience: {value}\n") == [
        "jwt-audience (file r.yaml, line 1): has no value; give one, or remove the line"
    ]


@pytest.mark.parametrize(
    ("value", "wrong"),
    [("{a: b}", "is a mapping"), ("[[a]]", "is a list in a list"), ("[{a: b}]", "is a mapping")],
)
def test_a_value_of_the_wrong_shape_is_refused(value: str, wrong: str) -> None:
    assert problems_in(f"auth: {value}\n") == [
        f"auth (file r.yaml, line 1): {wrong}; write one value or one list of values"
    ]


def test_a_tag_runs_nothing_and_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (problem,) = problems_in(f"origin: !!python/object/apply:os.system ['touch {mark}']\n")
    (scalar,) = problems_in("origin: !!python/name:os.system\n")

    assert "write the value without a tag" in problem
    assert "write the value without a tag" in scalar
    assert not mark.exists()


@pytest.mark.parametrize("text", ["- auth\n", "auth\n"])
def test_a_file_that_is_not_a_mapping_is_refused(text: str) -> None:
    assert problems_in(text) == [
        "the configuration (file r.yaml): is not a mapping; write one `key: value` on each line"
    ]
    assert not parse(text).readable


def test_broken_yaml_is_told_with_its_line() -> None:
    (problem,) = problems_in("auth: none\nhttp-bind: [::1]:8080\n")

    assert problem.startswith("the configuration (file r.yaml, line 2): is not YAML: ")
    assert problem.endswith("; mend the line; quote values that begin with [ { * & ! % @ or `")


def test_a_second_document_is_refused() -> None:
    assert not parse("auth: none\n---\nauth: jwt\n").readable


def test_control_characters_are_refused() -> None:
    (problem,) = problems_in("auth: \x00\n")

    assert "it has characters that YAML does not allow" in problem


def test_a_strange_key_is_printed_escaped_and_short() -> None:
    (problem,) = problems_in(f'"\\u001b[31m{"x" * 100}": 1\n')

    assert "\x1b" not in problem
    assert len(problem) < 160


def test_a_file_on_disk_is_read(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("\ufeffauth: none\n", "utf-8")

    assert read_config_file(path).given == {"auth": ("none", Origin(Source.FILE, str(path), 1))}


def test_a_file_that_can_not_be_read_is_a_problem_and_no_exception(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")

    (missing,) = read_config_file(tmp_path / "none.yaml").problems
    (directory,) = read_config_file(tmp_path).problems
    (not_text,) = read_config_file(binary).problems

    assert missing.wrong == "can't be read: No such file or directory"
    assert directory.wrong == "can't be read: Is a directory"
    assert not_text.wrong == "can't be read: it is not UTF-8 text"
