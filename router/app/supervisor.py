"""Supervisor: several workers that share the ports; one admin port that adds them up; a dead worker is replaced."""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from router.admin.activity import ActivityFilter, Seen
from router.admin.explain import Question
from router.admin.sandbox_listing import Filter
from router.app.channel import Channel, ChannelClosed
from router.app.facts import TABLE, filter_text, question_text
from router.app.shared_counts import SharedCounts, new_secret
from router.app.sign_outs import SIGNED_OUT
from router.app.slot import Slot
from router.app.stop import Stop
from router.app.uses import WorkersUses, wanted_text
from router.app.wishes import AWAKE
from router.app.worker_process import END_AT_ONCE, LISTENING, Plan
from router.auth.revocation import EndedSessions
from router.errors import Overloaded
from router.server.listeners import addresses_of, bind
from router.settings import Settings
from router.telemetry.snapshot import Snapshot
from router.telemetry.worker_totals import WorkerTotals

logger = logging.getLogger("sandbox_router.app")

_DEATHS: Final = 5
_DEATHS_WITHIN_S: Final = 30.0
"""So many dead workers in so short a time are no accident: the whole ends, and Kubernetes decides."""
_RESPAWN_PAUSE_S: Final = 0.5
_KILLED_WITHIN_S: Final = 5.0
_WORKER_PROGRAM: Final = """\
import signal, sys
for ours in (signal.SIGINT, signal.SIGHUP):  # from a terminal they reach every process of the group, at any moment
    signal.signal(ours, signal.SIG_IGN)
from router.app.worker_process import main
sys.exit(main())
"""
_LOOK_EVERY_S: Final = 1.0
_HUNG_AFTER_S: Final = 10.0
"""No work of a worker takes nearly as long at a stretch: it is stopped, or caught in an endless loop."""
_START_WITHIN_S: Final = 120.0
_LEFT_AFTER_S: Final = 5.0
"""How much longer than a drain may take a worker has to end."""


class WorkersKeepDying(RuntimeError):
    """Replacing workers doesn't help."""


