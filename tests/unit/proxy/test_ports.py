"""The seams: what the app hands in has what the gateway asks for, and limits are off unless they are said."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from router.auth.revocation import Revocation
from router.discovery.dns import DnsSource
from router.proxy.ports import NEVER, CredentialStatus, EndpointSource, ProxyOptions
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


def test_a_limit_that_is_not_said_is_off() -> None:
    limits = ProxyOptions()
    for field in dataclasses.fields(limits):
        value = getattr(limits, field.name)
        if field.name in ("max_header_bytes", "max_request_line_bytes"):
            assert value > 0, "a head always has a bound"
        elif field.name.endswith("_timeout_s") or field.name in (
            "tunnel_max_lifetime_s",
            "connect_budget_s",
        ):
            assert value == NEVER, field.name
        elif field.name == "origin_policy":
            assert value == "rewrite"
        elif field.name == "path_mode":
            assert value == "strip"
        else:
            assert not value, field.name


def test_limits_are_said_by_name_and_never_change() -> None:
    with pytest.raises(TypeError):
        ProxyOptions(1.0)  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        ProxyOptions().max_body_bytes = 1  # type: ignore[misc]
