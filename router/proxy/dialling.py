"""The slow way of opening an exchange: when a credential, a sandbox or a connection has to be waited for."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from router.auth.authenticator import Authenticated
from router.auth.authorizer import Permit
from router.errors import (
    IndexStale,
    InternalError,
    RouterError,
    SandboxFinished,
    SandboxNotFound,
    SandboxNotReady,
    SandboxReplaced,
    SandboxSuspended,
    SandboxTimeout,
    SandboxUnreachable,
)
from router.proxy.pool import ConnectFailed
from router.proxy.wire.trace_context import CONNECT, FIRST_BYTE, WAIT
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.names import Unresolved

if TYPE_CHECKING:
    from router.proxy.exchange import Exchange
    from router.proxy.gateway import Gateway
    from router.proxy.upstream import Upstream

logger = logging.getLogger("sandbox_router.proxy")

_FIRST_BACKOFF_S: Final = 0.05
_LONGEST_BACKOFF_S: Final = 1.0
_CATCH_UP_POLL_S: Final = 0.25
_REFUSED_BUDGET_S: Final = 2.0
"""How long a refused port is tried again: a server that restarts is back by then, one that isn't there never."""


async def open_slowly(
    gateway: Gateway,
    exchange: Exchange,
    *,
    authenticating: Awaitable[Authenticated] | None,
    authorizing: Awaitable[Permit] | None,
) -> None:
    """Finds the exchange its upstream; every failure becomes the exchange's answer."""
    try:
        await _Opening(gateway, exchange).run(authenticating, authorizing)
    except RouterError as exc:
        exchange.task = None
        exchange.fail(exc)
    except Exception as exc:
        logger.exception("a request failed for a reason that nobody foresaw")
        exchange.task = None
        exchange.fail(InternalError(reason=f"{type(exc).__name__}: {exc}"))


