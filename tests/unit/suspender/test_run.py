from __future__ import annotations

import asyncio

from router.discovery.idle_timeout import IDLE_TIMEOUT_ANNOTATION
from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess
from router.suspender.run import Watches
from tests.fakes.cluster_objects import sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import SANDBOXES
from tests.fakes.running_discovery import FAST, until


async def test_sandboxes_are_unknown_until_the_first_list_is_in_and_after_an_outage() -> None:
    now = 0.0
    async with FakeKubernetes() as fake, KubernetesApi(access=ClusterAccess(fake.url)) as api:
        annotations = {IDLE_TIMEOUT_ANNOTATION: "10m"}
        for namespace in ("a", "b", "c"):
            item = sandbox("box", namespace=namespace, annotations=annotations)
            fake.store.create(SANDBOXES, item)
        watches = Watches(api, ("a", "b"), FAST, lambda: now)
        assert "namespace a: first list under way" in watches.why_blind()

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each) for each in watches.runs()]
            await until(lambda: watches.why_blind() == "")
            namespaces = {each.candidate.ref.namespace for each in watches.candidates.all()}
            async with fake.away():
                await until(lambda: all(r.behind_since is not None for r in watches._reflectors))
                short = watches.why_blind()
                now += 120.0
                await until(lambda: watches.why_blind() != "")
            await until(lambda: watches.why_blind() == "")
            for task in running:
                task.cancel()

    assert namespaces == {"a", "b"}
    assert short == ""


async def test_a_cluster_that_serves_no_mode_is_named() -> None:
    async with FakeKubernetes() as fake, KubernetesApi(access=ClusterAccess(fake.url)) as api:
        fake.served[SANDBOXES] = ("v1alpha1",)
        watches = Watches(api, (), FAST, lambda: 0.0)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each) for each in watches.runs()]
            await until(lambda: "404" in watches.why_blind())
            for task in running:
                task.cancel()
