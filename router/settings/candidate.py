"""Values on their way to become Settings: read one by one, not yet checked against each other."""

from __future__ import annotations

from typing import Any

from router.settings.problems import Origin, Problem, Source
from router.settings.table import TABLE
from router.settings.values import in_words


class UnreadableError(Exception):
    """A rule asked for a setting whose value is bad: that was named already, the rule has nothing to add."""


class Candidate:
    """What is known by key: the value and its origin, or that it can't be read."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self._unreadable: set[str] = set()

    def __repr__(self) -> str:
        return f"<Candidate known={len(self.values)} unreadable={sorted(self._unreadable)}>"

    def __getitem__(self, key: str) -> Any:
        """Returns the value, None when nothing was said and there is no default. Raises UnreadableError."""
        if key in self._unreadable:
            raise UnreadableError(key)
        return self.values[key] if key in self.values else _nothing(key)

    def accept(self, key: str, value: Any, origin: Origin) -> None:
        """Takes a value, over any weaker one."""
        self.values[key] = value
        self.origins[key] = origin
        self._unreadable.discard(key)

    def give_up(self, key: str) -> None:
        """Forgets the setting's value: the strongest one is bad."""
        self.values.pop(key, None)
        self.origins.pop(key, None)
        self._unreadable.add(key)

    def is_open(self, key: str) -> bool:
        """Returns True when nobody has said anything about the setting, good or bad."""
        return key not in self.values and key not in self._unreadable

    def is_said(self, key: str) -> bool:
        """Returns True when a flag, a variable or the file gave the value."""
        return key in self.origins and self.origins[key].source is not Source.DEFAULT

    def problem(self, key: str, wrong: str, right: str) -> Problem:
        """Returns what is wrong with this setting among the others, with its value unless it is secret."""
        if key not in self.values:
            return Problem(key, None, wrong, right)
        row = TABLE[key]
        text = "(hidden)" if row.secret else in_words(row.kind.show(self.values[key]))
        return Problem(f"{key} = {text}", self.origins[key], wrong, right)


def _nothing(key: str) -> None:
    if TABLE[key].default is not None:
        raise KeyError(key)
