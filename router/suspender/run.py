"""The whole command: watches Sandboxes, takes part in the election, makes its rounds, gives the Lease back in the end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import aiohttp

from router.discovery.history import HistoryCheck
from router.discovery.kubernetes import Feed
from router.discovery.objects import SANDBOX_GROUP
from router.discovery.pace import Pace
from router.discovery.recovery import Recovery
from router.discovery.reflector import Reflector
from router.discovery.resources import Resource
from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess, cluster_access
from router.kube.election import DEFAULT_TERMS, Election, Terms
from router.server.listeners import BindError, addresses_of, bind, close_all
from router.suspender.candidates import Candidate, CandidateStore, parse_candidate
from router.suspender.metrics import SuspenderMetrics
from router.suspender.options import Options, described, process_identity
from router.suspender.port import own_port
from router.suspender.rounds import Rounds
from router.suspender.routers import ListedRouters, RouterFinder, ServiceRouters
from router.suspender.survey import Survey
from router.suspender.suspension import Suspension
from router.telemetry.logs import configure, take_all

logger = logging.getLogger("sandbox_router.suspender")

SANDBOXES: Final = Resource("sandboxes", (f"/apis/{SANDBOX_GROUP}/v1beta1",))
"""Only the version that knows `spec.operatingMode`."""
STALLED_ROUNDS: Final = 5
STALLED_AT_LEAST_S: Final = 120.0
BEHIND_S: Final = 60.0
"""A watch that stood still for so long is no knowledge any more."""
_FAILED: Final = 1


def run(options: Options, environ: Mapping[str, str]) -> int:
    """Goes on until SIGTERM or SIGINT, then gives the Lease back. Returns the exit code."""
    configure(level=options.log_level, log_format=options.log_format)
    take_all()
    try:
        return asyncio.run(_run(options, environ))
    except (BindError, ValueError, OSError) as error:
        logger.critical("cannot go on", extra={"fields": {"reason": str(error)}})
    return _FAILED


async def _run(options: Options, environ: Mapping[str, str]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    access = await cluster_access(options.kubeconfig, environ)
    bound = (
        [] if options.metrics_bind is None else bind(options.metrics_bind, setting="--metrics-bind")
    )
    try:
        await suspend_idle(options, access, bound, stop)
    finally:
        close_all(bound)
    return 0


async def suspend_idle(
    options: Options,
    access: ClusterAccess,
    bound: list[socket.socket],
    stop: asyncio.Event,
    *,
    terms: Terms = DEFAULT_TERMS,
    pace: Pace | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Suspends idle Sandboxes until `stop`. `bound` are the sockets of its own port."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(KubernetesApi(access=access))
        # Of its own: a renewal must not wait behind a list.
        lease_api = await stack.enter_async_context(KubernetesApi(access=access))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                headers={"User-Agent": "sandbox-router-suspend-idle", "Accept": "application/json"},
            )
        )
        election = None if options.is_dry_run else _election(options, lease_api, terms, clock)
        watches = Watches(api, options.namespaces, pace or Pace(), clock)
        metrics = SuspenderMetrics()
        may_act = (lambda: True) if election is None else election.is_held
        metrics.watch_lease(lambda: election is not None and election.is_held())
        rounds = Rounds(
            candidates=watches.candidates,
            why_blind=watches.why_blind,
            finder=_finder(options, api),
            survey=Survey(session=session),
            suspension=Suspension(api=api, is_dry_run=options.is_dry_run),
            may_act=may_act,
            interval_s=options.interval_s,
            tell=metrics,
            clock=clock,
        )
        limit_s = max(STALLED_AT_LEAST_S, STALLED_ROUNDS * options.interval_s)
        await stack.enter_async_context(
            own_port(
                bound,
                exposition=metrics.exposition,
                is_alive=lambda: clock() - rounds.last_ended_at < limit_s,
            )
        )
        logger.info(
            "started", extra={"fields": {**described(options), "metrics": addresses_of(bound)}}
        )
        await _until(stop, [*watches.runs(), rounds.run(), *([election.run()] if election else [])])
        if election is not None:
            await election.give_back()
        logger.info("stopped")


async def _until(stop: asyncio.Event, runs: list[Coroutine[Any, Any, None]]) -> None:
    """Runs all of them until `stop`, then waits until each has ended."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in runs]
        await stop.wait()
        for task in tasks:
            task.cancel()


def _election(
    options: Options, api: KubernetesApi, terms: Terms, clock: Callable[[], float]
) -> Election:
    return Election(
        api=api,
        namespace=options.lease_namespace,
        name=options.lease_name,
        identity=process_identity(socket.gethostname(), uuid.uuid4().hex[:8]),
        clock=clock,
        terms=terms,
    )


def _finder(options: Options, api: KubernetesApi) -> RouterFinder:
    if options.service is None:
        return ListedRouters(options.routers)
    return ServiceRouters(api=api, namespace=options.service.namespace, name=options.service.name)


class Watches:
    """Keeps the candidates equal to the Sandboxes of some namespaces, or of all."""

    def __init__(
        self,
        api: KubernetesApi,
        namespaces: tuple[str, ...],
        pace: Pace,
        clock: Callable[[], float],
    ) -> None:
        self.candidates = CandidateStore(clock=clock)
        self._pace = pace
        recovery, restarts = Recovery(), Counter[tuple[str, str]]()
        self._reflectors = [
            Reflector[Candidate](
                api=api,
                resource=SANDBOXES,
                namespace=namespace,
                parse=parse_candidate,
                store=Feed(
                    begin_list=partial(self.candidates.begin_list, namespace),
                    upsert=self.candidates.upsert,
                    remove=self.candidates.remove,
                ),
                pace=pace,
                on_list=lambda: None,
                restarts=restarts,
                recovery=recovery,
                clock=clock,
            )
            for namespace in (namespaces or (None,))
        ]

    def __repr__(self) -> str:
        return f"<Watches {self._reflectors!r}>"

    def runs(self) -> list[Coroutine[Any, Any, None]]:
        """Returns what has to run."""
        check = HistoryCheck(watches=self._reflectors, interval_s=self._pace.history_check_s)
        return [*(reflector.run() for reflector in self._reflectors), check.run()]

    def why_blind(self) -> str:
        """Returns why the Sandboxes aren't known as they are now, "" when they are."""
        for reflector in self._reflectors:
            if not reflector.is_complete:
                return f"{reflector}: {reflector.problem or 'first list under way'}"
            if reflector.behind_since is not None and not reflector.is_behind(BEHIND_S):
                return f"{reflector}: {reflector.problem or 'the watch is interrupted'}"
        return ""
