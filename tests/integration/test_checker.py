"""The black-box checker, where it lies beside this repository, against the router as its user runs it."""

import asyncio
import json
import socket
import sys
from pathlib import Path

import pytest

from tests.integration.serve import TOKEN, Served, served

CHECKER = Path(__file__).parents[2].parent / "shared" / "checks" / "check.py"
LIMIT_S = 100
# The checker wants a redirect to the pod's own address left alone; clients can't follow that, so it leads back to the router.
OTHERWISE = {"fidelity-response/redirect-not-followed": "FAIL Location b'/echo?followed'"}

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(
        not CHECKER.is_file(),
        reason=f"the checker is not beside this repository ({CHECKER}); tests/integration/proxy covers its ground",
    ),
]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def verdicts(router: Served, directory: Path) -> dict[str, str]:
    """Returns what the checker says of each case: `PASS`, or the whole line."""
    pod, result = free_port(), directory / "result.json"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(CHECKER), "--quiet", "--json", str(result)),
        *("--router", "{}:{}".format(*router.address), "--pod", f"127.0.0.1:{pod}"),
        *("--pid", str(router.pid), "--header-timeout", "3", "--answer-timeout", "3"),
        *("--header", "X-Sandbox-ID: sb1", "--header", f"X-Sandbox-Port: {pod}"),
        *("--header", f"Authorization: Bearer {TOKEN}"),
        *("--bad-auth-header", "Authorization: Bearer not-the-token"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert result.is_file(), said.decode()
    return {
        case["case"]: "PASS" if case["verdict"] == "PASS" else "{verdict} {got}".format(**case)
        for case in json.loads(result.read_text())["results"]
    }


async def test_every_case_of_the_checker_passes(tmp_path):
    async with served(tmp_path, "sb1", header_timeout="3s", proxy_timeout="3s") as router:
        found = await verdicts(router, tmp_path)
    assert len(found) > 200
    assert {case: verdict for case, verdict in found.items() if verdict != "PASS"} == OTHERWISE
