"""Connector: the awaiting way to a sandbox, when a credential, the sandbox or a connection has to be waited for."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from router.auth.authorizer import Permit
from router.errors import SandboxNotFound, SandboxNotReady, SandboxTimeout, SandboxUnreachable
from router.proxy.admission import Admission
from router.proxy.pool import Pool
from router.proxy.ports import NEVER, EndpointSource, ProxyOptions, Telemetry
from router.proxy.racing import ConnectFailed
from router.proxy.request import AwaitAuthorization, AwaitCredential, AwaitSandbox, Pending, Request
from router.proxy.sandbox_connection import SandboxConnection
from router.proxy.wire.trace_context import CONNECT, WAIT
from router.routing.endpoint import Endpoint, SandboxRef
from router.routing.names import Unresolved

_FIRST_BACKOFF_S: Final = 0.05
_LONGEST_BACKOFF_S: Final = 1.0
_REFUSED_BUDGET_S: Final = 2.0
"""How long a refused port is tried again: a server that restarts is back by then, one that isn't there never."""


class Connector:
    """Waits and dials for requests, and asks Admission again after each wait whether the pod is still the one to dial."""

    def __init__(
        self,
        *,
        admission: Admission,
        source: EndpointSource,
        pool: Pool,
        telemetry: Telemetry,
        options: ProxyOptions,
    ) -> None:
        self.admission = admission
        self.source = source
        self.pool = pool
        self.telemetry = telemetry
        self.connect_budget_s = options.connect_budget_s

    def __repr__(self) -> str:
        return f"<Connector {self.pool!r}>"

    async def open(
        self, request: Request, decided: Permit | Pending | None
    ) -> tuple[SandboxConnection, bool]:
        """Returns a connection to the pod that the request was permitted, and whether it had been used before.

        `decided` is what the last step() returned, None to ask anew. Raises the RouterError that the client is told.
        """
        return await _Opening(self, request).run(decided)

    async def permitted(self, request: Request, decided: Permit | Pending | None) -> None:
        """Returns once the request is permitted, without dialling. Raises the RouterError that the client is told."""
        await _Opening(self, request).permitted(decided)


