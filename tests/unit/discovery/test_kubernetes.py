from __future__ import annotations

import asyncio
import logging
import time

import pytest

from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.handover import HandedTable
from tests.fakes.cluster_objects import claim
from tests.fakes.kubernetes_api import FakeKubernetes, User
from tests.fakes.kubernetes_store import CLAIMS, SANDBOXES
from tests.fakes.running_discovery import discovering, launch, until


async def test_it_is_ready_once_every_first_list_is_in() -> None:
    async with FakeKubernetes() as api:
        launch(api, "box")
        async with discovering(api) as running:
            missing = running.discovery.missing()
            assert [line.split(":")[0] for line in missing] == [
                "pods in all namespaces",
                "sandboxes in all namespaces",
                "sandboxclaims in all namespaces",
            ]

            await running.until_ready()
            assert running.found("box") == (State.READY, "10.0.0.1")
            assert running.discovery.notes() == []


async def test_the_table_is_complete_once_pods_sandboxes_and_claims_are_in() -> None:
    async with FakeKubernetes() as api:
        box = launch(api, "box")
        api.store.create(CLAIMS, claim("mine", bound_to=box["metadata"]["name"]))
        with api.faults.refusing(500, resource="sandboxclaims") as refusal:
            async with discovering(api) as running:
                assert not running.index.is_complete()
                await until(lambda: running.state("box") is State.READY)
                # The sandbox can be served already; the claim's name can't be told from one that doesn't exist.
                assert running.state("mine") is None
                assert not running.index.is_complete()

                refusal.times = 0
                await until(running.index.is_complete)
                assert running.state("mine") is State.READY


async def test_a_table_stays_complete_through_an_outage() -> None:
    async with FakeKubernetes() as api, discovering(api) as running:
        await running.until_ready()
        async with api.away():
            await until(lambda: len(running.discovery.notes()) == 3)
            assert running.index.is_complete()


async def test_a_table_that_was_adopted_serves_until_our_own_lists_are_in() -> None:
    box = Endpoint(SandboxRef("default", "box"), "old", State.READY, ("10.0.0.9",))
    gone = Endpoint(SandboxRef("default", "gone"), "gone", State.READY, ("10.0.0.8",))
    alias = SandboxRef("default", "alias")
    async with FakeKubernetes() as api:
        launch(api, "box")
        await api.stop()
        async with discovering(api) as running:
            running.discovery.adopt(HandedTable((box, gone), {alias: box.ref}, 7.0))
            await until(lambda: all(r.problem for r in running.discovery.reflectors()[1:2]))
            assert running.discovery.missing() == []
            assert running.index.is_complete()
            age_s = running.index.age_s()
            assert age_s is not None
            assert age_s >= 7.0
            assert running.found("box") == (State.READY, "10.0.0.9")
            assert running.state("alias") is State.READY

            await api.start()
            await until(lambda: running.found("box") == (State.READY, "10.0.0.1"))
            await until(lambda: running.state("alias") is None)
            assert running.state("gone") is None
            await until(lambda: not running.discovery._is_adopted)
            assert running.index.is_complete()


async def test_what_may_not_be_seen_is_not_waited_for() -> None:
    def pods_alone(user: User, verb: str, resource: str, namespace: str | None) -> bool:
        return resource == "pods"

    async with FakeKubernetes(allows=pods_alone) as api, discovering(api) as running:
        await until(running.index.is_complete)


async def test_one_namespace_is_complete_while_another_is_not() -> None:
    def not_in_b(user: User, verb: str, resource: str, namespace: str | None) -> bool:
        return namespace != "team-b"

    async with (
        FakeKubernetes(allows=not_in_b) as api,
        discovering(api, namespaces=("team-a", "team-b")) as running,
    ):
        await until(lambda: running.index.is_complete("team-a"))
        assert not running.index.is_complete("team-b")
        assert not running.index.is_complete()


async def test_it_catches_up_from_a_watchs_end_until_it_watches_again_but_not_for_ever() -> None:
    async with FakeKubernetes() as api, discovering(api) as running:
        await running.until_ready()
        await running.until_watching()
        assert not running.discovery.is_catching_up()
        async with api.away():
            await until(running.discovery.is_catching_up)
            for reflector in running.discovery.reflectors():
                await until(lambda r=reflector: r.behind_since is not None)  # type: ignore[misc]
                reflector.behind_since -= 11.0
            assert not running.discovery.is_catching_up()
        await running.until_watching()
        assert not running.discovery.is_catching_up()


async def test_forbidden_pods_keep_it_from_being_ready_and_say_why() -> None:
    def no_pods(user: User, verb: str, resource: str, namespace: str | None) -> bool:
        return resource != "pods"

    async with FakeKubernetes(allows=no_pods) as api, discovering(api) as running:
        await until(lambda: "403" in "".join(running.discovery.missing()))

        (line,) = running.discovery.missing()
        assert line.startswith("pods in all namespaces: 403")
        assert "is forbidden" in line
        assert "at the cluster scope" in line

        api.allows = lambda *_: True
        await running.until_ready()


async def test_what_can_not_be_seen_is_logged_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    def told() -> list[str]:
        return [
            record.fields.get("reason") or record.fields["watch"]  # type: ignore[attr-defined]
            for record in caplog.records
            if "be seen" in record.message
        ]

    def no_claims(user: User, verb: str, resource: str, namespace: str | None) -> bool:
        return resource != "sandboxclaims"

    async with FakeKubernetes(allows=no_claims) as api, discovering(api) as running:
        await until(lambda: running.discovery.watch_restarts["sandboxclaims", "forbidden"] >= 3)
        (reason,) = told()
        assert "403" in reason
        assert "the names of claims don't lead to their sandboxes" in reason

        api.allows = lambda *_: True
        await until(lambda: len(told()) == 2)
        assert told()[1] == "sandboxclaims in all namespaces"
        assert running.discovery.refused()["sandboxclaims"] == 0


