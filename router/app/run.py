"""The whole program: binds its ports, runs one worker here or several under a supervisor, and says how it ended."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

import uvloop

from router import code_form
from router.admin.port import AdminServer
from router.app import descriptors, memory_limit
from router.app.background import Background, background
from router.app.facts import Facts, WorkerFacts
from router.app.reaper import Reaper
from router.app.sockets import Sockets
from router.app.stop import Stop
from router.app.supervisor import Supervisor, WorkersKeepDying
from router.app.version import installed_version
from router.app.worker import Worker
from router.proxy.ports import Waker
from router.server.listeners import BindError, addresses_of, bind, close_all
from router.settings import Settings
from router.telemetry.logs import configure, take_all

logger = logging.getLogger("sandbox_router.app")

_FAILED: Final = 1


def run(settings: Settings, *, waker: Waker | None = None) -> int:
    """Serves until SIGTERM or SIGINT, then drains; a second signal ends at once. SIGHUP reads every file again.

    `waker` wakes sandboxes in place of the one that asks Kubernetes, for a router in one process. Returns the exit code.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nothing has been read that could be read again
    configure(
        level=settings.logs.log_level,
        log_format="json" if settings.logs.log_format == "json" else "text",
    )
    take_all()
    _warn(settings)
    settings = _within_memory(_within_descriptors(settings))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, waker))
    except (BindError, ValueError, OSError, WorkersKeepDying) as exc:
        logger.critical("cannot go on", extra={"fields": {"reason": str(exc)}})
    return _FAILED


async def _serve(settings: Settings, waker: Waker | None) -> int:
    if waker is not None and settings.listeners.workers > 1:
        raise ValueError("a waker of its own is not handed to workers: set workers to 1")
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)
    admin = _bind_admin(settings)
    try:
        async with background() as tasks:
            tasks.start(Reaper().run())
            if settings.listeners.workers > 1:
                return await _serve_by_workers(settings, stop, admin, tasks)
            return await _serve_alone(settings, stop, admin, tasks, waker)
    finally:
        close_all(admin)


def _on_hangup(tasks: Background, reload: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Has SIGHUP read every mounted file again."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: tasks.start(reload()))


def _bind_admin(settings: Settings) -> list[socket.socket]:
    address = settings.listeners.admin_bind
    return [] if address is None else bind(address, setting="admin-bind")


async def _serve_alone(
    settings: Settings,
    stop: Stop,
    admin: list[socket.socket],
    tasks: Background,
    waker: Waker | None,
) -> int:
    listeners = settings.listeners
    bound: list[list[socket.socket]] = []
    try:
        for setting, address in (
            ("http-bind", listeners.http_bind),
            ("https-bind", listeners.https_bind),
            ("extauthz-bind", listeners.extauthz_bind),
        ):
            bound.append([] if address is None else bind(address, setting=setting))
    except BindError:
        for sockets in bound:
            close_all(sockets)
        raise
    http, https, checks = bound
    own = [at for sockets in (*bound, admin) for at in addresses_of(sockets)]
    worker = Worker(settings, Sockets(http=http, https=https, checks=checks, own=own), waker=waker)
    _on_hangup(tasks, worker.reload)
    try:
        async with _admin(admin, WorkerFacts(worker)):
            return await worker.run(stop, on_listening=lambda: _say(http, https, checks, admin))
    finally:
        close_all((*http, *https, *checks))


async def _serve_by_workers(
    settings: Settings, stop: Stop, admin: list[socket.socket], tasks: Background
) -> int:
    supervisor = Supervisor(settings, own_admin=addresses_of(admin))
    supervisor.bind()
    _on_hangup(tasks, supervisor.reload)
    async with _admin(admin, supervisor):
        logger.info(
            "starting workers",
            extra={
                "fields": {
                    "workers": settings.listeners.workers,
                    "listening": [_text(address) for address in supervisor.addresses()],
                    "admin": [_text(address) for address in addresses_of(admin)],
                    **_what_runs(),
                }
            },
        )
        return await supervisor.run(stop)


def _admin(sockets: list[socket.socket], facts: Facts) -> AdminServer:
    return AdminServer(
        sockets=sockets,
        snapshot=facts.snapshot,
        missing=facts.missing,
        notes=facts.notes,
        health=facts.health,
        explain=facts.explain,
        sandboxes=facts.sandboxes,
        activity=facts.activity,
    )


def _say(
    http: list[socket.socket],
    https: list[socket.socket],
    checks: list[socket.socket],
    admin: list[socket.socket],
) -> None:
    logger.info(
        "listening",
        extra={
            "fields": {
                "http": [_text(address) for address in addresses_of(http)],
                "https": [_text(address) for address in addresses_of(https)],
                **({"checks": [_text(at) for at in addresses_of(checks)]} if checks else {}),
                "admin": [_text(address) for address in addresses_of(admin)],
                **_what_runs(),
            }
        },
    )


def _what_runs() -> dict[str, str]:
    """Returns the version and the form of the code; in pure Python also why, since it costs more CPU."""
    form = code_form.CURRENT
    facts = {"version": installed_version(), "form": str(form)}
    return {**facts, "why_pure": form.reason} if form.reason else facts


def _text(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _warn(settings: Settings) -> None:
    if settings.auth.auth == ("none",):
        logger.warning("auth is none: whoever reaches this port reaches every sandbox")


def _within_memory(settings: Settings) -> Settings:
    """Returns the settings with a number for what connections may hold."""
    limit = memory_limit.container_limit()
    allowed = memory_limit.buffered_bytes_allowed(settings.limits.max_buffered_bytes, limit)
    memory_limit.tell(allowed, limit)
    return replace(settings, limits=replace(settings.limits, max_buffered_bytes=allowed))


def _within_descriptors(settings: Settings) -> Settings:
    """Returns the settings with no more connections than there are descriptors for."""
    wanted = settings.limits.max_connections
    open_files = descriptors.raise_limit()
    allowed = descriptors.connections_allowed(
        open_files, wanted=wanted, workers=settings.listeners.workers
    )
    descriptors.tell(open_files, wanted=wanted, allowed=allowed)
    return replace(settings, limits=replace(settings.limits, max_connections=allowed))
