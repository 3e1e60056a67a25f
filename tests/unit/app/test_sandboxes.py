"""Where sandboxes live, built from the settings."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from router.app.sandboxes import Sandboxes, build_resolver, build_sandboxes
from router.discovery.dns import DnsSource
from router.discovery.file import FileDiscovery
from router.discovery.kubernetes import KubernetesDiscovery
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.names import AddressesOnly, NameNotResolved
from router.routing.source import IndexSource
from router.settings import Settings
from router.telemetry.metrics import Metrics
from tests.unit.app.conftest import MakeSettings

BOX_A = SandboxRef("default", "box-a")
LOOKUPS = "sandbox_router_dns_lookup_duration_seconds"


def built(settings: Settings, api: Any = None, retired: list[Endpoint] | None = None) -> Sandboxes:
    noted = [] if retired is None else retired
    return build_sandboxes(settings, api=api, on_retired=noted.append)


def test_a_file_fills_the_table_before_anything_starts(make_settings: MakeSettings) -> None:
    sandboxes = built(make_settings())
    assert isinstance(sandboxes.source, IndexSource)
    assert isinstance(sandboxes.discovery, FileDiscovery)
    assert sandboxes.discovery is sandboxes.file
    assert sandboxes.discovery.missing() == []
    found = sandboxes.source.find(BOX_A)
    assert found is not None
    assert (found.state, found.addresses) == (State.READY, ("127.0.0.1",))
    assert sorted(endpoint.ref for endpoint in sandboxes.known()) == [
        BOX_A,
        SandboxRef("team-b", "box-b"),
    ]


def test_a_name_without_namespace_has_the_default_one_of_the_settings(
    make_settings: MakeSettings,
) -> None:
    sandboxes = built(make_settings(default_namespace="elsewhere"))
    assert sandboxes.source.find(SandboxRef("elsewhere", "box-a")) is not None


def test_who_is_gone_is_said_by_a_whole_table_alone(make_settings: MakeSettings) -> None:
    sandboxes = built(make_settings())
    index = sandboxes.index
    assert index is not None
    ref = SandboxRef("default", "watched")
    assert sandboxes.is_gone(ref, "uid-1")
    index.upsert(Endpoint(ref, "", State.SUSPENDED, sandbox_uid="uid-1"))
    assert not sandboxes.is_gone(ref, "uid-1"), "it sleeps"
    assert sandboxes.is_gone(ref, "uid-0"), "a predecessor of the same name"
    index.upsert(Endpoint(ref, "pod", State.READY))
    assert not sandboxes.is_gone(ref, "uid-0"), "whose pod this is, isn't known"
    incomplete = built(make_settings(discovery="dns", cluster_domain="corp.test"))
    assert not incomplete.is_gone(ref, "uid-0"), "nobody knows all"


def test_a_file_that_cannot_be_used_stops_the_start(
    make_settings: MakeSettings, sandboxes_file: Path
) -> None:
    sandboxes_file.write_text("sandboxes: [{name: BOX}]")
    with pytest.raises(ValueError, match=str(sandboxes_file)):
        built(make_settings())


def test_what_loses_its_route_is_handed_on(
    make_settings: MakeSettings, sandboxes_file: Path
) -> None:
    retired: list[Endpoint] = []
    sandboxes = built(make_settings(), retired=retired)
    assert sandboxes.file is not None
    sandboxes_file.write_text("sandboxes: []")
    sandboxes.file.load_once()
    assert [endpoint.ref for endpoint in retired] == [BOX_A]


def test_dns_has_no_table(make_settings: MakeSettings) -> None:
    sandboxes = built(make_settings(discovery="dns", cluster_domain="corp.test"))
    assert isinstance(sandboxes.source, DnsSource)
    assert sandboxes.discovery is sandboxes.source
    assert (sandboxes.index, sandboxes.file) == (None, None)
    assert list(sandboxes.known()) == []
    found = sandboxes.source.find(BOX_A)
    assert found is not None
    assert found.addresses == ("box-a.default.svc.corp.test",)
    assert sandboxes.current(found) is found


@pytest.mark.parametrize(
    ("options", "address"),
    [({}, "box-a.default.svc.cluster.local"), ({"trust_pod_ip_header": "true"}, "10.0.0.5")],
)
def test_a_pod_ip_from_a_client_is_dialled_only_where_that_was_said(
    make_settings: MakeSettings, options: dict[str, str], address: str
) -> None:
    sandboxes = built(make_settings(discovery="dns", **options))
    found = sandboxes.source.find(BOX_A, "10.0.0.5")
    assert found is not None
    assert found.addresses == (address,)


def test_kubernetes_is_watched_in_the_namespaces_that_were_said(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings(discovery="kubernetes", namespaces="team-a,team-b")
    api = object()  # nothing is asked before it runs
    sandboxes = built(settings, api)
    assert isinstance(sandboxes.discovery, KubernetesDiscovery)
    assert len(sandboxes.discovery.reflectors()) == 6
    assert sandboxes.discovery.missing() != []
    assert sandboxes.notes() == []
    assert sandboxes.refused() == {"pods": 0, "sandboxes": 0, "sandboxclaims": 0}


def test_restarts_of_watches_are_the_ones_that_metrics_show(make_settings: MakeSettings) -> None:
    sandboxes = built(make_settings(discovery="kubernetes"), object())
    assert isinstance(sandboxes.discovery, KubernetesDiscovery)
    sandboxes.discovery.watch_restarts["pods", "gone"] += 1
    assert sandboxes.watch_restarts == {("pods", "gone"): 1}


def test_an_endpoint_is_current_as_long_as_it_is_the_same_pod(make_settings: MakeSettings) -> None:
    sandboxes = built(make_settings())
    assert sandboxes.index is not None
    before = Endpoint(BOX_A, "pod-1", State.READY, ("10.0.0.5",))
    sandboxes.index.upsert(before)
    now = Endpoint(BOX_A, "pod-1", State.READY, ("10.0.0.5",), tokens_not_before=5.0)
    sandboxes.index.upsert(now)
    assert sandboxes.current(before) is now
    sandboxes.index.upsert(Endpoint(BOX_A, "pod-2", State.READY, ("10.0.0.5",)))
    assert sandboxes.current(before) is before
    sandboxes.index.remove(BOX_A)
    assert sandboxes.current(before) is before


@pytest.mark.parametrize(("mode", "is_allowed"), [("file", True), ("dns", False)])
async def test_only_the_operator_may_name_loopback(
    make_settings: MakeSettings, mode: str, is_allowed: bool
) -> None:
    metrics = Metrics(version="1")
    resolver = build_resolver(make_settings(discovery=mode), metrics=metrics)
    answer = resolver.resolve("localhost", deadline=time.monotonic() + 10)
    if is_allowed:
        assert "127.0.0.1" in await answer
    else:
        with pytest.raises(NameNotResolved, match=r"127\.0\.0\.1"):
            await answer
    await resolver.close()
    lookups = {how: sum(series[:-1]) for (how,), series in metrics.snapshot()[LOOKUPS]}
    assert lookups["answered" if is_allowed else "refused"] == sum(lookups.values()) == 1


def test_a_watch_needs_no_resolver(make_settings: MakeSettings) -> None:
    metrics = Metrics(version="1")
    resolver = build_resolver(make_settings(discovery="kubernetes"), metrics=metrics)

    assert isinstance(resolver, AddressesOnly)
    assert LOOKUPS not in metrics.snapshot()
