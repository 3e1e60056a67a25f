"""Reflector: keeps a store equal to one resource of the API server, by list and watch, for ever."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import orjson

from router.discovery.backoff import Backoff
from router.discovery.objects import section, text
from router.discovery.watch_lines import BrokenWatchError, LineSplitter
from router.kube.api_client import ApiError, JsonObject, KubernetesApi

logger = logging.getLogger("sandbox_router.discovery")

LONGEST_REST_S = 0.05
EVENTS_AT_ONCE = 32
"""After so many, about 2 ms, a burst lets the requests go on."""

Record = TypeVar("Record")
Taken = TypeVar("Taken", contravariant=True)


class List(Protocol[Taken]):
    """Where the objects of one complete list go; nothing takes effect before commit()."""

    def add(self, record: Taken) -> None:
        """Takes one object."""

    def commit(self) -> None:
        """Puts the list in place of all that was known."""

    def __len__(self) -> int:
        """Returns how many objects were added."""
        ...


class Store(Protocol[Taken]):
    """What a Reflector fills. Calls come in the order of the server's events and never overlap."""

    def begin_list(self) -> List[Taken]:
        """Returns where a new list goes. One that is never committed is dropped."""
        ...

    def upsert(self, record: Taken) -> None:
        """Takes an added or modified object."""

    def remove(self, record: Taken) -> None:
        """Takes a deleted object, as it was last."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient a Reflector is; durations in seconds."""

    page_size: int = 100
    """Objects a page: decoding one blocks the loop for about 5 ms; ten times as many leave 10 MB of holes in the heap."""
    read_timeout_s: float = 60.0
    """Longest silence within a list."""
    watch_timeout_s: float = 120.0
    """After this, a third more or less, the server ends a watch. Bookmarks only come when something anywhere has changed, with
    older etcds every ten minutes: so the end of a quiet watch is what tells that it was alive."""
    silence_limit_s: float = 180.0
    """Longest silence of a watch: longer than its timeout, so only a half-open connection reaches it."""
    first_retry_s: float = 0.25
    retry_limit_s: float = 30.0
    short_watch_s: float = 1.0
    """A watch that ends sooner and brought nothing counts as failed."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What to watch: the plural's name, the API prefixes that may serve it in order of preference, and a label selector."""

    name: str
    prefixes: tuple[str, ...]
    label_selector: str = ""


class Phase(enum.Enum):
    """What a Reflector is doing."""

    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting"


