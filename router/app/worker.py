"""Worker: one process's data plane, from its listeners to its connections to sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from router.admin.activity import ActivityFilter
from router.admin.explain import Explainer, Question
from router.admin.sandbox_listing import Filter, listing
from router.app import garbage
from router.app.access import Access, build_access, needs_reviews
from router.app.adoption import AskSiblings, adopt_table
from router.app.background import Background, background
from router.app.cluster import api_if
from router.app.home import build_home
from router.app.proxy_options import build_pool, options_of, places_of, session_paths_of
from router.app.sandboxes import Sandboxes, build_resolver, build_sandboxes
from router.app.shared_counts import ALL_ALONE, PodCounts
from router.app.shown import show_readings
from router.app.sockets import Sockets
from router.app.stop import Stop, unless_stopped
from router.app.telling import build_telemetry
from router.app.version import installed_version
from router.app.waking import build_wakes, needs_wakes, outlook_of
from router.app.wishes import TellWish, Wishes
from router.auth.authenticator import CertificateIdentity
from router.auth.mtls import identity_of, parse_xfcc
from router.errors import Overloaded
from router.kube.reviews import KubernetesReviewer
from router.kube.waker import KubernetesWaker
from router.proxy.admission import Admission
from router.proxy.budget import Budget
from router.proxy.checks import Checks
from router.proxy.connections import Connections
from router.proxy.connector import Connector
from router.proxy.deadlines import Deadlines
from router.proxy.gateway import Gateway
from router.proxy.own_paths import OwnPaths
from router.proxy.ports import Waker
from router.routing.endpoint import SandboxRef
from router.routing.handover import Donor, Page
from router.routing.target import TargetParser
from router.server.drain import drain
from router.server.handshakes import TlsAcceptor
from router.server.listeners import Listener
from router.server.tls import TlsContextSource
from router.settings import Settings
from router.tasks import TaskSet
from router.telemetry import readings
from router.telemetry.access_log import AccessLog
from router.telemetry.activity import Activity, Moment
from router.telemetry.metrics import Metrics
from router.telemetry.namespace_labels import NamespaceLabels
from router.watched_file import Reloadable, reload_all

logger = logging.getLogger("sandbox_router.app")


class Worker:
    """Everything of one process that carries requests. Build it inside the running loop with build()."""

    def __init__(
        self,
        settings: Settings,
        sockets: Sockets,
        *,
        elsewhere: PodCounts = ALL_ALONE,
        ask_siblings: AskSiblings | None = None,
        tell_wish: TellWish | None = None,
        waker: Waker | None = None,
    ) -> None:
        """`waker` takes the place of the one that asks Kubernetes."""
        self._settings = settings
        self._waker = waker
        self._tell_wish = tell_wish
        self._ask_siblings = ask_siblings
        self._elsewhere = elsewhere
        self._sockets = sockets
        self._is_built = False
        self._is_stopping = False
        self._is_listening = False
        self._listeners: list[Listener] = []
        self.metrics = Metrics(
            version=installed_version(),
            namespaces=NamespaceLabels.of_setting(settings.logs.metrics_namespaces),
        )
        self._access_log = (
            AccessLog(
                log_format="json" if settings.logs.log_format == "json" else "text",
                is_shared=settings.listeners.workers > 1,
            )
            if settings.logs.access_log
            else None
        )
        self._tls: TlsContextSource | None = None
        self._donor: Donor | None = None
        self._deadlines = Deadlines()
        self._activity = Activity(is_gone=lambda ref, uid: self.sandboxes.is_gone(ref, uid))
        self.started_at = self._activity.complete_since
        self.sandboxes: Sandboxes
        self.access: Access
        self.gateway: Gateway
        self.checks: Checks
        self.targets = TargetParser(
            base_domain=settings.routing.base_domain,
            path_prefix=settings.routing.path_prefix,
            default_port=settings.routing.default_port,
            default_namespace=settings.routing.default_namespace,
            proxy_timeout_s=settings.time.proxy_timeout_s,
        )

    def __repr__(self) -> str:
        return f"<Worker pid={os.getpid()} listening={self._is_listening} stopping={self._is_stopping}>"

    # --- facts for the admin port ---

    def missing(self) -> list[str]:
        """Returns what keeps this worker from being ready; [] when it is."""
        missing = ["the router is shutting down"] if self._is_stopping else []
        if not self._is_listening and not self._is_stopping:
            missing.append("the listeners are not open yet")
        if not self._is_built:
            return missing
        missing += self.sandboxes.discovery.missing()
        for tell in self.access.missing:
            missing += tell()
        limit_s = self._settings.discovery.max_staleness_s
        if limit_s and self.sandboxes.source.is_stale(limit_s):
            missing.append("the table of sandboxes is older than max-staleness")
        return missing

    async def list_sandboxes(self, wanted: Filter) -> dict[str, Any]:
        """Returns the known sandboxes that the filter lets through."""
        if not self._is_built:
            return await listing((), wanted)
        return await listing(self.sandboxes.known(), wanted, notes_about=self.sandboxes.notes_about)

    def activity(self, wanted: ActivityFilter) -> Moment:
        """Returns what this worker saw of sandboxes' use."""
        under_way = self.gateway.connections.under_way() if self._is_built else ()
        return self._activity.moment(under_way, namespace=wanted.namespace, name=wanted.name)

    async def explain(self, question: Question) -> dict[str, Any]:
        """Returns each decision about a request, up to the address. Raises Overloaded before there is anything to ask."""
        if not self._is_built:
            raise Overloaded("This router is still starting.")
        explanation = await self._explainer.explain(question)
        return {**explanation, "notes": self.notes() + self._notes_about(explanation["endpoint"])}

    def notes(self) -> list[str]:
        """Returns what works less well than it could."""
        if not self._is_built:
            return []
        return self.sandboxes.notes() + [said for tell in self.access.notes for said in tell()]

    def _notes_about(self, endpoint: Mapping[str, Any] | None) -> list[str]:
        if not endpoint or not endpoint["known"]:
            return []
        ref = SandboxRef(endpoint["namespace"], endpoint["name"])
        return list(self.sandboxes.notes_about(ref))

    # --- life ---

    async def run(self, stop: Stop, *, on_listening: Callable[[], None] = lambda: None) -> int:
        """Serves until asked to stop, then drains. Returns the exit code. Raises ValueError, OSError for a bad start."""
        async with contextlib.AsyncExitStack() as resources:
            if not await unless_stopped(self._build(resources), stop):
                logger.info("asked to stop before anything was served")
                return 0
            tasks = await resources.enter_async_context(background())
            for run in (self._deadlines.run, self.sandboxes.run, *self.access.runners):
                tasks.start(run())
            await adopt_table(self.sandboxes, self._ask_siblings)
            await self._listen(tasks, resources)
            on_listening()
            await tasks.until(stop.gently)
            await self._drain(stop)
        return 0

    async def reload(self) -> None:
        """Reads every mounted file again, and fetches what is fetched; says in the log how it ended."""
        if not self._is_built:
            return
        tls = None if self._tls is None else self._tls.files
        own: dict[str, Reloadable | None] = {"sandboxes": self.sandboxes.file, "certificate": tls}
        there = {name: source for name, source in own.items() if source is not None}
        await reload_all({**self.access.sources(), **there})

    async def _build(self, resources: contextlib.AsyncExitStack) -> None:
        settings = self._settings
        open_api = partial(api_if, settings, resources, os.environ)
        api = await open_api(settings.discovery.discovery == "kubernetes")
        review_api = await open_api(needs_reviews(settings))
        wake_api = await open_api(self._waker is None and needs_wakes(settings))
        reviewer = None if review_api is None else KubernetesReviewer(api=review_api)
        resolver = build_resolver(settings, metrics=self.metrics)
        resources.push_async_callback(resolver.close)
        options = options_of(settings)
        budget = Budget(limit_bytes=options.max_buffered_bytes)
        pool = build_pool(
            settings, own_listeners=lambda: self._sockets.own, resolver=resolver, budget=budget
        )
        resources.callback(pool.close)
        self.sandboxes = build_sandboxes(
            settings, api=api, on_retired=pool.retire, waiting_elsewhere=self._elsewhere.waiting
        )
        self.access = build_access(settings, reviewer=reviewer, current=self.sandboxes.current)
        for close in self.access.closers:
            resources.push_async_callback(close)
        telemetry, tracer = build_telemetry(
            settings,
            resources,
            metrics=self.metrics,
            access_log=self._access_log,
            activity=self._activity,
            environment=os.environ,
        )
        deadlines = self._deadlines
        connections = Connections(
            places=places_of(settings, self._elsewhere.connections),
            first_request_s=options.header_timeout_s,
            deadlines=deadlines,
            telemetry=telemetry,
            rights=self.access.rights,
        )
        openings = TaskSet()
        resources.push_async_callback(openings.close)
        admission = Admission(
            targets=self.targets,
            authenticator=self.access.authenticator,
            source=self.sandboxes.source,
            authorizer=self.access.authorizer,
            identity_in_header=parse_xfcc,
            options=options,
            requests_elsewhere=self._elsewhere.requests,
            tunnels_elsewhere=self._elsewhere.tunnels,
            connects_elsewhere=self._elsewhere.connects,
        )
        waker = self._waker if wake_api is None else KubernetesWaker(api=wake_api)
        wakes = build_wakes(
            settings, resources, waker=waker, index=self.sandboxes.index, telemetry=telemetry
        )
        deadlines.sweep_with(pool.sweep)
        deadlines.sweep_with(budget.look)
        connector = Connector(
            admission=admission,
            source=self.sandboxes.source,
            pool=pool,
            telemetry=telemetry,
            options=options,
            wakes=wakes,
            own_paths=OwnPaths(
                awake=Wishes(self._activity, tell=self._tell_wish),
                awake_limit_s=settings.time.awake_limit_s,
                tasks=openings,
                sessions=session_paths_of(self.access.sessions, options),
                connects=options.connects,
            ),
            home=build_home(
                settings,
                admission=admission,
                sandboxes=self.sandboxes,
                access=self.access,
                wakes=wakes,
                options=options,
            ),
        )
        self.gateway = Gateway(
            admission=admission,
            connector=connector,
            connections=connections,
            pool=pool,
            telemetry=telemetry,
            tasks=openings,
            budget=budget,
            options=options,
            identity_of=_identity_of,
            tracer=tracer,
        )
        self.checks = Checks(
            gateway=self.gateway,
            connector=connector,
            tasks=openings,
            budget=budget,
            options=options,
        )
        self._explainer = Explainer(
            admission=admission,
            source=self.sandboxes.source,
            authorizer=self.access.authorizer,
            is_own_listener=pool.is_own_listener,
            is_draining=lambda: connections.is_draining,
            last_seen=pool.last_seen,
            wake_outlook=outlook_of(wakes),
            timeout_s=options.proxy_timeout_s,
        )
        show_readings(self.metrics, pool, budget, self.sandboxes, self.access)
        if self.sandboxes.index is not None:
            self._donor = Donor(self.sandboxes.index)
        self._is_built = True

    def table_page(self, asked: Page) -> Page | None:
        """Returns a page of this worker's table for a sibling; None without a whole table."""
        return None if self._donor is None else self._donor.page(asked)

    async def _listen(self, tasks: Background, resources: contextlib.AsyncExitStack) -> None:
        gateway = self.gateway
        if self._sockets.http:
            await self._accept(self._sockets.http, lambda: gateway.connection(is_tls=False))
        if self._sockets.https:
            await self._listen_with_tls(tasks, resources)
        if self._sockets.checks:
            await self._accept(self._sockets.checks, self.checks.connection)
        garbage.settle()
        self._is_listening = True

    async def _accept(
        self, sockets: Sequence[socket.socket], protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        listener = Listener(sockets, protocol=protocol)
        await listener.start()
        self._listeners.append(listener)

    async def _listen_with_tls(
        self, tasks: Background, resources: contextlib.AsyncExitStack
    ) -> None:
        settings, gateway = self._settings, self.gateway
        tls = settings.tls
        assert tls.tls_cert_file is not None
        assert tls.tls_key_file is not None

        def use(context: ssl.SSLContext) -> None:
            acceptor.context = context

        self._tls = TlsContextSource(
            cert_file=tls.tls_cert_file,
            key_file=tls.tls_key_file,
            client_ca_file=tls.tls_client_ca_file,
            mtls=tls.mtls,
            on_change=use,
        )
        self._tls.load_once()
        acceptor = TlsAcceptor(
            context=self._tls.context,
            register=gateway.connections,
            protocol=lambda: gateway.connection(is_tls=True),
            most=-(-settings.limits.max_handshakes // settings.listeners.workers),
        )
        resources.push_async_callback(acceptor.close)
        self._deadlines.sweep_with(acceptor.sweep)
        await self._accept(self._sockets.https, acceptor.accept)
        readings.read_open_handshakes(self.metrics, acceptor)
        tasks.start(self._tls.run())
        tasks.start(self._tls.expiry.run())
        readings.read_certificate(self.metrics, self._tls.files)
        readings.read_reloads(self.metrics, "tls_cert", self._tls.files)
        readings.read_certificate_ends(self.metrics, self._tls.expiry)
        readings.read_handshakes(self.metrics, self._tls.handshakes.failed)

    async def _drain(self, stop: Stop) -> None:
        self._is_stopping = True
        time_settings = self._settings.time
        loop = asyncio.get_running_loop()
        draining = loop.create_task(
            drain(
                self.gateway.connections,
                stop_accepting=self._stop_accepting,
                drain_delay_s=time_settings.drain_delay_s,
                shutdown_timeout_s=time_settings.shutdown_timeout_s,
            )
        )
        hurry = loop.create_task(stop.at_once.wait())
        await asyncio.wait((draining, hurry), return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            logger.warning("asked again to stop: ending at once")
            draining.cancel()
            self._stop_accepting()
            self.gateway.connections.end_now()
        hurry.cancel()
        await asyncio.gather(draining, hurry, return_exceptions=True)
        self.gateway.connections.end_now()  # whoever hasn't taken the last bytes

    def _stop_accepting(self) -> None:
        for listener in self._listeners:
            listener.stop()
        self._listeners = []


def _identity_of(ssl_object: Any) -> CertificateIdentity | None:
    return None if ssl_object is None else identity_of(ssl_object.getpeercert())
