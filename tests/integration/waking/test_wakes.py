"""A suspended sandbox is woken by the request that meets it: the whole router against an API server and a slow, rude cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.router_process import router
from tests.fakes.sleepy_cluster import SleepyCluster
from tests.integration.waking.door import ON_REQUEST, door


async def test_a_request_wakes_its_sandbox_and_is_answered_by_the_new_pod(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all") as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        told = await the.ask("box")

        assert (told.status, the.patches) == (200, 1)
        assert told.text.startswith(the.cluster.apps["box"].uid)
        [line] = await the.access_log()
        assert line["woke"] is True
        assert line["wait_s"] > 0.1
        await the.until_woken("woken")
        [logged] = the.log.fields("a request woke a sandbox")
        assert (logged["sandbox"], logged["outcome"]) == ("default/box", "woken")
        assert "127.0.0.1" in logged["for"]
        assert logged["duration_s"] > 0.1


async def test_without_waking_the_answer_is_what_it_was_and_nothing_is_called(
    tmp_path: Path,
) -> None:
    async with door(tmp_path) as the:
        the.cluster.add("box", annotations=ON_REQUEST)
        await the.until_seen("box", "suspended")

        told = await the.ask("box")

        assert (told.status, told.code, the.patches) == (409, "sandbox_suspended", 0)
        assert "woke" not in (await the.access_log())[0]


async def test_annotated_wakes_only_whose_owner_asked_for_it(tmp_path: Path) -> None:
    async with door(tmp_path, wake="annotated") as the:
        the.cluster.add("asked", annotations=ON_REQUEST)
        the.cluster.add("silent")
        the.cluster.add("slip", annotations={"router.agents.x-k8s.io/wake": "on request"})
        for name in ("asked", "silent", "slip"):
            await the.until_seen(name, "suspended")

        assert (await the.ask("asked")).status == 200
        assert (await the.ask("silent")).code == "sandbox_suspended"
        assert (await the.ask("slip")).code == "sandbox_suspended"

        explained = await the.explain("slip")
        assert "wake: annotated" in explained["outcome"]["reason"]
        assert any("it must be on-request" in note for note in explained["notes"])
        [warned] = the.log.fields("sandbox needs attention")
        assert "it must be on-request" in warned["reason"]
        listed = await the.listed("slip")
        assert listed is not None
        assert "it must be on-request" in listed["notes"][0]


async def test_a_body_waits_unread_and_arrives_whole(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all") as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        told = await the.ask("box", method="POST", body=b"x" * 3_000_000)

        assert told.status == 200
        assert told.text.endswith("POST 3000000")


async def test_many_requests_make_one_call(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all") as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        told = await asyncio.gather(*(the.ask("box") for _ in range(30)))

        assert [each.status for each in told] == [200] * 30
        assert the.patches == 1


async def test_the_call_goes_on_when_the_first_caller_leaves(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all", pace={"notices_s": 0.3}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        first = asyncio.get_running_loop().create_task(the.ask("box"))
        await asyncio.sleep(0.1)
        second = asyncio.get_running_loop().create_task(the.ask("box"))
        await asyncio.sleep(0.1)
        first.cancel()

        assert (await second).status == 200
        assert the.patches == 1


async def test_someone_elses_wake_counts_as_well(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all") as the:
        box = the.cluster.add("box")
        await the.until_seen("box", "suspended")
        # The watch is late: the Sandbox runs already.
        with the.api.faults.refusing(503, resource="sandboxes", verb="watch"):
            the.api.faults.cut("sandboxes")
            the.cluster._set_mode("default", "box", "Running")
            asked = asyncio.get_running_loop().create_task(the.ask("box"))
            await asyncio.sleep(0.5)

        assert (await asked).status == 200
        assert the.cluster.mode("box") == "Running"
        assert box["metadata"]["uid"]
        await the.until_woken("already")


async def test_a_port_that_listens_late_is_tried_until_the_wait_is_over(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all", pace={"listens_s": 3.5}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        told = await the.ask("box")

        # Longer than a refused port is given otherwise.
        assert told.status == 200
        # Who comes right after Ready, without having waited, is as patient.
        assert (await the.access_log())[0]["retries"] > 2


async def test_the_time_is_over_when_the_sandbox_never_comes(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all", wake_timeout="500ms", pace={"starts_s": 60}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        told = await the.ask("box")

        assert (told.status, told.code) == (503, "sandbox_waking")
        assert told.headers["Retry-After"] == "2"
        assert the.cluster.mode("box") == "Running"


async def test_a_requests_own_time_bounds_the_wait(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all", pace={"starts_s": 60}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        told = await the.ask("box", X_Sandbox_Timeout="0.3")

        assert (told.status, told.code) == (503, "sandbox_waking")


class TestApi:
    """What becomes of requests while the API server refuses, or is away."""

    async def test_a_refusal_is_told_at_once_and_not_repeated_for_each_request(
        self, tmp_path: Path
    ) -> None:
        async with door(tmp_path, wake="all") as the:
            the.cluster.add("box")
            await the.until_seen("box", "suspended")
            message = 'sandboxes "box" is forbidden: cannot patch'
            with the.api.faults.refusing(403, verb="patch", reason="Forbidden", message=message):
                told = [await the.ask("box") for _ in range(5)]

            assert {(each.status, each.code) for each in told} == {(503, "wake_unavailable")}
            assert int(told[1].headers["Retry-After"]) >= 1
            assert the.patches == 1
            [warned] = the.log.fields("a sandbox was not woken")
            assert warned["reason"].endswith(message)
            assert (await the.access_log())[0]["error_reason"].endswith(message)
            assert "the last wake failed" in (await the.explain("box"))["outcome"]["detail"]
            await the.until_woken("refused")

    async def test_an_admission_policys_refusal_is_not_taken_for_someone_elses_wake(
        self, tmp_path: Path
    ) -> None:
        async with door(tmp_path, wake="all") as the:
            the.cluster.add("box")
            await the.until_seen("box", "suspended")
            denied = "ValidatingAdmissionPolicy 'no' denied request"
            with the.api.faults.refusing(422, verb="patch", reason="Invalid", message=denied):
                told = await the.ask("box")

            assert (told.status, told.code) == (503, "wake_unavailable")
            assert denied in (await the.access_log())[0]["error_reason"]

    async def test_a_server_that_is_away_for_a_moment_only_delays(self, tmp_path: Path) -> None:
        async with door(tmp_path, wake="all") as the:
            the.cluster.add("box")
            await the.until_seen("box", "suspended")
            with the.api.faults.refusing(503, verb="patch", times=2):
                told = await the.ask("box")

            assert told.status == 200
            assert the.patches == 3

    async def test_a_server_that_stays_away_is_told_before_the_time_is_over(
        self, tmp_path: Path
    ) -> None:
        async with door(tmp_path, wake="all", wake_timeout="2s") as the:
            the.cluster.add("box")
            await the.until_seen("box", "suspended")
            with the.api.faults.refusing(503, verb="patch"):
                told = await asyncio.gather(*(the.ask("box") for _ in range(10)))

            assert {(each.status, each.code) for each in told} == {(503, "wake_unavailable")}
            assert the.patches <= 4

    async def test_an_old_api_version_is_spoken_where_it_is_the_only_one(
        self, tmp_path: Path
    ) -> None:
        async with door(tmp_path, wake="all") as the:
            kind = next(kind for kind in the.api.served if kind.plural == "sandboxes")
            the.cluster.add("box")
            await the.until_seen("box", "suspended")
            the.api.served[kind] = ("v1alpha1",)

            assert (await the.ask("box")).status == 200


async def test_a_finished_sandbox_is_410_without_a_call(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all") as the:
        the.cluster.add("box", reason="SandboxExpired")
        the.cluster.add("past", spec={"shutdownTime": "2020-01-01T00:00:00Z"})
        the.cluster.add("soon", spec={"shutdownTime": "2099-01-01T00:00:00Z"})
        await the.until_seen("box", "finished")
        await the.until_seen("soon", "suspended")

        assert (await the.ask("box")).code == "sandbox_finished"
        assert (await the.ask("past")).code == "sandbox_finished"
        assert the.patches == 0
        assert (await the.ask("soon")).status == 200


async def test_one_tenants_wakes_are_limited_and_say_when_to_come_back(tmp_path: Path) -> None:
    flags = {"wake": "all", "wake_rate_per_namespace": "1", "wake_timeout": "500ms"}
    async with door(tmp_path, pace={"starts_s": 0.05}, **flags) as the:
        for number in range(5):
            the.cluster.add(f"box-{number}")
        the.cluster.add("other", namespace="team-b")
        await the.until_seen("box-4", "suspended")
        await the.until_seen("other", "suspended")

        told = await asyncio.gather(*(the.ask(f"box-{number}") for number in range(5)))

        codes = sorted(each.code for each in told)
        assert codes == ["", "", "wake_limited", "wake_limited", "wake_limited"]
        limited = next(each for each in told if each.code)
        assert (limited.status, limited.headers["Retry-After"]) == (429, "1")
        assert (await the.ask("other", namespace="team-b")).status == 200


async def test_a_router_with_several_workers_wakes_it_too(tmp_path: Path) -> None:
    async with FakeKubernetes() as api, SleepyCluster(api) as cluster:
        cluster.add("box")
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        flags = ["--discovery=kubernetes", f"--kubeconfig={kubeconfig}", "--auth=none"]
        async with router(*flags, "--wake=all", "--workers=2") as running:
            await running.until_ready(60)
            url = f"http://127.0.0.1:{running.http_port}/"

            async def ask() -> int:
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(url, headers={"X-Sandbox-ID": "box"}) as response,
                ):
                    return response.status

            assert await asyncio.gather(*(ask() for _ in range(10))) == [200] * 10
            _, page = await running.admin("/metrics")
            assert 'sandbox_router_wakes_total{outcome="limited"} 0' in page
        patches = [request for request in api.requests if request[0] == "patch"]
        assert 1 <= len(patches) <= 2
