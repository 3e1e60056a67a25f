"""The policy file: YAML text to a Policy, with the line of everything that is wrong in it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path as FilePath

import yaml

from router.auth.grants import GrantError, Path, each_grant, shown, spell, unknown_key
from router.auth.policy import (
    KINDS,
    MATCHED_MODES,
    CurrentPolicy,
    NotBefore,
    Policy,
    PrincipalMatch,
    Rule,
    kind_of,
)
from router.settings.values import nearest
from router.watched_file import WatchedFiles

_MATCH_KEYS = ("subject", "group", "issuer", "identity", "mode", "kind")
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DIGITS = re.compile(r"[0-9]{1,6}", re.ASCII)
_NULL = "tag:yaml.org,2002:null"
_BOOL = "tag:yaml.org,2002:bool"
_TAGS = {
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "timestamp", "seq", "map")
}
_MAX_ERRORS = 20


def watch_policy(
    current: CurrentPolicy, path: FilePath, *, poll_interval_s: float = 1.0
) -> WatchedFiles[Policy]:
    """Returns the watcher that keeps `current` at the file's content."""
    return WatchedFiles(
        (path,),
        parse=lambda contents: parse_policy(contents[0]),
        apply=current.replace,
        poll_interval_s=poll_interval_s,
    )


def parse_policy(content: bytes) -> Policy:
    """Returns the policy that `content` spells. Raises ValueError that names every fault (up to twenty) with its line."""
    reader = _Reader(_Document(content))
    policy = reader.policy()
    if reader.errors:
        shown = reader.errors[:_MAX_ERRORS]
        more = len(reader.errors) - len(shown)
        raise ValueError("; ".join(shown) + (f"; and {more} more" if more else ""))
    return policy


