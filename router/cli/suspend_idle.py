"""The command `suspend-idle`: suspends Sandboxes that no router has seen at work for as long as they say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from router.settings.values import BadValueError, Kind, duration


class Checked(click.ParamType[Any]):
    """A value as settings of the same kind take it."""

    def __init__(self, kind: Kind) -> None:
        self.name = kind.name
        self._kind = kind

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Returns what stands for the value in the help."""
        return self._kind.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the typed value. Ends with a usage error for a bad one."""
        if not isinstance(value, str):
            return value
        try:
            return self._kind.read(value)
        except BadValueError as error:
            self.fail(str(error), param, ctx)


def _kinds() -> dict[str, Kind]:
    from router.settings import places
    from router.suspender import options

    return {
        "bind": places.bind(),
        "namespace": places.label(),
        "namespaces": places.labels(),
        "service": Kind("service", "NAMESPACE/NAME", options.parse_service),
        "routers": Kind("addresses", "HOST:PORT,...", options.parse_routers),
        "interval": duration(zero=False),
    }


_KINDS = _kinds()


@click.command("suspend-idle", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--service",
    type=Checked(_KINDS["service"]),
    help="Ask the routers behind this Service, by its port named `admin`: all of them, ready or not.",
)
@click.option(
    "--routers",
    type=Checked(_KINDS["routers"]),
    help="Ask the routers whose admin ports are here instead; all that there are must be named.",
)
@click.option(
    "--namespaces",
    type=Checked(_KINDS["namespaces"]),
    default="",
    help="Suspend Sandboxes of these namespaces only. Default: all.",
)
@click.option(
    "--interval",
    type=Checked(_KINDS["interval"]),
    default="15s",
    show_default=True,
    help="Time between two rounds of asking.",
)
@click.option(
    "--lease",
    default="sandbox-router-suspend-idle",
    show_default=True,
    help="The Lease that the one process holds that acts; the others stand by.",
)
@click.option(
    "--namespace",
    type=Checked(_KINDS["namespace"]),
    help="The namespace of the Lease. Default: this pod's own, else agent-sandbox-system.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="KUBECONFIG",
    help="How to reach the cluster. Default: this pod's service account.  [environment: KUBECONFIG]",
)
@click.option(
    "--dry-run", is_flag=True, help="Only say what would be suspended; needs no Lease, no `patch`."
)
@click.option(
    "--metrics-bind",
    type=Checked(_KINDS["bind"]),
    default=":9091",
    show_default=True,
    help="Where /metrics and /healthz are served; off: nowhere.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option(
    "--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True
)
@click.pass_context
def suspend_idle(
    context: click.Context,
    service: Any,
    routers: Any,
    namespaces: tuple[str, ...],
    interval: float,
    lease: str,
    namespace: str | None,
    kubeconfig: Path | None,
    dry_run: bool,
    metrics_bind: Any,
    log_level: str,
    log_format: str,
) -> None:
    """Suspend Sandboxes that say after how much idleness, once no router saw them at work for that long.

    A Sandbox says so by the annotation router.agents.x-k8s.io/idle-timeout: 30m. Nothing is suspended while a router can't be asked,
    nor before all routers, the Sandbox and this command have been up for the idle time.
    """
    if (service is None) is (routers is None):
        raise click.UsageError("Say where the routers are: either --service or --routers.")
    from router.kube.cluster_access import SERVICE_ACCOUNT_FOLDER
    from router.suspender.options import Options, own_namespace
    from router.suspender.run import run

    options = Options(
        routers=routers or (),
        service=service,
        namespaces=namespaces,
        interval_s=interval,
        lease_namespace=namespace or own_namespace(SERVICE_ACCOUNT_FOLDER, "agent-sandbox-system"),
        lease_name=lease,
        kubeconfig=kubeconfig,
        is_dry_run=dry_run,
        metrics_bind=metrics_bind,
        log_level=log_level,
        log_format=log_format,
    )
    context.exit(run(options, os.environ))
