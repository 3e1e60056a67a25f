"""Reflector: keeps a store equal to one resource of the API server, by list and watch, for ever."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from router.discovery.history import went_back
from router.discovery.list_way import ListWay
from router.discovery.objects import section, version
from router.discovery.pace import Pace
from router.discovery.paged_list import PagedList
from router.discovery.recovery import Recovery
from router.discovery.resources import Resource
from router.discovery.retries import Retries
from router.discovery.streamed_list import List, Store, StreamedList, apply_event
from router.discovery.turns import Turns
from router.discovery.watch_events import read_event
from router.discovery.watch_lines import BrokenWatchError, LineSplitter
from router.kube.api_client import ApiError, JsonObject, KubernetesApi

logger = logging.getLogger("sandbox_router.discovery")

REST_SHARE = 0.67
"""While requests are served, a list rests for so long a part of the time that it works."""

Record = TypeVar("Record")


class Phase(enum.Enum):
    """What a Reflector is doing."""

    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting"


class Reflector(Generic[Record]):
    """Runs one list-and-watch and tells how it is going.

    `parse` trims an object to its record and raises ValueError for one that can't be read; `on_list` is called after each
    complete list and each refusal (403, 404); `restarts` counts by resource and reason. Where the server can, a list is the
    beginning of the watch; else it comes in pages. While a new list is under way the store keeps what it has.
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
        recovery: Recovery,
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
        self.behind_since: float | None = None
        """Clock time at which a watch ended that has not been resumed yet."""
        self.newest_version = 0
        """The highest version that list and watch have brought, as a number; 0 when versions are none."""
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
        self._recovery = recovery
        self._clock = clock
        self._prefix = resource.prefixes[0]
        self._resource_version = ""
        self._retries = Retries(pace=pace)
        self._pages = PagedList(api=api, pace=pace)
        self._way = ListWay()
        self._is_away = False
        self._watching_since: float | None = None
        self._patience: asyncio.Timeout | None = None
        self._doubt = ""
        """Why the watch under way must end: the server's history is another."""

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
            self._watching_since = None
            try:
                await self._list_or_watch()
            except ApiError as error:
                await self._after(error)
            except BrokenWatchError as error:
                await self._after(ApiError(0, str(error)), is_garbage=True)
            except Exception as error:  # the loop's boundary: one bad object must not end discovery
                logger.exception("watch failed", extra={"fields": self._fields()})
                reason = f"{type(error).__name__}: {error}"
                await self._after(ApiError(0, reason), is_garbage=True)

    def is_behind(self, within_s: float) -> bool:
        """Returns True while a watch that was interrupted within the last `within_s` seconds, or a new list, is on its way."""
        if self.behind_since is None:
            return False
        return self.phase is Phase.LISTING or self._clock() - self.behind_since < within_s

    async def current_version(self) -> int:
        """Asks the server for its newest version, 0 when that is no number. Raises ApiError."""
        page = await self._api.get_json(
            self._path(self._prefix), {"limit": "1"}, read_timeout_s=self._pace.opening_timeout_s
        )
        return version(section(page, "metadata"))

    def distrust(self, reason: str) -> None:
        """Has a new list come next: what was watched is no longer the server's history. Ends the watch under way, if any."""
        self._resource_version = ""
        if self._patience is not None and self.phase is Phase.WATCHING:
            self._doubt = reason
            self._patience.reschedule(asyncio.get_running_loop().time())

    # --- list -------------------------------------------------------------------------------

    async def _list_or_watch(self) -> None:
        """Takes the next step: a list in pages; or a watch, which may bring the list itself, until the server ends it."""
        if self._resource_version:
            await self._follow(self._prefix, {"resourceVersion": self._resource_version}, None)
        elif self._way.is_stream:
            await self._list(self._stream)
        else:
            await self._list(self._page_through)

    async def _list(self, way: Callable[[str], Awaitable[None]]) -> None:
        """Lists from each API version that may serve the resource, the last good one first."""
        self.phase = Phase.LISTING
        others = [prefix for prefix in self.resource.prefixes if prefix != self._prefix]
        for prefix in (self._prefix, *others):
            try:
                return await way(prefix)
            except ApiError as error:
                if error.status != 404 or self._resource_version:
                    raise
                not_served = error
        raise not_served

    async def _stream(self, prefix: str) -> None:
        """Has the watch begin with the list (KEP-3157), of the newest state: never an older one than was seen before."""
        initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        try:
            await self._follow(prefix, initial, StreamedList(self._store))
        except ApiError as error:
            if self._resource_version or not self._way.is_refused(error):
                raise
            fields = {"status": error.status, "reason": error.message}
            logger.info("list comes in pages", extra={"fields": {**self._fields(), **fields}})

    async def _page_through(self, prefix: str) -> None:
        listing = self._store.begin_list()

        def take(item: JsonObject) -> None:
            record = self._read(item)
            if record is not None:
                listing.add(record)

        at = await self._pages.read(
            self._path(prefix),
            self._params(),
            take=take,
            on_answer=self._answered,
            # Three times: decoding a page, which it doesn't see, takes twice as long as reading it.
            rest_share=3 * REST_SHARE if self.is_complete else 0.0,
        )
        self._commit(listing, at, prefix)

    def _commit(self, listing: List[Record] | StreamedList[Record], at: str, prefix: str) -> None:
        """Makes a complete list the store's content and notes its version, from which the watch goes on."""
        if not at:
            raise ApiError(0, "the list has no resourceVersion")
        listed = len(listing)
        listing.commit()
        self._resource_version = at
        self.newest_version = version({"resourceVersion": at})
        self._prefix = prefix
        self._way.is_complete()
        self.lists += 1
        self.is_complete = True
        self.refusal = None
        self._heard()
        logger.info("listed", extra={"fields": {**self._fields(), "objects": listed}})
        self._on_list()

    # --- watch ------------------------------------------------------------------------------

    async def _follow(
        self, prefix: str, start: dict[str, str], listing: StreamedList[Record] | None
    ) -> None:
        """Follows the events from `start`, the list first where one is wanted, until the server ends it. Raises ApiError."""
        pace = self._pace
        timeout_s = max(1, round(pace.watch_timeout_s * random.uniform(0.67, 1.33)))  # noqa: S311
        params = self._params() | {"watch": "true", "allowWatchBookmarks": "true"} | start
        params["timeoutSeconds"] = str(timeout_s)
        changes, is_answered, self._doubt = 0, False, ""
        lines, turns = LineSplitter(), Turns()
        try:
            async with (
                asyncio.timeout(pace.opening_timeout_s) as self._patience,
                self._api.stream(
                    "GET", self._path(prefix), params, read_timeout_s=pace.silence_limit_s
                ) as response,
            ):
                is_answered = True
                self._begins(is_list=listing is not None)
                async for piece in response.content.iter_any():
                    turns.begin()
                    for line in lines.feed(piece):
                        if listing is None:
                            changes += self._take(line)
                        elif self._take_listed(line, listing, prefix):
                            listing = None
                        if turns.is_over:
                            is_list = listing is not None and self.is_complete
                            await turns.rest(REST_SHARE if is_list else 0.0)
                    turns.end()
                    self._opened(is_list=listing is not None)
        except TimeoutError as error:
            raise self._out_of_patience(is_answered) from error
        finally:
            self._patience = None
            self._note_end()
        if lines.pending_bytes:
            raise ApiError(0, "the watch was cut in the middle of an event")
        if listing is not None:
            raise ApiError(0, "the watch ended before the list that it began with was complete")
        if not changes and self._stood_s() < pace.short_watch_s:
            raise ApiError(0, "the watch ended at once")
        self._count("ended")
        self._retries.went_well()

    def _note_end(self) -> None:
        if self._watching_since is not None:
            self.behind_since = self._clock()

    def _begins(self, *, is_list: bool) -> None:
        self.watches += 1
        if is_list:
            self._way.begins()
        self._opened(is_list=is_list)

    def _opened(self, *, is_list: bool) -> None:
        """Notes a sign of life: only silence ends it from now on, sooner while a list is awaited."""
        assert self._patience is not None
        self._answered()
        if is_list:
            now = asyncio.get_running_loop().time()
            self._patience.reschedule(now + self._pace.marker_timeout_s)
            return
        if self._watching_since is None:
            self._watching_since, self.behind_since = self._clock(), None
            self.phase = Phase.WATCHING
            self._patience.reschedule(None)
        self._heard()

    def _take_listed(self, line: bytes, listing: StreamedList[Record], prefix: str) -> bool:
        """Adds one object to a streamed list. Returns True when that was the list's end."""
        event = read_event(line)
        if event.ends_list:
            self._commit(listing, event.version, prefix)
            return True
        record = None if event.kind == "BOOKMARK" else self._read(event.item)
        if record is not None:
            listing.take(event.kind, record)
        return False

    def _take(self, line: bytes) -> bool:
        """Applies one event. Returns True when it was a change. Raises ApiError for an ERROR event."""
        kind, item, at = read_event(line)
        number = int(at) if at.isascii() and at.isdigit() else 0
        is_change = kind != "BOOKMARK"
        if is_change:
            record = self._read(item)
            if record is not None:
                apply_event(self._store, kind, record)
            self._retries.went_well()
        elif 0 < number < self.newest_version:
            raise ApiError(410, went_back(number, self.newest_version), reason="Expired")
        self.events += 1
        self.newest_version = max(self.newest_version, number)
        self._resource_version = at or self._resource_version
        return is_change

    def _read(self, item: JsonObject) -> Record | None:
        try:
            record = self._parse(item)
        except ValueError as error:
            logger.warning(
                "object skipped", extra={"fields": {**self._fields(), "reason": str(error)}}
            )
            return None
        self.records += 1
        return record

    # --- what went wrong --------------------------------------------------------------------

    def _out_of_patience(self, is_answered: bool) -> ApiError:
        """Returns the error that stands for the deadline that is over: a doubt's, the opening's, or a streamed list's."""
        if self._doubt:
            return ApiError(410, self._doubt, reason="Expired")
        if is_answered:
            self._way.has_no_end()
            return ApiError(0, "the end of a streamed list was not marked", reason="Timeout")
        return ApiError(0, "the watch was not answered", reason="Timeout")

    async def _after(self, error: ApiError, *, is_garbage: bool = False) -> None:
        """Does what follows an end that was not the server's orderly one, and waits for as long as that asks for."""
        self._is_away = error.status == 0 or error.status >= 500
        if error.status in (403, 404):
            self.refusal = error
            self._on_list()
        retry = self._retries.after(error, stood_s=self._stood_s(), is_garbage=is_garbage)
        if retry.needs_list:
            self._resource_version = ""
        # What cuts quiet connections all day, a load balancer, is no failure to be counted and alerted on.
        is_cut = not retry.delay_s and error.kind == "connection"
        self._count("ended" if is_cut else "bad_event" if is_garbage else error.kind)
        self._tell(error, retry.delay_s)
        if not retry.delay_s:
            return
        self.problem = str(error)
        self.phase = Phase.WAITING
        if self._is_away and not error.retry_after_s:
            await self._recovery.wait(retry.delay_s)
        else:
            await asyncio.sleep(retry.delay_s)

    def _tell(self, error: ApiError, delay_s: float) -> None:
        """Logs an end: loudly once, and not at all loudly when it was none that matters."""
        level = logging.INFO if error.is_expired else logging.WARNING
        if not delay_s or self.problem == str(error):
            level = logging.DEBUG
        fields = {"status": error.status, "reason": error.message, "retry_in_s": round(delay_s, 3)}
        logger.log(level, "watch interrupted", extra={"fields": {**self._fields(), **fields}})

    def _stood_s(self) -> float:
        """Returns for how long the watch that ended, or is under way, has stood."""
        return 0.0 if self._watching_since is None else self._clock() - self._watching_since

    def _answered(self) -> None:
        """Notes that the server answers; after an outage the other watches needn't find out one by one."""
        if self._is_away:
            self._is_away = False
            self._recovery.tell()

    def _heard(self) -> None:
        self.last_heard_at = self._clock()
        self.problem = ""

    def _count(self, reason: str) -> None:
        self._restarts[self.resource.name, reason] += 1

    # --- requests ---------------------------------------------------------------------------

    def _path(self, prefix: str) -> str:
        scope = "" if self.namespace is None else f"/namespaces/{self.namespace}"
        return f"{prefix}{scope}/{self.resource.name}"

    def _params(self) -> dict[str, str]:
        selector = self.resource.label_selector
        return {"labelSelector": selector} if selector else {}

    def _fields(self) -> dict[str, object]:
        return {"resource": self.resource.name, "namespace": self.namespace or "*"}