class _Opening:
    """One request's way: wait, authorise, dial, and again when the pod changes under way."""

    def __init__(self, connector: Connector, request: Request) -> None:
        self._connector = connector
        self._request = request
        assert request.target is not None
        self._target = request.target
        self._trace = request.outcome.trace
        self._deadline = request.started_at + request.timeout_s
        self._first_dial_at: float | None = None
        self._backoff_s = _FIRST_BACKOFF_S
        self._failed: tuple[Endpoint, str] | None = None
        """What was dialled last, and why it failed."""

    async def run(self, decided: Permit | Pending | None) -> tuple[SandboxConnection, bool]:
        request = self._request
        step = self._connector.admission.step
        # With a Permit at hand, the gateway has looked for an idle connection itself.
        may_reuse = not isinstance(decided, Permit)
        while True:
            if decided is None:
                decided = step(request)
            if not isinstance(decided, Permit):
                await self._wait(decided)
                decided = None
                continue
            if may_reuse and not request.outcome.retries:
                idle = self._connector.pool.take(decided)
                if idle is not None:
                    return idle, True
            dialled = await self._dial(decided)
            if dialled is not None:
                return dialled, False
            request.permit = decided = None
            may_reuse = True

    async def permitted(self, decided: Permit | Pending | None) -> None:
        while not isinstance(decided, Permit):
            if decided is not None:
                await self._wait(decided)
            decided = self._connector.admission.step(self._request)

    # --- waiting ----------------------------------------------------------------------------

    async def _wait(self, pending: Pending) -> None:
        """Waits for what the next step needs. Raises what the waiting comes to when that is an error."""
        admission, request = self._connector.admission, self._request
        match pending:
            case AwaitCredential():
                admission.authenticated(request, await pending.answer)
            case AwaitAuthorization():
                permit = await pending.answer
                if pending.endpoint is not None and not self._connector.source.is_current(
                    pending.endpoint
                ):
                    permit = None  # it is about a pod that has gone meanwhile
                admission.authorized(request, pending, permit)
            case AwaitSandbox():
                await self._change(pending)

    async def _change(self, pending: AwaitSandbox) -> None:
        """Waits until the sandbox changes, an evicted route is given back, or the time is over."""
        request, ref = self._request, self._target.ref
        budget_ends_at = NEVER
        if self._failed is not None:
            assert self._first_dial_at is not None
            # Its host was found dead: the wait for another one is part of the time to connect.
            budget_ends_at = self._first_dial_at + self._connector.connect_budget_s
        try:
            has_changed = await self._change_of(
                ref, min(pending.until, budget_ends_at) - time.monotonic()
            )
        except SandboxNotReady as exc:
            if pending.endpoint is None:
                unknown = self._connector.admission.unknown(ref)
                unknown.reason = unknown.reason or exc.reason
                raise unknown from exc
            raise
        now = time.monotonic()
        if pending.endpoint is not None:
            assert request.waits_since is not None
            request.outcome.wait_s = now - request.waits_since
        if self._failed is not None and now >= budget_ends_at and not has_changed:
            raise SandboxUnreachable.of(ref.name, reason=self._failed[1])

    async def _change_of(self, ref: SandboxRef, limit_s: float) -> bool:
        """Returns True when something changed within the time."""
        source = self._connector.source
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not changed.done():
                changed.set_result(None)

        authenticated = self._request.authenticated
        caller = None if authenticated is None else authenticated.principal.share()
        waiter = source.wait(ref, wake, caller)
        if self._trace is not None:
            self._trace.begins(WAIT)
        try:
            hold_s = source.hold_ends_in_s(ref)
            if hold_s is not None:
                limit_s = min(limit_s, hold_s + 0.01)
            async with asyncio.timeout(limit_s):
                await changed
        except TimeoutError:
            pass
        finally:
            waiter.cancel()
            if self._trace is not None:
                self._trace.ends()
        return changed.done() and not changed.cancelled()

    # --- dialling ---------------------------------------------------------------------------

    async def _dial(self, permit: Permit) -> SandboxConnection | None:
        """Returns a new connection, None to look again. Raises SandboxUnreachable, SandboxTimeout."""
        connector, request = self._connector, self._request
        end = self._end_of_dialling(permit)
        if self._trace is not None:
            self._trace.begins(CONNECT)
        assert self._first_dial_at is not None
        try:
            connection = await connector.pool.connect(permit, limit_s=end - time.monotonic())
        except ConnectFailed as exc:
            if self._trace is not None:
                self._trace.ends(exc.reason)
            await self._after_failure(permit, exc, end)
            return None
        finally:
            request.outcome.connect_s = time.monotonic() - self._first_dial_at
        if self._trace is not None:
            self._trace.ends()
        if not connector.source.is_current(permit.endpoint):
            # The pod changed while its address was dialled: whoever lives there now was not authorised.
            connection.close()
            return None
        request.outcome.upstream_error = ""
        return connection

    def _end_of_dialling(self, permit: Permit) -> float:
        """Returns until when (monotonic seconds) this pod may be dialled. Raises SandboxUnreachable, SandboxTimeout."""
        now = time.monotonic()
        if self._failed is not None and not _is_same_pod(self._failed[0], permit.endpoint):
            # Another pod owes nothing for the time that its predecessor cost.
            self._first_dial_at = self._failed = None
        if self._first_dial_at is None:
            self._first_dial_at = now
        end = min(self._first_dial_at + self._connector.connect_budget_s, self._deadline)
        if now < end:
            return end
        if self._failed is not None and now < self._deadline:
            raise SandboxUnreachable.of(self._target.ref.name, reason=self._failed[1])
        raise SandboxTimeout.of(self._target.ref.name)

    async def _after_failure(self, permit: Permit, failure: ConnectFailed, end: float) -> None:
        connector, outcome = self._connector, self._request.outcome
        outcome.upstream_error = failure.reason
        self._failed = (permit.endpoint, failure.detail)
        if failure.unresolved is Unresolved.UNKNOWN and not permit.endpoint.uid:
            # Discovery by DNS: no name, no sandbox.
            raise SandboxNotFound.in_namespace(self._target.ref.namespace, reason=failure.detail)
        if failure.unresolved is Unresolved.REFUSED:
            raise SandboxUnreachable.of(self._target.ref.name, reason=failure.detail)
        if failure.dead_address:
            evicted = connector.source.evict(permit.endpoint, failure.dead_address)
            if evicted:
                connector.telemetry.route_evicted()
                for endpoint in evicted:
                    connector.pool.retire(endpoint)
        assert self._first_dial_at is not None
        if failure.reason == "connect_refused":
            end = min(end, self._first_dial_at + _REFUSED_BUDGET_S)
        pause_s = self._backoff_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        self._backoff_s = min(self._backoff_s * 2, _LONGEST_BACKOFF_S)
        if time.monotonic() + pause_s >= end:
            raise SandboxUnreachable.of(self._target.ref.name, reason=failure.detail)
        outcome.retries += 1
        connector.telemetry.upstream_retried()
        await asyncio.sleep(pause_s)


def _is_same_pod(one: Endpoint, other: Endpoint) -> bool:
    return one.uid == other.uid and one.addresses == other.addresses
