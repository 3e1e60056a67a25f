"""Tests what `helm test` would find out, by its own script against real routers."""

import asyncio
import sys

import pytest

from tests.deploy import fronts
from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import NAMESPACE, TOKEN_REVIEW, chart


def pod(values):
    return chart(values).one("Pod", "sandbox-router-test")


async def run_against(values, port):
    """Runs what the rendered pod runs, with this machine's Python, against a local port."""
    (container,) = pod(values)["spec"]["containers"]
    script, address, modes = container["args"]
    assert container["command"] == ["/opt/sandbox-router/bin/python", "-c"]
    assert address == f"sandbox-router-svc.{NAMESPACE}:8080"
    hasty = script.replace("DEADLINE_S = 60.0", "DEADLINE_S = 0.0")
    assert hasty != script
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", hasty, f"127.0.0.1:{port}", modes),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_a_locked_router_passes(tmp_path):
    token = tmp_path / "token"
    token.write_text("t" * 40)
    locked = {"auth": "static", "static-token-file": token}
    async with fronts.router(1, tmp_path, **locked) as router:
        code, said = await run_against(MATRIX["static"], router.port)

    assert code == 0, said
    assert "a request without a credential is refused: 401 unauthenticated" in said


async def test_a_router_that_lets_everybody_in_fails_where_the_values_say_it_is_locked(tmp_path):
    async with fronts.router(1, tmp_path) as router:
        code, said = await run_against(MATRIX["static"], router.port)

    assert code == 1
    assert "expected 401" in said


async def test_a_router_that_lets_everybody_in_on_purpose_passes(tmp_path):
    async with fronts.router(1, tmp_path) as router:
        code, said = await run_against(MATRIX["nobody checked"], router.port)

    assert code == 0, said
    assert "authentication is off" in said


async def test_nothing_that_answers_fails_with_what_to_look_at():
    code, said = await run_against(TOKEN_REVIEW, fronts.free_port())

    assert code == 1
    assert "no response" in said
    assert "NetworkPolicy" in said


def test_the_pod_is_a_test_hook_that_is_hardened_like_the_routers():
    test, router = pod(TOKEN_REVIEW), chart(TOKEN_REVIEW)

    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert test["spec"]["securityContext"] == router.pod()["securityContext"]
    (container,) = test["spec"]["containers"]
    assert container["securityContext"] == router.container()["securityContext"]
    assert container["image"] == router.container()["image"]
    assert test["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", MATRIX)
def test_no_service_leads_to_the_testing_pod(name):
    objects = chart(MATRIX[name])
    for test in objects.of("Pod"):
        for service in objects.of("Service"):
            assert not service["spec"]["selector"].items() <= test["metadata"]["labels"].items()


def test_where_only_gateways_may_knock_the_testing_pod_may_too():
    policy = chart(MATRIX["a tight network"]).one("NetworkPolicy")["spec"]
    (peers,) = [rule["from"] for rule in policy["ingress"] if rule["ports"][0]["port"] == 8080]
    labels = pod(MATRIX["a tight network"])["metadata"]["labels"].items()

    assert any(
        peer["podSelector"]["matchLabels"].items() <= labels
        for peer in peers
        if set(peer) == {"podSelector"}
    )
