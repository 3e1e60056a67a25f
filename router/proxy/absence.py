"""Absence: what becomes of a request whose sandbox can't be dialled now: it waits, it wakes the sandbox, or it is told why not."""

from __future__ import annotations

import time
from typing import Final

from router.auth.authorizer import Authorizer
from router.auth.principal import CONNECT
from router.errors import (
    IndexStale,
    RouterError,
    SandboxFinished,
    SandboxNotFound,
    SandboxNotReady,
    SandboxReplaced,
    SandboxSuspended,
    SandboxWaking,
)
from router.proxy.options import ProxyOptions
from router.proxy.ports import EndpointSource
from router.proxy.request import (
    AwaitAuthorization,
    AwaitSandbox,
    AwaitWake,
    AwaitWakeRight,
    Pending,
    Request,
)
from router.proxy.wake_rules import WakeRules, page_at
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.target import Target

_CATCH_UP_POLL_S: Final = 0.25


class Absence:
    """Explains absence to those who may know, and says what is worth waiting for. Reads no socket and awaits nothing."""

    def __init__(
        self, *, source: EndpointSource, authorizer: Authorizer, options: ProxyOptions
    ) -> None:
        self._source = source
        self._authorizer = authorizer
        self._options = options
        self._waking = WakeRules(options)

    def __repr__(self) -> str:
        return f"<Absence {self._source!r} {self._waking!r}>"

    def step(self, request: Request, target: Target, endpoint: Endpoint | None) -> Pending:
        """Lets nobody wait for, or learn about, what they may not see. Raises what explains the absence."""
        names: tuple[SandboxRef, ...] = (target.ref,)
        if endpoint is not None:
            names = self._source.names(endpoint, target.ref)
            request.outcome.namespace = endpoint.ref.namespace
        is_public = (
            self._options.public_ports
            and endpoint is not None
            and request.grant_method is not CONNECT
            and target.port in endpoint.wishes.public_ports
        )
        if is_public:
            request.admitted = names
        if request.admitted != names:
            assert request.authenticated is not None
            answer = self._authorizer.admit(
                request.authenticated.principal, names, target.port, request.grant_method
            )
            if answer is not None:
                return AwaitAuthorization(answer, None, names)
            request.admitted = names
        request.permit = None
        request.outcome.authz = "allowed"
        now = time.monotonic()
        if endpoint is not None:
            _refuse_the_gone(target, endpoint)
            if endpoint.state is State.SUSPENDED:
                return self._suspended(request, target, endpoint, names)
            # Who waits for a wake does so to its own end, which can be a moment after the sandbox's.
            if request.outcome.woke or self._waking.is_on_its_way(endpoint, now):
                return AwaitSandbox(endpoint, self._waking_until(request, endpoint, now))
        return self._starting(request, target, endpoint, now)

    def unknown(self, ref: SandboxRef) -> RouterError:
        """Returns what a request for an unknown sandbox gets. Before the first table that is no 404, which would be final."""
        if self._source.is_complete(ref.namespace):
            return SandboxNotFound.in_namespace(ref.namespace)
        return no_table_yet()

    def _starting(
        self, request: Request, target: Target, endpoint: Endpoint | None, now: float
    ) -> AwaitSandbox:
        if request.waits_since is None:
            request.waits_since = now
        until = min(
            request.waits_since + self._options.wait_for_ready_s,
            request.started_at + request.timeout_s,
        )
        if endpoint is None:
            grace_until = request.waits_since + self._options.unknown_grace_s
            if now >= grace_until and self._source.is_catching_up():
                grace_until = now + _CATCH_UP_POLL_S
            until = min(until, grace_until)
        if now >= until:
            raise (
                self.unknown(target.ref)
                if endpoint is None
                else SandboxNotReady(reason=endpoint.reason)
            )
        return AwaitSandbox(endpoint, until)

    # --- waking -----------------------------------------------------------------------------

    def _suspended(
        self, request: Request, target: Target, endpoint: Endpoint, names: tuple[SandboxRef, ...]
    ) -> AwaitWake | AwaitWakeRight:
        """Returns the wake to wait for, or whom to ask about it. Raises SandboxSuspended, SandboxFinished, SandboxWaking."""
        waking = self._waking
        if waking.is_on and 0.0 < endpoint.shutdown_at <= time.time():
            raise SandboxFinished(reason="its shutdownTime has passed")
        why_not = waking.why_not(request.head, endpoint)
        if not why_not and request.wake_right != endpoint.sandbox_uid:
            assert request.authenticated is not None
            answer = self._authorizer.may_wake(
                request.authenticated.principal, endpoint, names, target.port, request.grant_method
            )
            if not isinstance(answer, bool):
                return AwaitWakeRight(answer, endpoint)
            self.wake_right(request, endpoint, may_wake=answer)
        if why_not:
            raise _suspended(endpoint, why_not if waking.is_on else "")
        now = time.monotonic()
        until = self._waking_until(request, endpoint, now)
        assert request.waits_since is not None
        wanted_until = min(
            waking.ends_at(request.waits_since), request.started_at + request.timeout_s
        )
        return AwaitWake(endpoint, until, wanted_until)

    def wake_right(self, request: Request, endpoint: Endpoint, *, may_wake: bool) -> None:
        """Takes the answer to whether the caller may wake the sandbox. Raises SandboxSuspended when not."""
        if not may_wake:
            raise _suspended(endpoint, "the caller has no right to wake it (`wake: true`)")
        request.wake_right = endpoint.sandbox_uid

    def is_on_its_way(self, endpoint: Endpoint) -> bool:
        """Returns True while a sandbox that was suspended a moment ago may still be coming up."""
        return self._waking.is_on_its_way(endpoint, time.monotonic())

    def waking_until(self, request: Request, endpoint: Endpoint) -> float:
        """Returns until when (monotonic seconds) the request waits for a sandbox on its way. Raises SandboxWaking after that."""
        return self._waking_until(request, endpoint, time.monotonic())

    def _waking_until(self, request: Request, endpoint: Endpoint, now: float) -> float:
        if request.waits_since is None:
            request.waits_since = now
        until = min(
            self._waking.ends_at(request.waits_since), request.started_at + request.timeout_s
        )
        shown_at = page_at(request.head, request.waits_since)
        if shown_at is not None:
            until = min(until, shown_at)
        if now >= until:
            error = SandboxWaking(reason=endpoint.reason)
            if shown_at is not None:
                error.page_about = str(endpoint.ref)
            raise error
        return until


def no_table_yet() -> IndexStale:
    """Returns what every request gets before the first table."""
    return IndexStale(
        "The router does not know its sandboxes yet.", reason="the first table is not complete"
    )


def _refuse_the_gone(target: Target, endpoint: Endpoint) -> None:
    # While there is no pod, only a Sandbox's own UID can tell one from another.
    if target.uid and endpoint.sandbox_uid and not endpoint.answers_to_uid(target.uid):
        raise SandboxReplaced
    if endpoint.state is State.FINISHED:
        raise SandboxFinished(reason=endpoint.reason)


def _suspended(endpoint: Endpoint, why_not: str) -> SandboxSuspended:
    return SandboxSuspended(reason="; ".join(filter(None, (endpoint.reason, why_not))))