class Reflector(Generic[Record]):
    """Runs one list-and-watch and tells how it is going.

    `parse` trims an object to its record and raises ValueError for one that can't be read; `on_list` is called after each
    complete list and each refusal (403, 404); `restarts` counts by resource and reason. While a new list is under way the
    store keeps what it has.
    """

    def __init__(
        self,
        *,
        api: KubernetesApi,
        resource: Resource,
        namespace: str | None,
        parse: Callable[[JsonObject], Record],
        store: Store[Record],
        pace: Pace,
        on_list: Callable[[], None],
        restarts: Counter[tuple[str, str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.phase = Phase.LISTING
        self.is_complete = False
        """At least one complete list is in."""
        self.refusal: ApiError | None = None
        """The last answer if it was 403 or 404: not allowed, or not served."""
        self.problem = ""
        """Why it is not watching, for people; "" while all is well."""
        self.last_heard_at: float | None = None
        """Clock time of the last sign that the store is up to date."""
        self.lists = 0
        self.watches = 0
        self.events = 0
        self.records = 0
        """Objects read so far, from lists and events."""
        self._api = api
        self._parse = parse
        self._store = store
        self._pace = pace
        self._on_list = on_list
        self._restarts = restarts
        self._clock = clock
        self._prefix = resource.prefixes[0]
        self._resource_version = ""
        self._backoff = Backoff(initial_s=pace.first_retry_s, limit_s=pace.retry_limit_s)
        self._page_size = pace.page_size

    def __repr__(self) -> str:
        return (
            f"<Reflector {self} {self.phase.value} complete={self.is_complete} "
            f"version={self._resource_version!r} problem={self.problem!r}>"
        )

    def __str__(self) -> str:
        where = "all namespaces" if self.namespace is None else f"namespace {self.namespace}"
        return f"{self.resource.name} in {where}"

    async def run(self) -> None:
        """Lists and watches until cancelled. Never returns, never raises."""
        while True:
            try:
                if not self._resource_version:
                    await self._list()
                await self._watch()
                self._count("ended")
                self._backoff.reset()
                continue
            except ApiError as error:
                delay_s = self._after(error)
            except BrokenWatchError as error:
                self._resource_version = ""
                delay_s = self._after(ApiError(0, str(error)), "bad_event")
            except Exception as error:  # the loop's boundary: one bad object must not end discovery
                logger.exception("watch failed", extra={"fields": self._fields()})
                self._resource_version = ""
                delay_s = self._after(ApiError(0, f"{type(error).__name__}: {error}"), "bad_event")
            self.phase = Phase.WAITING
            await asyncio.sleep(delay_s)

    # --- list -------------------------------------------------------------------------------

    async def _list(self) -> None:
        """Fills the store from a consistent list and notes its version, from which the watch goes on."""
        self.phase = Phase.LISTING
        self.lists += 1
        listing = self._store.begin_list()
        metadata = await self._first_page(listing)
        while text(metadata, "continue"):
            metadata = await self._page(self._prefix, listing, text(metadata, "continue"))
        if not text(metadata, "resourceVersion"):
            raise ApiError(0, "the list has no resourceVersion")
        listed = len(listing)
        listing.commit()
        self._resource_version = text(metadata, "resourceVersion")
        self._page_size = self._pace.page_size
        self.is_complete = True
        self.refusal = None
        self._heard()
        logger.info("listed", extra={"fields": {**self._fields(), "objects": listed}})
        self._on_list()

    async def _first_page(self, listing: List[Record]) -> JsonObject:
        """Asks each API version that may serve the resource, the last good one first. Returns the page's metadata."""
        others = [prefix for prefix in self.resource.prefixes if prefix != self._prefix]
        for prefix in (self._prefix, *others):
            try:
                metadata = await self._page(prefix, listing, "")
            except ApiError as error:
                if error.status != 404:
                    raise
                not_served = error
            else:
                self._prefix = prefix
                return metadata
        raise not_served

    async def _page(self, prefix: str, listing: List[Record], continue_token: str) -> JsonObject:
        """Adds one page to `listing` and returns its metadata.

        Without a resourceVersion, which means the newest state: never an older one than was seen before.
        """
        params = self._params()
        params["limit"] = str(self._page_size)
        if continue_token:
            params["continue"] = continue_token
        try:
            page = await self._api.get_json(
                self._path(prefix), params, read_timeout_s=self._pace.read_timeout_s
            )
        except ApiError as error:
            if error.is_expired:
                # The list took longer than the server keeps history: fewer, larger pages.
                self._page_size *= 4
            raise
        began_at = self._clock()
        for record in self._parsed(page.get("items") or ()):
            listing.add(record)
            self.records += 1
        if self.is_complete:
            # Requests are being served meanwhile: rest as long as the page took, decoding (about as much again) included.
            await asyncio.sleep(min(LONGEST_REST_S, 2 * (self._clock() - began_at)))
        return section(page, "metadata")

    def _parsed(self, items: Iterable[JsonObject]) -> Iterator[Record]:
        for item in items:
            try:
                yield self._parse(item)
            except ValueError as error:
                self._skip(error)

    # --- watch ------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Follows the events from the noted version until the server ends the watch. Raises ApiError."""
        pace = self._pace
        params = self._params()
        params |= {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._resource_version,
            "timeoutSeconds": str(max(1, round(pace.watch_timeout_s * random.uniform(0.67, 1.33)))),  # noqa: S311
        }
        self.watches += 1
        started_at = self._clock()
        before = self.events
        lines = LineSplitter()
        async with self._api.stream(
            "GET", self._path(self._prefix), params, read_timeout_s=pace.silence_limit_s
        ) as response:
            self.phase = Phase.WATCHING
            self._heard()
            async for piece in response.content.iter_any():
                for number, line in enumerate(lines.feed(piece), start=1):
                    self._take(line)
                    if number % EVENTS_AT_ONCE == 0:
                        await asyncio.sleep(0)
                self._heard()
        if lines.pending_bytes:
            raise ApiError(0, "the watch was cut in the middle of an event")
        if self.events == before and self._clock() - started_at < pace.short_watch_s:
            raise ApiError(0, "the watch ended at once")

    def _take(self, line: bytes) -> None:
        """Applies one event. Raises ApiError for an ERROR event, BrokenWatchError for what is no event."""
        try:
            event = orjson.loads(line)
            kind, item = event["type"], event["object"]
            if kind == "ERROR":
                raise ApiError.of_status(0, item)
            new_version = text(section(item, "metadata"), "resourceVersion")
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise BrokenWatchError(f"the watch sent something that is no event: {error}") from error
        if kind != "BOOKMARK":
            self._apply(kind, item)
        self.events += 1
        self._resource_version = new_version or self._resource_version
        self._backoff.reset()

    def _apply(self, kind: str, item: JsonObject) -> None:
        try:
            record = self._parse(item)
        except ValueError as error:
            self._skip(error)
            return
        self.records += 1
        if kind == "DELETED":
            self._store.remove(record)
        elif kind in ("ADDED", "MODIFIED"):
            self._store.upsert(record)

    # --- what went wrong --------------------------------------------------------------------

    def _after(self, error: ApiError, kind: str = "") -> float:
        """Decides what follows a failure. Returns the seconds to wait before it."""
        self._count(kind or error.kind)
        if (
            error.is_expired
            or error.status == 404
            or (error.status and self._backoff.failures >= 5)
        ):
            # Also when the server answers, but to this version never well. While it can't be reached at all, the version
            # is kept: so a restart of the server is not followed by everybody's lists.
            self._resource_version = ""
        if error.status in (403, 404):
            self.refusal = error
            self._on_list()
        delay_s = self._backoff.next_s(at_least_s=error.retry_after_s)
        is_told = self.problem == str(error)
        self.problem = str(error)
        logger.log(
            logging.DEBUG if is_told else logging.INFO if error.is_expired else logging.WARNING,
            "watch interrupted",
            extra={
                "fields": {
                    **self._fields(),
                    "status": error.status,
                    "reason": error.message,
                    "retry_in_s": round(delay_s, 3),
                }
            },
        )
        return delay_s

    def _skip(self, error: ValueError) -> None:
        logger.warning("object skipped", extra={"fields": {**self._fields(), "reason": str(error)}})

    def _count(self, reason: str) -> None:
        self._restarts[self.resource.name, reason] += 1

    def _heard(self) -> None:
        self.last_heard_at = self._clock()
        self.problem = ""

    # --- requests ---------------------------------------------------------------------------

    def _path(self, prefix: str) -> str:
        scope = "" if self.namespace is None else f"/namespaces/{self.namespace}"
        return f"{prefix}{scope}/{self.resource.name}"

    def _params(self) -> dict[str, str]:
        selector = self.resource.label_selector
        return {"labelSelector": selector} if selector else {}

    def _fields(self) -> dict[str, object]:
        return {"resource": self.resource.name, "namespace": self.namespace or "*"}
