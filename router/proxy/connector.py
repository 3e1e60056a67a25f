"""Connector: the awaiting way to a sandbox, when a credential, the sandbox or a connection has to be waited for."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from router.auth.authorizer import Permit
from router.errors import (
    RouterError,
    SandboxNotFound,
    SandboxNotReady,
    SandboxTimeout,
    SandboxUnreachable,
)
from router.proxy.admission import Admission
from router.proxy.at_home import AtHome
from router.proxy.options import NEVER, ProxyOptions
from router.proxy.own_paths import Answering, OwnPaths
from router.proxy.pool import Pool
from router.proxy.ports import EndpointSource, Telemetry, WakeDesk, WakeTicket
from router.proxy.racing import ConnectFailed, done_within
from router.proxy.raw_connection import RawConnection, explain_refusal
from router.proxy.request import (
    AwaitAuthorization,
    AwaitCredential,
    AwaitSandbox,
    AwaitWake,
    AwaitWakeRight,
    Pending,
    Request,
    is_for_router,
)
from router.proxy.sandbox_connection import SandboxConnection
from router.proxy.session_paths import AnsweredHere
from router.proxy.wire.trace_context import CONNECT, WAIT
from router.routing.endpoint import Endpoint, SandboxRef
from router.routing.names import Unresolved

Carrier: TypeAlias = SandboxConnection | RawConnection | Answering | AnsweredHere
"""What takes an exchange on: a connection to the sandbox, or who answers in its stead."""

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
        wakes: WakeDesk | None = None,
        own_paths: OwnPaths | None = None,
        home: AtHome | None = None,
    ) -> None:
        """`wakes` must be given where the options say that requests wake sandboxes. Without `own_paths` none is the router's.

        `home` answers what is asked of the base domain itself, None where nothing does.
        """
        self.wakes = wakes
        self._home = home
        self.own_paths = own_paths
        self.admission = admission
        self.source = source
        self.pool = pool
        self.telemetry = telemetry
        self.connect_budget_s = options.connect_budget_s
        self.options = options

    def __repr__(self) -> str:
        return f"<Connector {self.pool!r}>"

    def is_at_home(self, request: Request, error: Exception) -> bool:
        """Returns True when a request that named no sandbox, which is the error, is one that open() can answer all the same."""
        return self._home is not None and self._home.takes(request, error)

    async def open(
        self, request: Request, decided: Permit | Pending | None
    ) -> tuple[Carrier, bool]:
        """Returns a connection to the pod that the request was permitted, and whether it had been used before.

        A request for the router itself gets what answers it instead.

        `decided` is what the last step() returned, None to ask anew. Raises the RouterError that the client is told.
        """
        if request.target is None and self._home is not None:
            return await self._home.answering(request), False
        try:
            return await _Opening(self, request).run(decided)
        except SandboxUnreachable as error:
            if request.is_raw:
                explain_refusal(error, request)
            raise

    async def locate(self, request: Request, decided: Permit | Pending | None) -> tuple[str, int]:
        """Returns the address and port of the pod that the request was permitted, for someone else to carry it there.

        It is not dialled, but for one that was suspended: that is found to listen first. `decided` and errors are open()'s.
        """
        return await _Opening(self, request).find(decided)


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

    async def run(self, decided: Permit | Pending | None) -> tuple[Carrier, bool]:
        request, own_paths = self._request, self._connector.own_paths
        own = own_paths if own_paths and is_for_router(request) else None
        # With a Permit at hand, the gateway has looked for an idle connection itself.
        may_reuse = not isinstance(decided, Permit)
        while True:
            permit = await self._permitted(decided, own)
            answering = None if own is None else own.answering(request)
            if answering is not None:
                return answering, False
            if may_reuse and own is None and not request.outcome.retries:
                idle = self._connector.pool.take(permit)
                if idle is not None:
                    return idle, True
            dialled = await self._dial(permit)
            if dialled is not None:
                return self._carrier(dialled), False
            request.permit = decided = None
            may_reuse = True

    async def find(self, decided: Permit | Pending | None) -> tuple[str, int]:
        """Returns where the permitted pod is. Raises the RouterError that the client is told."""
        request, admission = self._request, self._connector.admission
        while True:
            permit = await self._permitted(decided, None)
            if request.outcome.woke or admission.is_on_its_way(permit.endpoint):
                # Ready comes before the server in the pod listens, and whoever carries the request won't try again.
                dialled = await self._dial(permit)
                if dialled is not None:
                    address = dialled.address
                    dialled.close()
                    return address, permit.key[2]
            else:
                found = await self._look_up(permit)
                if found is not None:
                    return found, permit.key[2]
            request.permit = decided = None

    async def _permitted(self, decided: Permit | Pending | None, own: OwnPaths | None) -> Permit:
        """Returns the Permit, however long it has to be waited for; `own` is given where the router itself answers."""
        request, step = self._request, self._connector.admission.step
        if isinstance(decided, AwaitSandbox | AwaitWake):
            # This task began a turn of the loop later: the sandbox may have changed since, and would not be heard of again.
            decided = None
        while True:
            if decided is None:
                decided = step(request)
            if isinstance(decided, Permit):
                return decided
            if own is not None and isinstance(decided, AwaitSandbox | AwaitWake):
                own.check(request)  # what it refuses waits for nobody, and wakes nothing
            await self._wait(decided)
            decided = None

    def _carrier(self, dialled: SandboxConnection) -> Carrier:
        """Returns what takes on a request that was dialled for."""
        return RawConnection(dialled, self._connector.options) if self._request.is_raw else dialled

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
            case AwaitWakeRight():
                admission.wake_right(request, pending, await pending.answer)
            case AwaitWake():
                await self._woken(pending)

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

    async def _woken(self, pending: AwaitWake) -> None:
        """Waits until the sandbox is up, or anything else has become of it. Raises WakeLimited, WakeUnavailable."""
        request = self._request
        # What was dialled before is of the time before it was suspended.
        self._failed = self._first_dial_at = None
        request.outcome.woke = True
        try:
            await self._change_of(self._target.ref, pending.until - time.monotonic(), wake=pending)
        finally:
            assert request.waits_since is not None
            request.outcome.wait_s = time.monotonic() - request.waits_since

    async def _change_of(
        self, ref: SandboxRef, limit_s: float, wake: AwaitWake | None = None
    ) -> bool:
        """Returns True when something changed within the time. Raises what `wake` comes to when that is an error."""
        source = self._connector.source
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ticket: WakeTicket | None = None

        def has_changed() -> None:
            if ticket is not None:
                ticket.changed()
            _end(changed)

        def has_failed(error: RouterError) -> None:
            _end(changed, error)

        authenticated = self._request.authenticated
        caller = None if authenticated is None else authenticated.principal.share()
        waiter = source.wait(ref, has_changed, caller)
        if self._trace is not None:
            self._trace.begins(WAIT)
        try:
            if wake is not None:
                # A place in the waiting room comes first: who may not wait wakes nobody.
                ticket = self._want(wake, has_failed)
            hold_s = source.hold_ends_in_s(ref)
            if hold_s is not None:
                limit_s = min(limit_s, hold_s + 0.01)
            return await done_within(changed, limit_s)
        finally:
            waiter.cancel()
            if ticket is not None:
                ticket.cancel()
            if self._trace is not None:
                self._trace.ends()

    def _want(self, wake: AwaitWake, failed: Callable[[RouterError], None]) -> WakeTicket:
        wakes, outcome = self._connector.wakes, self._request.outcome
        assert wakes is not None
        by = f"{outcome.principal} ({outcome.client})" if outcome.principal else outcome.client
        return wakes.want(wake.endpoint, by=by, until=wake.wanted_until, failed=failed)

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

    async def _look_up(self, permit: Permit) -> str | None:
        """Returns the pod's address, None to look again. Raises SandboxUnreachable, SandboxTimeout."""
        connector = self._connector
        end = self._end_of_dialling(permit)
        try:
            address = await connector.pool.locate(permit, limit_s=end - time.monotonic())
        except ConnectFailed as exc:
            await self._after_failure(permit, exc, end)
            return None
        # The pod may have changed while its name was looked up: whoever lives there now was not authorised.
        return address if connector.source.is_current(permit.endpoint) else None

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
        if self._connector.admission.is_on_its_way(permit.endpoint):
            return self._connector.admission.waking_until(self._request, permit.endpoint)
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
        pause_s = self._next_pause_s()
        if failure.reason == "connect_refused":
            if connector.admission.is_on_its_way(permit.endpoint):
                # Ready comes before the server in the pod listens.
                outcome.error_reason = failure.detail
                until = connector.admission.waking_until(self._request, permit.endpoint)
                await self._pause(min(pause_s, until - time.monotonic()))
                return
            if connector.wakes is None or not connector.source.is_catching_up():
                # (Else it may be on its way to sleep, and the watch late to say so.)
                end = min(end, self._first_dial_at + _REFUSED_BUDGET_S)
        if time.monotonic() + pause_s >= end:
            raise SandboxUnreachable.of(self._target.ref.name, reason=failure.detail)
        await self._pause(pause_s)

    def _next_pause_s(self) -> float:
        pause_s = self._backoff_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        self._backoff_s = min(self._backoff_s * 2, _LONGEST_BACKOFF_S)
        return pause_s

    async def _pause(self, pause_s: float) -> None:
        self._request.outcome.retries += 1
        self._connector.telemetry.upstream_retried()
        await asyncio.sleep(pause_s)


def _end(future: asyncio.Future[None], error: RouterError | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _is_same_pod(one: Endpoint, other: Endpoint) -> bool:
    return one.uid == other.uid and one.addresses == other.addresses
