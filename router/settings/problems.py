"""What is wrong with a configuration, told so that its author can mend all of it at once."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Source(enum.Enum):
    """The kinds of places a value comes from, strongest first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one value came from. `name` is the flag, the variable or the path; `line` counts from 1, 0 = none."""

    source: Source
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        words = f"{self.source.value} {self.name}".rstrip()
        return f"{words}, line {self.line}" if self.line else words


DEFAULT = Origin(Source.DEFAULT)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend: `about` which setting, where it came from, what is `wrong`, what would be `right`."""

    about: str
    origin: Origin | None
    wrong: str
    right: str

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.about}{where}: {self.wrong}; {self.right}"


class SettingsError(Exception):
    """The configuration can't be used. Its text is one message that names every problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"the settings have {count}:{lines}")