class Supervisor:
    """Starts `workers` processes, replaces the ones that die, and answers for all of them."""

    def __init__(self, settings: Settings, *, own_admin: Sequence[tuple[str, int]]) -> None:
        self._settings = settings
        self._own_admin = tuple(own_admin)
        self._slots: list[Slot] = []
        self._deaths: deque[float] = deque(maxlen=_DEATHS)
        self._totals = WorkerTotals()
        self._uses = WorkersUses(started_at=time.monotonic())
        self._ended_sessions = EndedSessions()
        self._lives = itertools.count(1)
        self._is_stopping = False
        self._counts = SharedCounts.create(workers=settings.listeners.workers)
        self._secret = new_secret()

    def __repr__(self) -> str:
        living = sum(slot.is_listening for slot in self._slots)
        return f"<Supervisor workers={len(self._slots)} listening={living}>"

    def bind(self) -> list[tuple[str, int]]:
        """Binds every worker's sockets. Returns where they listen. Raises BindError."""
        listeners = self._settings.listeners
        binds = {
            "http-bind": listeners.http_bind,
            "https-bind": listeners.https_bind,
            "extauthz-bind": listeners.extauthz_bind,
        }
        for number in range(listeners.workers):
            bound: list[list[socket.socket]] = []
            for setting, address in binds.items():
                sockets = [] if address is None else bind(address, setting=setting, shared=True)
                bound.append(sockets)
                if address is not None:
                    # Port 0 means any: the first worker's choice holds for all.
                    binds[setting] = address._replace(port=sockets[0].getsockname()[1])
            self._slots.append(Slot(number, *bound))
        return self.addresses()

    def addresses(self) -> list[tuple[str, int]]:
        first = self._slots[0]
        return addresses_of(first.http) + addresses_of(first.https) + addresses_of(first.checks)

    def close(self) -> None:
        """Closes what was bound and made; for one whose run() has ended or never began."""
        for slot in self._slots:
            slot.close_sockets()
        self._counts.close()

    # --- life ---

    async def run(self, stop: Stop) -> int:
        """Runs until stopped. Returns the exit code. Raises WorkersKeepDying."""
        try:
            async with asyncio.TaskGroup() as tasks:
                keepers = [
                    tasks.create_task(self._keep(slot), name=f"worker {slot.number}")
                    for slot in self._slots
                ]
                looking = tasks.create_task(self._look_after_workers(), name="look after workers")
                await self._until_stopped(stop, keepers)
                self._is_stopping = True
                self._signal(signal.SIGTERM)
                closing = tasks.create_task(self._close_sockets_in_time(), name="close sockets")
                hurrying = tasks.create_task(self._hurry(stop), name="hurry")
                await asyncio.wait(keepers, timeout=self._drained_within_s())
                self._signal(signal.SIGKILL)
                looking.cancel()
                closing.cancel()
                hurrying.cancel()
        except* WorkersKeepDying as group:
            raise group.exceptions[0] from None
        finally:
            await self._kill()
            self.close()
        return 0

    async def _until_stopped(self, stop: Stop, keepers: list[asyncio.Task[None]]) -> None:
        wish = asyncio.get_running_loop().create_task(stop.gently.wait())
        try:
            await asyncio.wait((wish, *keepers), return_when=asyncio.FIRST_COMPLETED)
        finally:
            wish.cancel()

    async def _keep(self, slot: Slot) -> None:
        """Has a worker in this place, for as long as we run."""
        while not self._is_stopping:
            slot.life = next(self._lives)
            self._totals.born(slot.life)
            try:
                code = await self._one_life(slot)
            finally:
                self._totals.died(slot.life)
                self._counts.clear(slot.number)
            if self._is_stopping:
                return
            now = time.monotonic()
            self._deaths.append(now)
            logger.error(
                "a worker died and is replaced",
                extra={"fields": {"worker": slot.number, "exit_code": code}},
            )
            if len(self._deaths) == _DEATHS and now - self._deaths[0] < _DEATHS_WITHIN_S:
                raise WorkersKeepDying(f"{_DEATHS} workers died within {_DEATHS_WITHIN_S:g} s")
            await asyncio.sleep(_RESPAWN_PAUSE_S)

    async def _one_life(self, slot: Slot) -> int:
        ours, theirs = socket.socketpair()
        share = self._counts.share(slot.number, self._secret)
        http_fds = tuple(sock.fileno() for sock in slot.http)
        https_fds = tuple(sock.fileno() for sock in slot.https)
        checks_fds = tuple(sock.fileno() for sock in slot.checks)
        with theirs:
            try:
                slot.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    _WORKER_PROGRAM,
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(), share.fd, *http_fds, *https_fds, *checks_fds),
                )
            except BaseException:
                ours.close()
                raise
        if self._is_stopping:  # since it was started: it has heard of nothing, and carries nothing
            ours.close()
            slot.process.kill()
            return await slot.process.wait()
        slot.heard_at = time.monotonic()
        channel = slot.channel = await Channel.open(ours)
        own = (*self.addresses(), *self._own_admin)
        try:
            await channel.send(
                pickle.dumps(Plan(self._settings, http_fds, https_fds, checks_fds, own, share))
            )
            await channel.serve(
                answer=self._answer, on_event=lambda event: self._noted(slot, event)
            )
            return await slot.process.wait()
        except ChannelClosed:
            return await slot.process.wait()
        finally:
            channel.close()
            slot.channel = None
            slot.is_listening = False

    def _noted(self, slot: Slot, event: str) -> None:
        if event == LISTENING:
            slot.is_listening = True
            slot.heard_at = time.monotonic()

    # --- what workers ask ---

    async def _answer(self, question: str, argument: Any) -> Any:
        """Answers a worker. Raises KeyError for what isn't one of the questions."""
        if question == TABLE:
            return await self._table_page(argument)
        if question == AWAKE:
            return self._uses.promise(argument, now=time.monotonic())
        if question == SIGNED_OUT:
            return await self._spread_sign_outs(argument)
        raise KeyError(question)

    async def _spread_sign_outs(self, pairs: list[tuple[str, float]]) -> Any:
        """Has every worker know of sessions that ended in one. Returns all that are known to who tells none: a new worker."""
        if not pairs:
            return self._ended_sessions.known()
        self._ended_sessions.learn(pairs)
        await self._ask_all(SIGNED_OUT, pairs)
        return None

    async def _table_page(self, argument: Any) -> Any:
        """Returns a page of another worker's table for a new one. None when nobody has a whole one."""
        donor = argument.get("donor")
        for slot in self._slots if donor is None else (self._slots[donor],):
            page = await self._ask(slot, TABLE, argument)
            if page is not None:
                return {**page, "donor": slot.number}
        return None

    # --- workers that hang ---

    async def _look_after_workers(self) -> None:
        """Ends workers that don't answer any more; their places are filled as those of any that died."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await asyncio.gather(*(self._look_after(slot) for slot in self._slots))

    async def _look_after(self, slot: Slot) -> None:
        if slot.process is None or slot.process.returncode is not None:
            return
        life = slot.life
        await self._ask(slot, "missing", None)
        silent_s = time.monotonic() - slot.heard_at
        limit_s = _HUNG_AFTER_S if slot.is_listening else _START_WITHIN_S
        if silent_s < limit_s or slot.life != life or slot.process.returncode is not None:
            return
        logger.error(
            "a worker hangs and is killed"
            if slot.is_listening
            else "a worker does not finish its start and is killed",
            extra={"fields": {"worker": slot.number, "silent_s": round(silent_s, 1)}},
        )
        slot.process.kill()

    async def _kill(self) -> None:
        """Ends every process that is left, and sees it off: nobody else would take its exit code."""
        self._signal(signal.SIGKILL)
        processes = [slot.process for slot in self._slots if slot.process is not None]
        try:
            async with asyncio.timeout(_KILLED_WITHIN_S):
                for process in processes:
                    await process.wait()
        except TimeoutError:
            logger.error("a worker does not even end when it is killed")

    def _signal(self, number: signal.Signals) -> None:
        for slot in self._slots:
            if slot.process is not None and slot.process.returncode is None:
                slot.process.send_signal(number)

    def _drained_within_s(self) -> float:
        times = self._settings.time
        return times.drain_delay_s + times.shutdown_timeout_s + _LEFT_AFTER_S

    async def _close_sockets_in_time(self) -> None:
        """Our copies of the sockets would go on queueing connections that nobody accepts."""
        await asyncio.sleep(self._settings.time.drain_delay_s)
        for slot in self._slots:
            slot.close_sockets()

    async def _hurry(self, stop: Stop) -> None:
        await stop.at_once.wait()
        self._signal(END_AT_ONCE)

    async def reload(self) -> None:
        """Has every worker read its files again."""
        await self._ask_all("reload")

    # --- facts for the admin port ---

    async def health(self) -> list[str]:
        """Returns the workers that should answer and don't."""
        return [
            f"worker {slot.number} has not answered for {silent_s:.0f} s"
            for slot in self._slots
            if (silent_s := slot.silent_for_s())
        ]

    async def snapshot(self) -> Snapshot:
        """Returns the metrics of all workers, dead ones included, added up."""

        async def ask(slot: Slot) -> None:
            life = slot.life
            answer = await self._ask(slot, "snapshot", None)
            if answer is not None:
                self._totals.told(life, answer)

        await asyncio.gather(*(ask(slot) for slot in self._slots))
        return self._totals.total()

    async def missing(self) -> list[str]:
        """Returns what keeps any worker from being ready."""
        missing = ["the router is shutting down"] if self._is_stopping else []
        for slot, answer in await self._ask_all("missing"):
            if answer is not None:
                missing += [f"worker {slot.number}: {what}" for what in answer]
            else:
                missing.append(slot.absence())
        return missing

    async def notes(self) -> list[str]:
        """Returns what works less well than it could; what all workers say, once."""
        answers = [answer or () for _, answer in await self._ask_all("notes")]
        return list(dict.fromkeys(note for answer in answers for note in answer))

    async def sandboxes(self, wanted: Filter) -> Mapping[str, Any]:
        """Returns the known sandboxes, as the first worker that answers sees them. Raises Overloaded."""
        return await self._ask_one("sandboxes", filter_text(wanted))

    async def explain(self, question: Question) -> Mapping[str, Any]:
        """Returns each decision about a request, as the first worker that answers decides it. Raises Overloaded."""
        return await self._ask_one("explain", question_text(question))

    async def activity(self, wanted: ActivityFilter) -> Seen:
        """Returns what all workers saw of sandboxes' use, and which could not be asked."""
        now = time.monotonic()
        answers = await self._ask_all("activity", wanted_text(wanted))
        return await self._uses.add_up(
            [answer for _, answer in answers if answer is not None],
            gaps=[slot.absence() for slot, answer in answers if answer is None],
            wanted=wanted,
            now=now,
        )

    async def _ask_all(self, question: str, argument: Any = None) -> list[tuple[Slot, Any]]:
        async def ask(slot: Slot) -> tuple[Slot, Any]:
            return slot, await self._ask(slot, question, argument)

        return list(await asyncio.gather(*(ask(slot) for slot in self._slots)))

    async def _ask_one(self, question: str, argument: Any) -> Mapping[str, Any]:
        for slot in sorted(self._slots, key=lambda slot: slot.silent_for_s()):
            answer = await self._ask(slot, question, argument)
            if isinstance(answer, dict):
                return answer
        raise Overloaded("No worker process is running.")

    async def _ask(self, slot: Slot, question: str, argument: Any) -> Any:
        """Returns the worker's answer; None when it has none in time."""
        if slot.channel is None or not slot.is_listening:
            return None
        try:
            answer = await slot.channel.ask(question, argument)
        except (ChannelClosed, TimeoutError, RuntimeError) as exc:
            logger.debug(
                "a worker gave no answer",
                extra={"fields": {"worker": slot.number, "asked": question, "reason": _why(exc)}},
            )
            return None
        slot.heard_at = time.monotonic()
        return answer


def _why(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)
