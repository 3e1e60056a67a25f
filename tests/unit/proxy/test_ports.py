"""The seams: what the app hands in has what the gateway asks for."""

from __future__ import annotations

import inspect

import pytest

from router.auth.revocation import Revocation
from router.discovery.dns import DnsSource
from router.proxy.ports import CredentialStatus, EndpointSource
from router.routing.index import EndpointIndex
from router.routing.source import IndexSource


def methods(protocol: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(protocol, inspect.isfunction) if name[0] != "_"]


@pytest.mark.parametrize(
    "source",
    [
        IndexSource(EndpointIndex(waiting_room=1, waiting_room_per_namespace=1)),
        DnsSource(cluster_domain="cluster.local", trust_pod_ip_header=False),
    ],
    ids=repr,
)
def test_a_source_of_endpoints_takes_what_the_gateway_gives(source: EndpointSource) -> None:
    for name in methods(EndpointSource):
        wanted = list(inspect.signature(getattr(EndpointSource, name)).parameters)[1:]
        given = list(inspect.signature(getattr(source, name)).parameters)
        assert given[: len(wanted)] == wanted, name


def test_the_watch_of_rights_takes_what_the_gateway_gives() -> None:
    for name in methods(CredentialStatus):
        wanted = inspect.signature(getattr(CredentialStatus, name)).parameters
        assert list(inspect.signature(getattr(Revocation, name)).parameters) == list(wanted)
