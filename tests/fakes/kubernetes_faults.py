"""Faults: what goes wrong in the fake API server, on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(slots=True)
class Refusal:
    """An HTTP status in place of an answer."""

    status: int
    reason: str = ""
    message: str = "a fault on demand"
    resource: str | None = None
    namespace: str | None = None
    verb: str | None = None
    """`list`, `watch`, `get`, `create`…; None = any."""
    times: int | None = None
    """How often; None = until taken back."""
    retry_after_s: int | None = None
    plain_text: bool = False
    """Answer as a proxy in between would: not with a Status object."""
    hits: int = 0

    def applies(self, verb: str, resource: str, namespace: str | None) -> bool:
        return (
            (self.times is None or self.hits < self.times)
            and self.resource in (None, resource)
            and self.namespace in (None, namespace)
            and self.verb in (None, verb)
        )


@dataclass(eq=False, slots=True)
class OpenWatch:
    """One watch that is being served."""

    resource: str
    namespace: str | None
    request: web.Request
    truncate: bool = False
    """End in the middle of the next event."""
    is_stalled: bool = False
    """Send nothing any more, yet keep the connection: as if the peer's host were gone."""
    expire: bool = False
    """End with an ERROR event of code 410."""
    raw: bytes = b""
    """Bytes to send as they are."""


@dataclass(slots=True)
class Faults:
    """Switches that tests set; the server looks at them."""

    refusals: list[Refusal] = field(default_factory=list)
    watches: list[OpenWatch] = field(default_factory=list)
    expires_by_status: bool = False
    """A watch from too old a version is refused with HTTP 410, not with an ERROR event."""
    lists_stall: bool = False
    """Lists begin an answer and never end it."""
    future_is_silent: bool = False
    """A watch from a version that the store doesn't know yet is served, silently: as the real server does after a restore."""
    streams_unmarked: bool = False
    """The wish for a list at the beginning of a watch is ignored, as before 1.27: objects come, and no mark of the list's end."""
    cut_streams: int = 0
    """So many of the next streamed lists end after their first object."""
    streams_fail: bool = False
    """Streamed lists are answered, with an ERROR event of code 500: as by an API server whose etcd can't tell of progress."""
    watches_stall: bool = False
    """New watches send headers and nothing else."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def refusal_for(self, verb: str, resource: str, namespace: str | None) -> Refusal | None:
        for refusal in self.refusals:
            if refusal.applies(verb, resource, namespace):
                refusal.hits += 1
                return refusal
        return None

    @contextmanager
    def refusing(self, status: int, **which: Any) -> Iterator[Refusal]:
        """Refuses matching requests while the block runs."""
        refusal = Refusal(status, **which)
        self.refusals.append(refusal)
        try:
            yield refusal
        finally:
            self.refusals.remove(refusal)

    def open(self, resource: str | None = None) -> list[OpenWatch]:
        return [watch for watch in self.watches if resource in (None, watch.resource)]

    def cut(self, resource: str | None = None) -> int:
        """Resets the connections of open watches. Returns how many."""
        found = self.open(resource)
        for watch in found:
            if watch.request.transport is not None:
                watch.request.transport.abort()
        return len(found)