class _Opening:
    """One exchange's way to an upstream: wait, authorise, dial, and again when the pod changes under way."""

    def __init__(self, gateway: Gateway, exchange: Exchange) -> None:
        self._gateway = gateway
        self._exchange = exchange
        assert exchange.target is not None
        self._target = exchange.target
        self._trace = exchange.outcome.trace
        self._deadline = exchange.started_at + exchange.timeout_s
        self._first_dial_at: float | None = None
        self._backoff_s = _FIRST_BACKOFF_S
        self._failed: tuple[Endpoint, str] | None = None
        """What was dialled last, and why it failed."""

    async def run(
        self,
        authenticating: Awaitable[Authenticated] | None,
        authorizing: Awaitable[Permit] | None,
    ) -> None:
        gateway, exchange = self._gateway, self._exchange
        if authenticating is not None:
            gateway.authenticated(exchange, await authenticating)
        if authorizing is not None:
            gateway.permitted(exchange, await authorizing)
        permit = exchange.permit
        # Where it could authorise at once, the gateway has looked for an idle connection itself.
        may_reuse = authorizing is not None
        while True:
            if permit is None or not gateway.source.is_current(permit.endpoint):
                permit = await self._permit()
                may_reuse = not exchange.outcome.retries
            if may_reuse and self._reuse(permit):
                return
            if await self._dial(permit):
                return
            permit = None

    def _reuse(self, permit: Permit) -> bool:
        """Returns True when there was an idle connection, which the exchange has now."""
        exchange = self._exchange
        upstream = self._gateway.pool.take(permit, must_be_open=not exchange.is_repeatable)
        if upstream is None:
            return False
        self._attach(upstream, is_reused=True)
        return True

    async def _permit(self) -> Permit:
        """Returns the right to dial the sandbox once it is ready."""
        gateway, exchange = self._gateway, self._exchange
        while True:
            endpoint = await self._ready_endpoint()
            permit = gateway.authorize(exchange, endpoint)
            if not isinstance(permit, Permit):
                permit = await permit
                if not gateway.source.is_current(endpoint):
                    continue
            gateway.permitted(exchange, permit)
            return permit

    async def _ready_endpoint(self) -> Endpoint:
        """Returns the sandbox's endpoint, READY, waiting for it if it is starting. Raises what explains its absence."""
        gateway, exchange, target = self._gateway, self._exchange, self._target
        began_at = time.monotonic()
        limit = min(began_at + gateway.limits.wait_for_ready_s, self._deadline)
        grace_limit = began_at + gateway.limits.unknown_grace_s
        while True:
            endpoint = gateway.source.find(target)
            if endpoint is not None and endpoint.state is State.READY:
                return endpoint
            await self._admit(endpoint)
            now = time.monotonic()
            if endpoint is None:
                if now >= grace_limit and now < limit and gateway.source.is_catching_up():
                    grace_limit = now + _CATCH_UP_POLL_S
                await self._appearance_of(target.ref, min(grace_limit, limit) - now)
                continue
            self._refuse_the_absent(endpoint)
            if now >= limit:
                raise SandboxNotReady(reason=endpoint.reason)
            await self._change_of(target.ref, limit - now)
            exchange.outcome.wait_s = time.monotonic() - began_at

    async def _admit(self, endpoint: Endpoint | None) -> None:
        """Lets nobody wait for, or learn about, what they may not see."""
        gateway, exchange, target = self._gateway, self._exchange, self._target
        assert exchange.authenticated is not None
        names: tuple[SandboxRef, ...] = (target.ref,)
        if endpoint is not None:
            names = gateway.source.names(endpoint, target.ref)
            exchange.outcome.namespace = endpoint.ref.namespace
        admitting = gateway.authorizer.admit(
            exchange.authenticated.principal, names, target.port, exchange.head.method
        )
        if admitting is not None:
            await admitting
        exchange.outcome.authz = "allowed"

    def _refuse_the_absent(self, endpoint: Endpoint) -> None:
        uid = self._target.uid
        if uid and endpoint.sandbox_uid and not endpoint.answers_to_uid(uid):
            raise SandboxReplaced
        if endpoint.state is State.SUSPENDED:
            raise SandboxSuspended(reason=endpoint.reason)
        if endpoint.state is State.FINISHED:
            raise SandboxFinished(reason=endpoint.reason)

    async def _appearance_of(self, ref: SandboxRef, limit_s: float) -> None:
        """Waits for an unknown sandbox to become known. Raises SandboxNotFound when the time is over or nobody may wait.

        Raises IndexStale instead while there is no table yet: 404 would be final for a sandbox that exists.
        """
        if limit_s <= 0:
            if not self._gateway.source.is_complete(ref.namespace):
                raise no_table_yet()
            raise SandboxNotFound.in_namespace(ref.namespace)
        try:
            await self._change_of(ref, limit_s)
        except SandboxNotReady as exc:
            if not self._gateway.source.is_complete(ref.namespace):
                raise no_table_yet() from exc
            raise SandboxNotFound.in_namespace(ref.namespace, reason=exc.reason) from exc

    async def _change_of(self, ref: SandboxRef, limit_s: float) -> None:
        """Waits until the sandbox changes, an evicted route is given back, or the time is over."""
        source = self._gateway.source
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not changed.done():
                changed.set_result(None)

        waiter = source.wait(ref, wake)
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

    async def _dial(self, permit: Permit) -> bool:
        """Returns True when the exchange has its upstream; False to look again. Raises SandboxUnreachable, SandboxTimeout."""
        gateway, exchange = self._gateway, self._exchange
        now = time.monotonic()
        if self._failed is not None and not _is_same_pod(self._failed[0], permit.endpoint):
            # Another pod owes nothing for the time that its predecessor cost.
            self._first_dial_at = self._failed = None
        if self._first_dial_at is None:
            self._first_dial_at = now
        end = min(self._first_dial_at + gateway.limits.connect_budget_s, self._deadline)
        if now >= end and self._failed is not None and now < self._deadline:
            raise SandboxUnreachable.of(self._target.ref.name, reason=self._failed[1])
        if now >= end:
            raise SandboxTimeout.of(self._target.ref.name)
        if self._trace is not None:
            self._trace.begins(CONNECT)
        try:
            upstream = await gateway.pool.connect(permit, limit_s=end - now)
        except ConnectFailed as exc:
            if self._trace is not None:
                self._trace.ends(exc.reason)
            await self._after_failure(permit, exc, end)
            return False
        finally:
            exchange.outcome.connect_s = time.monotonic() - self._first_dial_at
        if self._trace is not None:
            self._trace.ends()
        if not gateway.source.is_current(permit.endpoint):
            # The pod changed while its address was dialled: whoever lives there now was not authorised.
            upstream.close()
            return False
        exchange.outcome.upstream_error = ""
        self._attach(upstream, is_reused=False)
        return True

    def _attach(self, upstream: Upstream, *, is_reused: bool) -> None:
        if self._trace is not None:
            self._trace.begins(FIRST_BYTE)
        self._exchange.task = None
        self._exchange.attach(upstream, is_reused=is_reused)

    async def _after_failure(self, permit: Permit, failure: ConnectFailed, end: float) -> None:
        gateway, exchange = self._gateway, self._exchange
        outcome = exchange.outcome
        outcome.upstream_error = failure.reason
        self._failed = (permit.endpoint, failure.detail)
        if failure.unresolved is Unresolved.UNKNOWN and not permit.endpoint.uid:
            # Discovery by DNS: no name, no sandbox.
            raise SandboxNotFound.in_namespace(self._target.ref.namespace, reason=failure.detail)
        if failure.unresolved is Unresolved.REFUSED:
            raise SandboxUnreachable.of(self._target.ref.name, reason=failure.detail)
        if failure.dead_address:
            evicted = gateway.source.evict(permit.endpoint, failure.dead_address)
            if evicted:
                gateway.telemetry.route_evicted()
                for endpoint in evicted:
                    gateway.pool.retire(endpoint)
        assert self._first_dial_at is not None
        if failure.reason == "connect_refused":
            end = min(end, self._first_dial_at + _REFUSED_BUDGET_S)
        pause_s = self._backoff_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        self._backoff_s = min(self._backoff_s * 2, _LONGEST_BACKOFF_S)
        if time.monotonic() + pause_s >= end:
            raise SandboxUnreachable.of(self._target.ref.name, reason=failure.detail)
        outcome.retries += 1
        gateway.telemetry.upstream_retried()
        await asyncio.sleep(pause_s)


def no_table_yet() -> IndexStale:
    """Returns what a request gets before the first table is in."""
    return IndexStale(
        "The router does not know its sandboxes yet.", reason="the first table is not complete"
    )


def _is_same_pod(one: Endpoint, other: Endpoint) -> bool:
    return one.uid == other.uid and one.addresses == other.addresses
