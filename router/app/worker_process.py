"""The program of one worker process: the supervisor starts it, hands it its sockets and asks it for facts."""

from __future__ import annotations

import asyncio
import logging
import pickle
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import uvloop

from router.app.channel import Channel
from router.app.facts import TABLE, WorkerFacts
from router.app.shared_counts import Share, join
from router.app.sign_outs import SIGNED_OUT, SignOuts
from router.app.sockets import Sockets
from router.app.stop import Stop
from router.app.wishes import AWAKE
from router.app.worker import Worker
from router.settings import Settings
from router.telemetry.logs import configure, take_all

logger = logging.getLogger("sandbox_router.app")

LISTENING = "listening"
_TELL_WITHIN_S = 15.0
"""The supervisor waits for every worker before it answers, and one may hang."""
END_AT_ONCE = signal.SIGUSR1
"""From the supervisor alone: a second SIGTERM may come from whoever signals every process of a group (systemd, tini -g)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the supervisor gives a worker first. Pickled: it goes from this code to this code, over a socket pair."""

    settings: Settings
    http_fds: tuple[int, ...]
    https_fds: tuple[int, ...]
    checks_fds: tuple[int, ...]
    own: tuple[tuple[str, int], ...]
    share: Share


async def _run(control: socket.socket) -> int:
    channel = await Channel.open(control)
    plan: Plan = pickle.loads(await channel.receive())  # noqa: S301 - from our own parent
    configure(
        level=plan.settings.logs.log_level,
        log_format="json" if plan.settings.logs.log_format == "json" else "text",
    )
    take_all()
    stop = Stop()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.gently.set)
    loop.add_signal_handler(END_AT_ONCE, stop.insist)
    worker = Worker(
        plan.settings,
        Sockets(
            http=[socket.socket(fileno=fd) for fd in plan.http_fds],
            https=[socket.socket(fileno=fd) for fd in plan.https_fds],
            checks=[socket.socket(fileno=fd) for fd in plan.checks_fds],
            own=plan.own,
        ),
        elsewhere=join(plan.share),
        ask_siblings=lambda page: channel.ask(TABLE, page),
        tell_wish=lambda wish: channel.ask(AWAKE, wish),
    )
    facts = WorkerFacts(worker)
    sign_outs: SignOuts | None = None

    async def answer(asked: str, argument: Any) -> Any:
        if asked != SIGNED_OUT:
            return await facts.answer(asked, argument)
        if sign_outs is not None:
            sign_outs.learn(argument)
        return None

    def is_listening() -> None:
        nonlocal sign_outs
        if worker.access.sessions is not None:
            sign_outs = SignOuts(
                worker.access.rights.ended_sessions,
                ask=lambda pairs: channel.ask(SIGNED_OUT, pairs, timeout_s=_TELL_WITHIN_S),
            )
        tasks.create_task(_begin(channel, sign_outs))

    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(worker.run(stop, on_listening=is_listening), name="worker")
        answering = tasks.create_task(_answer_until_alone(channel, answer, stop), name="facts")
        code = await serving
        answering.cancel()
        if sign_outs is not None:
            await sign_outs.close()
    return code


async def _begin(channel: Channel, sign_outs: SignOuts | None) -> None:
    # In this order: what ends from now on is told to this process, too, and what ended before is asked for.
    await channel.tell(LISTENING)
    if sign_outs is not None:
        await sign_outs.catch_up()


async def _answer_until_alone(
    channel: Channel, answer: Callable[[str, Any], Awaitable[Any]], stop: Stop
) -> None:
    """Answers the supervisor; when it is gone, so is the reason to serve."""
    await channel.serve(answer=answer)
    logger.error("the supervisor is gone: draining")
    stop.gently.set()


def main() -> int:
    """Runs a worker whose control socket is the descriptor in argv[1]. Returns the exit code."""
    control = socket.socket(fileno=int(sys.argv[1]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = 1
        try:
            code = runner.run(_run(control))
        except* (ValueError, OSError) as group:
            for exc in group.exceptions:
                logger.error("the worker cannot go on", extra={"fields": {"reason": str(exc)}})
    return code


if __name__ == "__main__":
    sys.exit(main())
