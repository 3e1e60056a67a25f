"""What was true when: the record that answers are judged by."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

Name = tuple[str, str]
"""Namespace and name."""


@dataclass
class ReadySpan:
    """From when to when a name led to a ready pod."""

    pod_uid: str
    since: float
    until: float = float("inf")


@dataclass
class History:
    """Remembers which pod belongs to which sandbox, and which sandbox was ready when."""

    owner_of: dict[str, Name] = field(default_factory=dict)
    spans: dict[Name, list[ReadySpan]] = field(default_factory=dict)
    aliases: dict[Name, Name] = field(default_factory=dict)

    def pod_made(self, pod_uid: str, name: Name) -> None:
        self.owner_of[pod_uid] = name

    def alias_made(self, alias: Name, name: Name) -> None:
        self.aliases[alias] = name

    def ready(self, name: Name, pod_uid: str) -> None:
        self.spans.setdefault(name, []).append(ReadySpan(pod_uid, time.monotonic()))

    def not_ready(self, name: Name) -> None:
        """Call it before the cluster hears of it."""
        for span in self.spans.get(name, ())[-1:]:
            span.until = min(span.until, time.monotonic())

    def own_name(self, asked: Name) -> Name:
        return self.aliases.get(asked, asked)

    def is_right(self, asked: Name, pod_uid: str) -> bool:
        """True when that pod was made for the sandbox that this name names."""
        return self.owner_of.get(pod_uid) == self.own_name(asked)

    def ready_throughout(self, asked: Name, began: float, ended: float, settled_s: float) -> bool:
        """True when the sandbox was ready, by one pod, from `settled_s` before the request until its end."""
        return any(
            span.since + settled_s <= began and ended < span.until
            for span in self.spans.get(self.own_name(asked), ())
        )