class _Document:
    """A YAML document as plain values, with the line of each.

    Scalars stay as they are written (an id of digits is text, `no` is a name) except where a number is meant, in `ports`, or yes or no, in `wake`.
    """

    def __init__(self, content: bytes) -> None:
        """Raises ValueError with the line for text that isn't YAML, repeats a key, or uses tags or aliases."""
        self._lines: dict[Path, int] = {}
        self._seen: set[int] = set()
        try:
            root = yaml.compose(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            if root is None:
                raise ValueError("the file is empty; for no rules write `rules: []`")
            self.value = self._plain(root, ())
        except yaml.YAMLError as error:
            raise ValueError(_spell_yaml_error(error)) from error
        except RecursionError:
            raise ValueError("is nested too deeply") from None

    def line(self, path: Path) -> int:
        """Returns the line (from 1) of what stands at `path`, or of the nearest thing around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def _plain(self, node: yaml.Node, path: Path) -> object:
        line = node.start_mark.line + 1
        if id(node) in self._seen:
            raise ValueError(f"line {line}: YAML aliases are not supported here")
        self._seen.add(id(node))
        self._lines.setdefault(path, line)
        if node.tag not in _TAGS:
            raise ValueError(f"line {line}: YAML tags are not supported here")
        if isinstance(node, yaml.MappingNode):
            return {
                self._key(key, path): self._value(key, child, path) for key, child in node.value
            }
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(child, (*path, number)) for number, child in enumerate(node.value)]
        if node.tag == _NULL:
            return None
        text = str(node.value)
        if path[-2:-1] == ("ports",) and _DIGITS.fullmatch(text):
            return int(text)
        if path[-1:] == ("wake",) and node.tag == _BOOL and text in ("true", "false"):
            return text == "true"
        return text

    def _key(self, key: yaml.Node, path: Path) -> str:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ValueError(f"line {line}: keys must be plain words")
        below = (*path, str(key.value))
        if below in self._lines:
            raise ValueError(f"line {line}: `{key.value}` is given twice")
        self._lines[below] = line
        return str(key.value)

    def _value(self, key: yaml.Node, child: yaml.Node, path: Path) -> object:
        return self._plain(child, (*path, str(key.value)))


def _spell_yaml_error(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "is not valid YAML"
    return f"line {mark.line + 1}: {problem}" if mark is not None else f"{problem}"


def _contradictions(words: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yields (key, what is wrong with it) for keys that no caller can have together."""
    if "identity" in words and "subject" in words:
        yield (
            "identity",
            "can't stand beside `subject`: a token has a subject, a certificate an identity",
        )
    if "identity" in words and words.get("mode", "mtls") != "mtls":
        yield "identity", f"can't stand beside `mode: {words['mode']}`: only a certificate has one"
    if "kind" in words and "identity" not in words:
        yield "kind", "needs `identity` beside it, and says which of a certificate's names that is"
    if words.get("mode") == "mtls":
        for key in ("subject", "group", "issuer"):
            if key in words:
                yield key, "can't stand beside `mode: mtls`: a certificate has an `identity` alone"


class _Reader:
    """Turns the plain values into a Policy and collects what is wrong."""

    def __init__(self, document: _Document) -> None:
        self._document = document
        self.errors: list[str] = []

    def policy(self) -> Policy:
        root = self._mapping(self._document.value, (), ("rules", "revoked", "not-before"))
        return Policy(
            rules=self._rules(root.get("rules", [])),
            revoked=self._revoked(root.get("revoked", [])),
            not_before=self._not_before(root.get("not-before", [])),
        )

    def _rules(self, value: object) -> tuple[Rule, ...]:
        rules = []
        for position, entry in enumerate(self._list(value, ("rules",))):
            at: Path = ("rules", position)
            rule = self._mapping(entry, at, ("principal", "sandboxes"), required=True)
            if "principal" not in rule or "sandboxes" not in rule:
                continue
            match = self._match((*at, "principal"), rule["principal"])
            grants = tuple(
                each_grant(rule["sandboxes"], at=(*at, "sandboxes"), on_error=self._grant_error)
            )
            rules.append(Rule(match, grants, position + 1, self._document.line(at)))
        return tuple(rules)

    def _match(self, at: Path, value: object) -> PrincipalMatch:
        keys = self._mapping(value, at, _MATCH_KEYS)
        words = {key: self._word((*at, key), keys[key]) for key in _MATCH_KEYS if key in keys}
        if not words and isinstance(value, dict):
            self._error(at, f"must name at least one of {', '.join(_MATCH_KEYS)}")
        self._among(at, "mode", words, MATCHED_MODES)
        self._among(at, "kind", words, KINDS)
        for key, wrong in _contradictions(words):
            self._error((*at, key), wrong)
        identity = words.get("identity", "")
        if identity:
            words.setdefault("kind", kind_of(identity))
        if words.get("kind") == "dns":
            words["identity"] = identity.lower()
        return PrincipalMatch(**words)

    def _among(self, at: Path, key: str, words: dict[str, str], known: tuple[str, ...]) -> None:
        if words.get(key) and words[key] not in known:
            near = nearest(words[key], known)
            hint = f" (did you mean `{near}`?)" if near else ""
            self._error(
                (*at, key), f"must be one of {', '.join(known)}, not {shown(words[key])}{hint}"
            )

    def _revoked(self, value: object) -> frozenset[str]:
        entries = enumerate(self._list(value, ("revoked",)))
        return frozenset(self._word(("revoked", position), entry) for position, entry in entries)

    def _not_before(self, value: object) -> tuple[NotBefore, ...]:
        found = []
        for position, entry in enumerate(self._list(value, ("not-before",))):
            at: Path = ("not-before", position)
            keys = self._mapping(entry, at, ("issuer", "subject", "time"))
            if "issuer" not in keys and "subject" not in keys:
                self._error(at, "must name an issuer or a subject")
            if "time" not in keys:
                self._error(at, "`time` is missing")
                continue
            found.append(
                NotBefore(
                    issuer=self._optional_word(at, keys, "issuer"),
                    subject=self._optional_word(at, keys, "subject"),
                    time=self._time((*at, "time"), keys["time"]),
                )
            )
        return tuple(found)

    def _time(self, at: Path, value: object) -> float:
        if isinstance(value, str) and _RFC3339.fullmatch(value):
            try:
                return datetime.datetime.fromisoformat(value.upper()).timestamp()
            except (ValueError, OverflowError):
                pass
        self._wrong(at, "must be a time with its zone, like 2026-12-01T00:00:00Z", value)
        return 0.0

    def _optional_word(self, at: Path, keys: dict[str, object], key: str) -> str:
        return self._word((*at, key), keys[key]) if key in keys else ""

    def _word(self, at: Path, value: object) -> str:
        if isinstance(value, str) and value:
            return value
        self._wrong(at, "must be a text that is not empty", value)
        return ""

    def _list(self, value: object, at: Path) -> list[object]:
        if isinstance(value, list):
            return value
        self._wrong(at, "must be a list", value)
        return []

    def _mapping(
        self, value: object, at: Path, keys: tuple[str, ...], *, required: bool = False
    ) -> dict[str, object]:
        if not isinstance(value, dict):
            self._wrong(at, f"must be a mapping with {', '.join(keys)}", value)
            return {}
        for key in value:
            if key not in keys:
                self._error((*at, str(key)), unknown_key(key, keys), around=at)
        if required:
            for key in keys:
                if key not in value:
                    self._error(at, f"`{key}` is missing")
        return value

    def _grant_error(self, error: GrantError) -> None:
        at = (*error.path, error.key) if error.key else error.path
        self._error(at, error.detail, around=error.path)

    def _wrong(self, at: Path, message: str, value: object) -> None:
        self._error(at, f"{message}, not {shown(value)}")

    def _error(self, at: Path, message: str, *, around: Path | None = None) -> None:
        """Notes a fault at the line of `at`; `around` is what the message is about, where that is something wider."""
        about = at if around is None else around
        where = f"{spell(about)} " if about else "the document "
        self.errors.append(f"line {self._document.line(at)}: {where}{message}")
