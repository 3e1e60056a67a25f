"""The examples in the documents: what reads them in the product reads them here."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from router.auth.policy_file import parse_policy
from router.cli.commands import main
from router.discovery.sandboxes_file import parse_sandboxes
from router.errors import RouterError
from router.settings import load
from router.settings.table import FILE_KEYS
from tests.unit.test_documents import DOCUMENTS, ROOT, name

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(
    r"(?:^|[|(;] ?|\$ |=\S+ |bin/|exec )sandbox-router ((?:token )?[a-z-]+(?: [^|>&#)`\n]*)?)",
    re.MULTILINE,
)
POLICY_KEYS = frozenset({"rules", "revoked", "not-before", "limits"})
OTHERS = {
    "docs/gateway.md": {"additionalArguments"},
    "docs/install.md": {"dependencies"},
    "charts/router/README.md": {"dependencies"},
}
"""Keys of what other programs read, beside whole and partial objects of Kubernetes; tests/deploy judges many of those."""
EXPLAINED = "".join(
    path.read_text("utf-8")
    for room in ("admin", "auth")
    for path in sorted((ROOT / "router" / room).glob("*.py"))
)


class Block(NamedTuple):
    """A fenced example and where it is."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def _blocks() -> Iterator[Block]:
    for document in (*DOCUMENTS, ROOT / "charts" / "router" / "README.md"):
        text = document.read_text("utf-8")
        for found in FENCE.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield Block(name(document), line, found[2], found[3])


BLOCKS = list(_blocks())
YAML = [block for block in BLOCKS if block.language == "yaml"]


@pytest.mark.parametrize("block", YAML, ids=str)
def test_every_yaml_example_is_read_by_what_reads_it(block: Block, tmp_path: Path) -> None:
    keys = set(yaml.safe_load(block.text))
    if keys == {"sandboxes"}:
        assert parse_sandboxes(block.text.encode(), source=str(block), default_namespace="default")
    elif keys <= POLICY_KEYS:
        parse_policy(block.text.encode())
    elif keys <= set(FILE_KEYS):
        file = tmp_path / "router.yaml"
        file.write_text(_with_files(block.text, tmp_path))
        # What a part of a file leaves out: who may call, and where sandboxes live.
        left_out = {} if "auth" in keys else {"ROUTER_AUTH_TOKEN": "t" * 32}
        load(environment=left_out, file=file, in_cluster=True)
    else:
        others = {"apiVersion", "metadata"} | OTHERS.get(block.page, set())
        assert keys & others, f"{block}: nothing of ours reads {keys}"


def _with_files(text: str, folder: Path) -> str:
    """Returns the settings with every file that they name in `folder`, where there is one."""
    for path in re.findall(r"^\S+-file: (\S+)$", text, re.MULTILINE):
        made = folder / Path(path).name
        made.write_text("t" * 32)
        text = text.replace(f": {path}\n", f": {made}\n")
    return text


def test_each_kind_of_file_of_ours_has_an_example() -> None:
    keys = [set(yaml.safe_load(block.text)) for block in YAML]

    assert any(found == {"sandboxes"} for found in keys)
    assert any("rules" in found and found <= POLICY_KEYS for found in keys)
    assert any("auth" in found and found <= set(FILE_KEYS) for found in keys)


def _commands() -> Iterator[tuple[str, str]]:
    for block in BLOCKS:
        if block.language in ("", "console", "sh", "bash"):
            for found in COMMAND.finditer(block.text.replace("\\\n", " ")):
                yield f"{block}: {found[1].strip()}", found[1]
    for document in DOCUMENTS:
        text = FENCE.sub("", document.read_text("utf-8"))
        for span in re.findall(r"`([^`\n]+)`", text):
            found = COMMAND.fullmatch(span)
            if found:
                yield f"{name(document)}: {found[1].strip()}", found[1]


COMMANDS = dict(_commands())


@pytest.mark.parametrize("where", COMMANDS)
def test_every_command_is_one_that_the_command_line_takes(
    where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word for word in shlex.split(COMMANDS[where]) if word not in ("…", "...")]
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group):
        assert words, f"{where}: names no command"
        found = command.get_command(context, words[0])
        assert found is not None, f"{where}: there is no command {words[0]}"
        command, words = found, words[1:]
    if words == ["--help"]:
        return
    for file in re.findall(r"-file (\S+)", COMMANDS[where]):
        Path(file).touch()
    # A command that is only named has no arguments to be judged.
    if words:
        command.make_context(command.name, words).close()


def test_commands_are_found_in_the_pages() -> None:
    assert len(COMMANDS) >= 8
    assert any("token mint" in command for command in COMMANDS.values())


def _kinds(kind: type[RouterError] = RouterError) -> Iterator[type[RouterError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _kinds(child)


ERRORS = {kind.code: kind for kind in _kinds()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_error_that_is_shown_is_one_that_the_router_gives(document: Path) -> None:
    for shown in re.findall(r'\{"detail":[^{}]*\}', document.read_text("utf-8")):
        error = json.loads(shown)
        assert set(error) == {"detail", "code", "retryable"}
        assert error["retryable"] is ERRORS[error["code"]].retryable, shown


def test_every_part_of_an_explanation_that_is_shown_exists() -> None:
    [shown] = [block for block in BLOCKS if block.text.startswith("target ")]
    parts = [line.split()[0] for line in shown.text.splitlines()]
    keys = set(re.findall(r"(?:^|\s{2,})([a-z_]+)=", shown.text, re.MULTILINE))
    keys |= set(re.findall(r'"([a-z_]+)":', shown.text))

    assert parts == ["target", "principal", "endpoint", "decision", "outcome"]
    assert {key for key in (*parts, *keys) if f'"{key}"' not in EXPLAINED} == set()
