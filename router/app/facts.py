"""Facts: what the admin port shows of this process. The supervisor has its own, gathered from all workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from router.admin.activity import ActivityFilter, Seen
from router.admin.explain import Question
from router.admin.sandbox_listing import Filter
from router.app.uses import moment_text
from router.app.worker import Worker
from router.routing.endpoint import State
from router.telemetry.process_metrics import full_snapshot
from router.telemetry.snapshot import Snapshot

TABLE: Final = "table"
"""Asked by a new worker of the supervisor, and by the supervisor of the others: a page of routing.handover."""


class Facts(Protocol):
    """Answers for the admin port."""

    async def snapshot(self) -> Snapshot:
        """Returns the metrics of every process, added up."""
        ...

    async def missing(self) -> list[str]:
        """Returns what keeps the router from being ready."""
        ...

    async def notes(self) -> list[str]:
        """Returns what works less well than it could."""
        ...

    async def health(self) -> list[str]:
        """Returns what in this process does not work any more."""
        ...

    async def sandboxes(self, wanted: Filter) -> Mapping[str, Any]:
        """Returns the known sandboxes that the filter lets through."""
        ...

    async def explain(self, question: Question) -> Mapping[str, Any]:
        """Returns each decision about a request, up to the address."""
        ...

    async def activity(self, wanted: ActivityFilter) -> Seen:
        """Returns what every process saw of sandboxes' use."""
        ...


class WorkerFacts:
    """The facts of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def snapshot(self) -> Snapshot:
        return await full_snapshot(self._worker.metrics)

    async def missing(self) -> list[str]:
        return self._worker.missing()

    async def notes(self) -> list[str]:
        return self._worker.notes()

    async def health(self) -> list[str]:
        """Returns nothing: a worker that can answer this is in good health."""
        return []

    async def sandboxes(self, wanted: Filter) -> Mapping[str, Any]:
        return await self._worker.list_sandboxes(wanted)

    async def explain(self, question: Question) -> Mapping[str, Any]:
        return await self._worker.explain(question)

    async def activity(self, wanted: ActivityFilter) -> Seen:
        moment = self._worker.activity(wanted)
        return Seen(
            now=moment.now,
            started_at=self._worker.started_at,
            complete_since=moment.complete_since,
            slices=moment.slices(),
        )

    async def answer(self, asked: str, argument: Any) -> Any:
        """Answers the supervisor. Raises KeyError for what isn't one of the questions."""
        if asked == "snapshot":
            return await self.snapshot()
        if asked == "missing":
            return await self.missing()
        if asked == "notes":
            return await self.notes()
        if asked == "sandboxes":
            return await self.sandboxes(filter_from(argument))
        if asked == "explain":
            return await self.explain(question_from(argument))
        if asked == "activity":
            return await moment_text(self._worker.activity(ActivityFilter(**argument)))
        if asked == TABLE:
            return self._worker.table_page(argument)
        if asked == "reload":
            return await self._worker.reload()
        raise KeyError(asked)


def question_text(question: Question) -> dict[str, Any]:
    """Returns the question as JSON can carry it between processes; question_from() is its inverse."""
    return {
        "headers": [
            [name.decode("latin-1"), value.decode("latin-1")] for name, value in question.headers
        ],
        **{
            part: None if value is None else value.decode("latin-1")
            for part, value in (
                ("method", question.method),
                ("path", question.path),
                ("namespace", question.namespace),
                ("name", question.name),
                ("port", question.port),
            )
        },
    }


def question_from(text: dict[str, Any]) -> Question:
    """Returns the question that question_text() made the text of."""

    def optional(part: str) -> bytes | None:
        value = text[part]
        return None if value is None else value.encode("latin-1")

    return Question(
        headers=tuple((n.encode("latin-1"), v.encode("latin-1")) for n, v in text["headers"]),
        method=text["method"].encode("latin-1"),
        path=text["path"].encode("latin-1"),
        namespace=optional("namespace"),
        name=optional("name"),
        port=optional("port"),
    )


def filter_text(wanted: Filter) -> dict[str, Any]:
    """Returns the filter as JSON can carry it between processes; filter_from() is its inverse."""
    return {
        "namespace": wanted.namespace,
        "name": wanted.name,
        "state": None if wanted.state is None else wanted.state.value,
        "search": wanted.search,
        "offset": wanted.offset,
        "limit": wanted.limit,
    }


def filter_from(text: dict[str, Any]) -> Filter:
    """Returns the filter that filter_text() made the text of."""
    state = text["state"]
    return Filter(
        namespace=text["namespace"],
        name=text["name"],
        state=None if state is None else State(state),
        search=text["search"],
        offset=text["offset"],
        limit=text["limit"],
    )
