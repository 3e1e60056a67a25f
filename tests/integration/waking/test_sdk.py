"""The Python SDK as it is published, against a sandbox that sleeps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from k8s_agent_sandbox.commands.command_executor import CommandExecutor
from k8s_agent_sandbox.connector import SandboxConnector
from k8s_agent_sandbox.exceptions import SandboxRequestError
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig

from tests.integration.waking.door import Door, door


async def run(the: Door, *, timeout: float) -> Any:
    """Runs a command in the sandbox `box` with the SDK, which blocks a thread of its own."""

    def blocking() -> Any:
        nothing: Any = None
        url = f"http://{the.address[0]}:{the.address[1]}"
        connector = SandboxConnector(
            "box", "default", SandboxDirectConnectionConfig(api_url=url), nothing
        )
        try:
            return CommandExecutor(connector, nothing, "test").run("hostname", timeout=timeout)  # type: ignore[arg-type]
        finally:
            connector.close()

    return await asyncio.to_thread(blocking)


async def test_a_command_in_a_suspended_sandbox_succeeds_within_its_own_time(
    tmp_path: Path,
) -> None:
    async with door(tmp_path, wake="all", pace={"starts_s": 1.0}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        told = await run(the, timeout=20)

        app = the.cluster.apps["box"]
        assert (told.exit_code, told.stdout.split()[0]) == (0, app.uid)
        assert [method for method, _, _ in app.requests] == ["POST"], "sent once"
        assert the.patches == 1


async def test_its_own_time_is_not_exceeded(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all", pace={"starts_s": 60}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        with pytest.raises(SandboxRequestError):
            await run(the, timeout=1)


async def test_without_waking_it_gets_the_answer_that_it_always_got(tmp_path: Path) -> None:
    async with door(tmp_path) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        with pytest.raises(SandboxRequestError) as told:
            await run(the, timeout=20)

        assert told.value.status_code == 409
        assert the.patches == 0
