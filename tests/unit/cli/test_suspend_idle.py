from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from router.cli.commands import main
from router.settings.groups import Address
from router.suspender.options import Options, ServiceName


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    found: list[Options] = []

    def run(options: Options, environ: Any) -> int:
        found.append(options)
        return 3

    monkeypatch.setattr("router.suspender.run.run", run)
    return found


def invoke(*args: str, **environment: str) -> Any:
    return CliRunner().invoke(main, ["suspend-idle", *args], env=environment)


def test_defaults_need_only_where_the_routers_are(given: list[Options]) -> None:
    result = invoke("--service", "system/sandbox-router-admin", KUBECONFIG="")

    assert result.exit_code == 3, result.output
    assert given == [
        Options(
            routers=(),
            service=ServiceName("system", "sandbox-router-admin"),
            namespaces=(),
            interval_s=15.0,
            lease_namespace="agent-sandbox-system",
            lease_name="sandbox-router-suspend-idle",
            kubeconfig=None,
            is_dry_run=False,
            metrics_bind=Address("", 9091),
            log_level="info",
            log_format="json",
        )
    ]


def test_everything_may_be_said(given: list[Options]) -> None:
    invoke(
        *("--routers", "10.0.0.1:9090,10.0.0.2:9090"),
        *("--interval", "1m", "--lease", "l", "--namespace", "ns", "--namespaces", "a,b"),
        *("--kubeconfig", "k", "--dry-run", "--metrics-bind", "off"),
    )

    (options,) = given
    assert options.routers == (Address("10.0.0.1", 9090), Address("10.0.0.2", 9090))
    assert (options.interval_s, options.namespaces) == (60.0, ("a", "b"))
    assert (options.lease_namespace, options.lease_name) == ("ns", "l")
    assert (options.kubeconfig, options.is_dry_run) == (Path("k"), True)
    assert options.metrics_bind is None


@pytest.mark.parametrize("args", [(), ("--service", "a/b", "--routers", "c:1")])
def test_routers_are_named_in_one_way(given: list[Options], args: tuple[str, ...]) -> None:
    result = invoke(*args)

    assert (result.exit_code, given) == (2, [])
    assert "either --service or --routers" in result.output


@pytest.mark.parametrize(
    "args",
    [
        ("--service", "nonsense"),
        ("--routers", "host"),
        ("--routers", "a:1", "--interval", "0"),
        ("--routers", "a:1", "--interval", "soon"),
        ("--routers", "a:1", "--metrics-bind", "9091"),
        ("--routers", "a:1", "--namespaces", "A"),
    ],
)
def test_a_bad_value_is_named_with_what_to_write(
    given: list[Options], args: tuple[str, ...]
) -> None:
    result = invoke(*args)

    assert (result.exit_code, given) == (2, [])
    assert "write " in result.output


def test_its_help_is_quick() -> None:
    code = (
        "import sys; from router import cli; cli.main(['suspend-idle', '--help'], standalone_mode=False); "
        "print('\\n'.join(sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert not {"aiohttp", "kubernetes_asyncio", "router.suspender.run"} & set(loaded)
