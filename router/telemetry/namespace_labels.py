"""NamespaceLabels: which namespaces have series of their own, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final

from router.telemetry.metric_labels import OTHER

MAX_NAMESPACES: Final = 10_000
FORGOTTEN_AFTER_S: Final = 900.0
"""How long a namespace keeps its series after it has left the table: long enough for the last numbers to be scraped."""


class NamespaceLabels:
    """Decides the label of a namespace that the table knows. Belongs to the loop's thread."""

    def __init__(
        self,
        *,
        wanted: Collection[str] | None = None,
        limit: int = MAX_NAMESPACES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wanted` are the only ones to be named, None names all; beyond `limit`, new ones share `other`."""
        self._wanted = None if wanted is None else frozenset(wanted)
        self._limit = limit
        self._clock = clock
        self._named: set[str] = set()
        self._missing_since: dict[str, float] = {}
        self._forgotten: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<NamespaceLabels named={len(self._named)} missing={len(self._missing_since)}>"

    @classmethod
    def of_setting(cls, words: Collection[str]) -> NamespaceLabels:
        """Returns what `metrics-namespaces` says: `all`, `none`, or a list."""
        if "all" in words:
            return cls()
        return cls(wanted=() if "none" in words else words)

    @property
    def named(self) -> frozenset[str]:
        """Those that have series of their own now."""
        return frozenset(self._named)

    @property
    def forgotten(self) -> list[str]:
        """Those whose series were dropped a short while ago: other workers' numbers of them are not to be shown either."""
        return list(self._forgotten)

    def label(self, namespace: str) -> str:
        """Returns the label: "" (the table doesn't know it) stays, one that isn't to be named is `other`."""
        if not namespace or namespace in self._named:
            return namespace
        if self._wanted is not None and namespace not in self._wanted:
            return OTHER
        if len(self._named) >= self._limit:
            return OTHER
        self._named.add(namespace)
        self._forgotten.pop(namespace, None)
        return namespace

    def forget_missing(self, known: Collection[str]) -> list[str]:
        """Returns the namespaces that have been missing in the table for long enough: from now on they have no series."""
        now = self._clock()
        since = self._missing_since
        for namespace in list(since):
            if namespace in known:
                del since[namespace]
        for namespace in self._named:
            if namespace not in known:
                since.setdefault(namespace, now)
        gone = [name for name, at in since.items() if now - at >= FORGOTTEN_AFTER_S]
        self._forgotten = {
            name: at for name, at in self._forgotten.items() if now - at < FORGOTTEN_AFTER_S
        }
        for namespace in gone:
            del since[namespace]
            self._named.discard(namespace)
            self._forgotten[namespace] = now
        return gone
