from __future__ import annotations

from pathlib import Path

import pytest

from router.settings.groups import Address
from router.settings.values import BadValueError
from router.suspender.options import (
    Options,
    ServiceName,
    described,
    own_namespace,
    parse_routers,
    parse_service,
    process_identity,
)


def test_a_service_is_namespace_and_name() -> None:
    assert parse_service("system/sandbox-router-admin") == ServiceName(
        "system", "sandbox-router-admin"
    )


@pytest.mark.parametrize("text", ["", "name", "/name", "ns/", "ns/a/b", "NS/name", "ns/na me"])
def test_anything_else_is_no_service(text: str) -> None:
    with pytest.raises(BadValueError, match="NAMESPACE/NAME"):
        parse_service(text)


def test_routers_are_hosts_with_ports() -> None:
    found = parse_routers("10.0.0.1:9090, router.local:9091,[fd00::1]:9090,10.0.0.1:9090")

    assert found == (
        Address("10.0.0.1", 9090),
        Address("router.local", 9091),
        Address("fd00::1", 9090),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":9090",
        "host:0",
        "host:65536",
        "host:٩",
        "fd00::1:9090",
        "a:1,,b:2",
        "http://host:9090",
        "host:9090/activity",
        "[host]:9090",
        "user@host:9090",
    ],
)
def test_anything_else_is_no_router(text: str) -> None:
    with pytest.raises(BadValueError):
        parse_routers(text)


def test_the_leases_namespace_is_the_pods_own(tmp_path: Path) -> None:
    assert own_namespace(tmp_path, "otherwise") == "otherwise"
    (tmp_path / "namespace").write_text("mine\n")

    assert own_namespace(tmp_path, "otherwise") == "mine"


def test_two_processes_of_one_host_are_two() -> None:
    assert process_identity("host", "a") != process_identity("host", "b")


def test_a_dry_run_says_that_it_takes_no_lease() -> None:
    options = Options(
        routers=(Address("10.0.0.1", 9090),),
        service=None,
        namespaces=(),
        interval_s=15.0,
        lease_namespace="system",
        lease_name="lease",
        kubeconfig=None,
        is_dry_run=True,
        metrics_bind=None,
        log_level="info",
        log_format="json",
    )

    said = described(options)

    assert (said["routers"], said["lease"], said["sandboxes_of"]) == ("10.0.0.1:9090", "", ["*"])
