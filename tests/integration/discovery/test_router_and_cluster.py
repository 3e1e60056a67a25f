"""A whole router process beside an API server that refuses, is away, or breaks watches: what callers and operators see."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.cluster_objects import EXTENSIONS, claim, owner
from tests.fakes.kubernetes_api import FakeKubernetes, User
from tests.fakes.kubernetes_store import CLAIMS, SANDBOXES, JsonObject
from tests.fakes.router_process import RouterProcess, router
from tests.fakes.running_discovery import launch


def flags(api: FakeKubernetes, folder: Path) -> list[str]:
    kubeconfig = api.write_kubeconfig(folder / "kubeconfig")
    return ["--discovery=kubernetes", f"--kubeconfig={kubeconfig}", "--auth=none"]


async def ask(running: RouterProcess, name: str, path: str = "/") -> tuple[int, JsonObject]:
    """Returns status and JSON of a request for a sandbox, or for none with an empty name."""
    headers = {"X-Sandbox-ID": name, "X-Sandbox-Port": "1"} if name else {}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{running.http_port}{path}", headers=headers) as response,
    ):
        return response.status, json.loads(await response.text())


async def page(running: RouterProcess, path: str) -> tuple[int, Any]:
    status, text = await running.admin(path)
    return status, json.loads(text)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_router_that_sees_pods_alone_is_ready_and_says_so_everywhere(
    tmp_path: Path, workers: int
) -> None:
    def pods_alone(user: User, verb: str, resource: str, namespace: str | None) -> bool:
        return resource == "pods"

    async with FakeKubernetes(allows=pods_alone) as api:
        launch(api, "box", address="127.0.0.1")
        async with router(*flags(api, tmp_path), f"--workers={workers}") as running:
            await running.until_ready()

            _, ready = await page(running, "/readyz")
            assert ready["status"] == "ready"
            assert len(ready["notes"]) == 2
            assert "routing by pods alone" in ready["notes"][0]
            _, explained = await page(running, "/debug/route?name=box")
            assert explained["notes"] == ready["notes"]
            _, metrics = await running.admin("/metrics")
            assert 'sandbox_router_watches_refused{resource="sandboxes"} 1' in metrics
            assert 'sandbox_router_watches_refused{resource="pods"} 0' in metrics
            warnings = [line.get("reason", "") for line in running.logged("warning")]
            assert any("routing by pods alone" in reason for reason in warnings)


async def test_without_an_api_server_no_name_is_unknown_until_the_first_table(
    tmp_path: Path,
) -> None:
    async with FakeKubernetes() as api:
        launch(api, "box", address="127.0.0.1", mode="Suspended")
        arguments = flags(api, tmp_path)
        await api.stop()
        async with router(*arguments) as running:
            for _ in range(3):
                status, told = await ask(running, "box")
                assert (status, told["code"], told["retryable"]) == (503, "index_stale", True)
            assert (await ask(running, "", "/healthz"))[0] == 503
            assert (await page(running, "/readyz"))[0] == 503

            await api.start()
            await running.until_ready()

            # Unknown is final from here on, and what is known is told.
            assert (await ask(running, "unknown"))[0] == 404
            assert (await ask(running, "box"))[1]["code"] == "sandbox_suspended"
            assert await ask(running, "", "/healthz") == (200, {"status": "ok"})


class TestClaimsBoundWhileWatchesBreak:
    """Who creates a claim uses its name at once; a 404 would be final for a sandbox that exists."""

    def bind(self, api: FakeKubernetes, number: int) -> str:
        """Binds a claim to a suspended sandbox, which answers by itself. Returns the claim's name."""
        name = f"claim-{number}"
        made = api.store.create(CLAIMS, claim(name, bound_to=f"box-{number}"))
        by = owner("SandboxClaim", name, made["metadata"]["uid"], group=EXTENSIONS)

        def claimed(item: JsonObject) -> JsonObject:
            item["metadata"]["ownerReferences"] = [by]
            return item

        api.store.update(SANDBOXES, "default", f"box-{number}", claimed)
        return name

    def cut_quietly(self, api: FakeKubernetes) -> None:
        api.faults.cut()

    def expire(self, api: FakeKubernetes) -> None:
        for watch in api.faults.open():
            watch.expire = True
        api.store.wake_watches()

    def expire_by_status(self, api: FakeKubernetes) -> None:
        api.faults.expires_by_status = True
        launch(api, f"other-{api.store.version}", mode="Suspended", address="10.9.9.9")
        api.store.compact()
        api.faults.cut()

    @pytest.mark.parametrize("streams_lists", [False, True])
    @pytest.mark.parametrize("fault", ["cut_quietly", "expire", "expire_by_status"])
    async def test_none_is_404(self, tmp_path: Path, fault: str, streams_lists: bool) -> None:
        rounds = 6
        async with FakeKubernetes(streams_lists=streams_lists) as api:
            for number in range(rounds):
                launch(api, f"box-{number}", mode="Suspended", address=f"10.0.0.{number}")
            async with router(*flags(api, tmp_path)) as running:
                await running.until_ready()
                codes = []
                for number in range(rounds):
                    getattr(self, fault)(api)
                    codes.append((await ask(running, self.bind(api, number)))[1]["code"])

        assert codes == ["sandbox_suspended"] * rounds

    async def test_none_is_404_after_an_outage_either(self, tmp_path: Path) -> None:
        async with FakeKubernetes() as api:
            for number in range(5):
                launch(api, f"box-{number}", mode="Suspended", address=f"10.0.0.{number}")
            async with router(*flags(api, tmp_path), "--wait-for-ready=15s") as running:
                await running.until_ready()
                async with api.away():
                    await asyncio.sleep(2.0)
                # Bound in the moment in which the server is back and the watches are not yet.
                names = [self.bind(api, number) for number in range(5)]
                told = await asyncio.gather(*(ask(running, name) for name in names))

        assert [answer["code"] for _, answer in told] == ["sandbox_suspended"] * 5
