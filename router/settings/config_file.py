"""Reads a configuration file: YAML whose scalars are taken as they were written.

The file is only composed into nodes, never constructed into objects: no tag can run anything, `off` stays `off`, and
every value keeps its line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml

from router.settings.problems import Origin, Problem, Source
from router.settings.table import FILE_KEYS, GROUPS, STATIC_TOKEN_VARIABLE, TABLE
from router.settings.values import Raw, nearest

YAML = "tag:yaml.org,2002:"
NULL = f"{YAML}null"
PLAIN_TAGS = frozenset(YAML + name for name in ("str", "int", "float", "bool", "timestamp", "seq"))


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What one file says, and what is wrong with it. `readable` is False when nothing in it could be read."""

    given: dict[str, tuple[Raw, Origin]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    readable: bool = True


def read_config_file(path: Path) -> ConfigFile:
    """Returns the file's settings. Never raises for a bad file: the problems are in the result."""
    origin = Origin(Source.FILE, str(path))
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return _unreadable(origin, f"can't be read: {reason}", "name a readable YAML file")
    return parse_config(text, origin)


def parse_config(text: str, origin: Origin) -> ConfigFile:
    """Returns the settings in `text`, which came from `origin`."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = Origin(origin.source, origin.name, mark.line + 1) if mark else origin
        reason = getattr(error, "problem", None) or "it has characters that YAML does not allow"
        return _unreadable(
            where,
            f"is not YAML: {reason}",
            "mend the line; quote values that begin with [ { * & ! % @ or `",
        )
    if root is None or root.tag == NULL:
        return ConfigFile()
    if not isinstance(root, yaml.MappingNode):
        return _unreadable(origin, "is not a mapping", "write one `key: value` on each line")
    found = ConfigFile()
    seen: dict[str, int] = {}
    for key_node, value_node in root.value:
        where = Origin(origin.source, origin.name, key_node.start_mark.line + 1)
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a key"
        if key in seen:
            found.problems.append(
                Problem(key, where, f"stands in line {seen[key]} already", "remove one of the two")
            )
            continue
        seen[key] = where.line
        _take(key, value_node, where, found)
    return found


def _unreadable(origin: Origin, wrong: str, right: str) -> ConfigFile:
    return ConfigFile(problems=[Problem("the configuration", origin, wrong, right)], readable=False)


def _take(key: str, node: yaml.Node, where: Origin, found: ConfigFile) -> None:
    """Puts one entry among the settings or among the problems."""
    if key not in FILE_KEYS:
        found.problems.append(Problem(shown_key(key), where, *_unknown(key)))
        return
    raw = _raw(node)
    if isinstance(raw, _Wrong):
        found.problems.append(Problem(key, where, raw.wrong, raw.right))
    else:
        found.given[key] = (raw, where)


def shown_key(key: str) -> str:
    """Returns a key from outside as a message may print it."""
    return key if key.isprintable() and 0 < len(key) <= 60 else repr(key[:60])


def _unknown(key: str) -> tuple[str, str]:
    if key in GROUPS:
        return "is a group's name, not a key", "write the keys of the group at the top level"
    if key in TABLE:
        return "is a secret", f"set it by {STATIC_TOKEN_VARIABLE}, or use static-token-file"
    near = nearest(key, FILE_KEYS)
    if near is None:
        return "is no setting", "see docs/configuration.md for the keys"
    return "is no setting", f"did you mean {near}?"


@dataclass(frozen=True, slots=True)
class _Wrong:
    wrong: str
    right: str


def _raw(node: yaml.Node) -> Raw | _Wrong:
    """Returns a scalar's text or a list's texts."""
    if not isinstance(node, yaml.SequenceNode) or node.tag not in PLAIN_TAGS:
        return _scalar(node)
    items = [_scalar(item) for item in node.value]
    wrong = next((item for item in items if isinstance(item, _Wrong)), None)
    return wrong or tuple(item for item in items if isinstance(item, str))


def _scalar(node: yaml.Node) -> str | _Wrong:
    if node.tag == NULL:
        return _Wrong("has no value", "give one, or remove the line")
    if isinstance(node, yaml.MappingNode):
        return _Wrong("is a mapping", "write one value or one list of values")
    if node.tag not in PLAIN_TAGS:
        return _Wrong(f"has the tag {node.tag!r}", "write the value without a tag")
    if not isinstance(node, yaml.ScalarNode):
        return _Wrong("is a list in a list", "write one value or one list of values")
    return str(node.value)