async def test_forbidden_sandboxes_degrade_to_pods_alone_and_say_so() -> None:
    def pods_alone(user: User, verb: str, resource: str, namespace: str | None) -> bool:
        return resource == "pods"

    async with FakeKubernetes(allows=pods_alone) as api:
        launch(api, "box")
        launch(api, "asleep", mode="Suspended", address="10.0.0.2")
        async with discovering(api) as running:
            await running.until_ready()
            assert running.state("box") is State.READY
            assert running.state("asleep") is State.READY
            notes = running.discovery.notes()
            assert len(notes) == 2
            assert "routing by pods alone" in notes[0]
            assert running.discovery.refused() == {"pods": 0, "sandboxes": 1, "sandboxclaims": 1}
            assert "names of claims" in notes[1]

            api.allows = lambda *_: True
            await until(lambda: running.state("asleep") is State.SUSPENDED)
            await until(lambda: running.discovery.notes() == [])


async def test_missing_crds_degrade_to_pods_alone_until_they_come() -> None:
    async with FakeKubernetes() as api:
        api.served[SANDBOXES] = api.served[CLAIMS] = ()
        launch(api, "box")
        async with discovering(api) as running:
            await running.until_ready()
            assert running.state("box") is State.READY
            assert "404" in running.discovery.notes()[0]

            api.served[SANDBOXES] = SANDBOXES.versions
            api.served[CLAIMS] = CLAIMS.versions
            await until(lambda: running.discovery.notes() == [])


async def test_permission_that_is_lost_later_keeps_the_last_known_sandboxes() -> None:
    async with FakeKubernetes() as api:
        launch(api, "asleep", mode="Suspended")
        async with discovering(api) as running:
            await running.until_ready()
            await running.until_watching()

            api.allows = lambda user, verb, resource, namespace: resource == "pods"
            api.faults.cut("sandboxes")
            await until(lambda: "403" in "".join(running.discovery.notes()))

            assert running.state("asleep") is State.SUSPENDED
            assert running.discovery.missing() == []
            assert "last known state is kept" in running.discovery.notes()[0]


async def test_an_unreachable_server_is_named_before_the_first_list() -> None:
    async with FakeKubernetes() as api:
        await api.stop()
        async with discovering(api) as running:
            await until(lambda: "Cannot connect" in "".join(running.discovery.missing()))

            assert len(running.discovery.missing()) == 3
            await api.start()
            await running.until_ready()


async def test_listed_namespaces_have_one_watch_each_and_need_no_more_than_roles() -> None:
    def roles(user: User, verb: str, resource: str, namespace: str | None) -> bool:
        return namespace in ("team-a", "team-b")

    async with FakeKubernetes(allows=roles) as api:
        for number, namespace in enumerate(("team-a", "team-b", "team-c")):
            launch(api, "box", namespace=namespace, address=f"10.0.0.{number}")
        async with discovering(api, namespaces=("team-a", "team-b")) as running:
            await running.until_ready()

            assert running.state("box", "team-a") is State.READY
            assert running.state("box", "team-b") is State.READY
            assert running.state("box", "team-c") is None
            assert len(running.discovery.reflectors()) == 6
            assert {namespace for _, _, namespace in api.requests} == {"team-a", "team-b"}


async def test_one_forbidden_namespace_is_named_and_the_others_serve() -> None:
    def role(user: User, verb: str, resource: str, namespace: str | None) -> bool:
        return namespace == "team-a"

    async with FakeKubernetes(allows=role) as api:
        launch(api, "box", namespace="team-a")
        async with discovering(api, namespaces=("team-a", "team-b")) as running:
            await until(lambda: running.state("box", "team-a") is State.READY)
            await until(lambda: len(running.discovery.missing()) == 1)

            assert running.discovery.missing()[0].startswith("pods in namespace team-b: 403")


async def test_restarts_are_counted_by_resource_and_reason() -> None:
    async with FakeKubernetes() as api, discovering(api) as running:
        await running.until_ready()
        await running.until_watching()

        api.faults.cut("pods")

        await until(lambda: running.discovery.watch_restarts["pods", "connection"] == 1)


class TestFreshness:
    async def test_the_table_has_no_age_before_it_is_complete(self) -> None:
        async with FakeKubernetes() as api:
            with api.faults.refusing(500, resource="pods"):
                async with discovering(api) as running:
                    await until(lambda: len(running.discovery.missing()) == 1)
                    await asyncio.sleep(0.05)
                    assert running.index.age_s() is None

    async def test_bookmarks_keep_a_quiet_cluster_fresh(self) -> None:
        async with FakeKubernetes(bookmark_interval_s=0.1) as api, discovering(api) as running:
            await running.until_ready()
            await asyncio.sleep(2.0)

            age_s = running.index.age_s()
            assert age_s is not None
            assert age_s < 1.5

    async def test_one_watch_that_is_silent_ages_the_table(self) -> None:
        async with FakeKubernetes(bookmark_interval_s=0.1) as api, discovering(api) as running:
            await running.until_ready()
            with api.faults.refusing(503, resource="sandboxes"):
                await running.until_watching()
                silent_since = time.monotonic()
                api.faults.cut("sandboxes")
                await until(lambda: running.index.is_stale(1.0))

                assert time.monotonic() - silent_since >= 0.9
            await until(lambda: not running.index.is_stale(1.5))
