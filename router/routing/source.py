"""IndexSource: the table of sandboxes as the gateway asks it."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from router.routing.endpoint import Endpoint, SandboxRef
from router.routing.index import EndpointIndex
from router.routing.waiting import Waiter


class IndexSource:
    """Answers from an EndpointIndex."""

    def __init__(
        self, index: EndpointIndex, *, is_catching_up: Callable[[], bool] = lambda: False
    ) -> None:
        self._index = index
        self.find = index.find
        self.is_complete = index.is_complete
        self.is_catching_up = is_catching_up
        self.names_generation = index.names_generation
        self.names = index.names
        self.is_current = index.is_current
        self.hold_ends_in_s = index.hold_ends_in_s
        self.is_stale = index.is_stale

    def __repr__(self) -> str:
        return f"<IndexSource {self._index!r}>"

    def wait(self, ref: SandboxRef, wake: Callable[[], None], caller: Hashable = None) -> Waiter:
        """Calls `wake` once when the sandbox changes. Raises SandboxNotReady when too many wait, in all or of this caller."""
        return self._index.wait(ref, wake, caller)

    def evict(self, endpoint: Endpoint, address: str) -> tuple[Endpoint, ...]:
        """Takes a dead host's route out for a while. Returns the endpoints that lost theirs."""
        return self._index.evict(endpoint, address)
