"""The whole program: binds its ports, runs one worker here or several under a supervisor, and says how it ended."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
from typing import Final

import uvloop

from router import code_form
from router.admin.port import AdminServer
from router.app.facts import Facts, WorkerFacts
from router.app.supervisor import Supervisor, WorkersKeepDying
from router.app.worker import Sockets, Stop, Worker, installed_version
from router.server.listeners import BindError, addresses_of, bind, close_all
from router.settings import Settings
from router.telemetry.logs import configure, take_all

logger = logging.getLogger("sandbox_router.app")

_FAILED: Final = 1
_OTHER_DESCRIPTORS: Final = 256
"""For listeners, logs, the admin port, the API server, files being read."""


def run(settings: Settings) -> int:
    """Serves until SIGTERM or SIGINT, then drains; a second signal ends at once. Returns the exit code."""
    configure(
        level=settings.logs.log_level,
        log_format="json" if settings.logs.log_format == "json" else "text",
    )
    take_all()
    _warn(settings)
    _raise_descriptor_limit(settings.limits.max_connections)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings))
    except (BindError, ValueError, OSError, WorkersKeepDying) as exc:
        logger.critical("cannot go on", extra={"fields": {"reason": str(exc)}})
    return _FAILED


async def _serve(settings: Settings) -> int:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)
    admin = _bind_admin(settings)
    try:
        if settings.listeners.workers > 1:
            return await _serve_by_workers(settings, stop, admin)
        return await _serve_alone(settings, stop, admin)
    finally:
        close_all(admin)


def _bind_admin(settings: Settings) -> list[socket.socket]:
    address = settings.listeners.admin_bind
    return [] if address is None else bind(address, setting="admin-bind")


async def _serve_alone(settings: Settings, stop: Stop, admin: list[socket.socket]) -> int:
    listeners = settings.listeners
    http = [] if listeners.http_bind is None else bind(listeners.http_bind, setting="http-bind")
    try:
        https = (
            [] if listeners.https_bind is None else bind(listeners.https_bind, setting="https-bind")
        )
    except BindError:
        close_all(http)
        raise
    own = [*addresses_of(http), *addresses_of(https), *addresses_of(admin)]
    worker = Worker(settings, Sockets(http=http, https=https, own=own))
    try:
        async with _admin(admin, WorkerFacts(worker)):
            return await worker.run(stop, on_listening=lambda: _say(http, https, admin))
    finally:
        close_all((*http, *https))


async def _serve_by_workers(settings: Settings, stop: Stop, admin: list[socket.socket]) -> int:
    supervisor = Supervisor(settings, own_admin=addresses_of(admin))
    supervisor.bind()
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
        explain=facts.explain,
        sandboxes=facts.sandboxes,
    )


def _say(http: list[socket.socket], https: list[socket.socket], admin: list[socket.socket]) -> None:
    logger.info(
        "listening",
        extra={
            "fields": {
                "http": [_text(address) for address in addresses_of(http)],
                "https": [_text(address) for address in addresses_of(https)],
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


def _raise_descriptor_limit(max_connections: int) -> None:
    """Raises the soft limit of open files as far as it goes: the usual 1,024 would end at 500 clients, two descriptors each.

    Warns when `max_connections` (0 = no limit) can't be reached with what there is.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            logger.warning("cannot raise the limit of open files", extra={"fields": {"soft": soft}})
    wanted = 2 * max_connections + _OTHER_DESCRIPTORS
    if max_connections and soft < wanted:
        logger.warning(
            "too few open files are allowed for max-connections: raise the limit, or lower max-connections",
            extra={
                "fields": {"allowed": soft, "wanted": wanted, "max_connections": max_connections}
            },
        )
