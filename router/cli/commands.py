"""The command line. Each command imports what it runs inside its function, so that `--help` is quick."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from router import code_form
from router.cli.connect import connect
from router.cli.explain import explain
from router.cli.suspend_idle import suspend_idle
from router.cli.token import token
from router.settings import Loaded, SettingsError, load, report
from router.settings.table import CONFIG_VARIABLE, GROUPS, Setting

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
KEY_LIBRARIES = (
    "httptools",
    "uvloop",
    "aiohttp",
    "kubernetes_asyncio",
    "PyJWT",
    "cryptography",
    "orjson",
    "prometheus-client",
    "PyYAML",
    "click",
)


# --- settings as options --------------------------------------------------------------------


class SettingOption(click.Option):
    """The flag of one setting. It stays text: the settings' own checks name every bad value at once."""

    def __init__(self, row: Setting) -> None:
        self.row = row
        bare = row.kind.bare
        switch: dict[str, Any] = {} if bare is None else {"is_flag": False, "flag_value": bare}
        super().__init__(
            [row.flag],
            type=click.UNPROCESSED,
            metavar=row.kind.metavar,
            help=f"{row.help.replace('`', '')}  [{_default(row)}]",
            **switch,
        )


def _default(row: Setting) -> str:
    """Returns what a flag is without being given, or that it must be."""
    shown = row.default_text.replace("`", "")
    return shown if shown == "required" else f"default: {shown}"


class SettingsCommand(click.Command):
    """A command that takes every setting as a flag; `--help` lists them in their groups."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            SettingOption(row) for rows in GROUPS.values() for row in rows if not row.secret
        ]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the command's own options, then one section for each group."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                title = param.row.group if isinstance(param, SettingOption) else "options"
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title.capitalize()):
                formatter.write_dl(records)


config_option = click.option(
    "--config",
    "config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"Read settings from this YAML file.  [environment: {CONFIG_VARIABLE}]",
)


def load_from(context: click.Context, config: Path | None) -> Loaded:
    """Returns the settings for this command line and this process. Raises SettingsError."""
    flags = {
        param.row.key: context.params[param.name]
        for param in context.command.params
        if isinstance(param, SettingOption)
        and param.name is not None
        and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }
    return load(flags, os.environ, config, in_cluster=is_in_cluster(), cores=usable_cores())


def is_in_cluster() -> bool:
    """Returns True inside of a pod that may talk to the Kubernetes API."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and SERVICE_ACCOUNT_TOKEN.exists()


def usable_cores() -> int:
    """Returns how many cores this process may use: its CPU affinity, or a smaller container limit (cgroup v2)."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = CPU_QUOTA.read_text("ascii").split()
        return cores if quota == "max" else max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores


class Refusal(click.ClickException):
    """Ends a command with one message; exit code 2 as for a bad flag."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Writes the message to stderr."""
        click.echo(f"sandbox-router: {self.message}", file=file, err=True)


def tell_warnings(loaded: Loaded) -> None:
    """Writes the warnings to stderr."""
    for warning in loaded.warnings:
        click.echo(f"sandbox-router: warning: {warning}", err=True)


# --- commands -------------------------------------------------------------------------------


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def main(context: click.Context) -> None:
    """Sandbox Router: the HTTP door to sandboxes on Kubernetes."""
    if code_form.CURRENT.problem:
        raise Refusal(code_form.CURRENT.problem)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@main.command(cls=SettingsCommand)
@config_option
@click.pass_context
def serve(context: click.Context, /, config: Path | None, **_flags: str) -> None:
    """Run the router.

    Settings come from flags, then SANDBOX_ROUTER_* variables, then the --config file, then defaults.
    """
    try:
        loaded = load_from(context, config)
    except SettingsError as error:
        raise Refusal(str(error)) from None
    tell_warnings(loaded)
    from router import app

    context.exit(app.run(loaded.settings))


@main.command()
@click.option("--once", is_flag=True, help="Make the demonstration calls, then end.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen here; 0 = any free port.")
@click.option(
    "--sleep", is_flag=True, help="Show a sandbox that is suspended, and woken by a request."
)
@click.pass_context
def demo(context: click.Context, once: bool, port: int | None, sleep: bool) -> None:
    """Run the router on this machine with sandboxes to try it on; needs no cluster."""
    from router import demo as demonstration

    context.exit(demonstration.run(once=once, http_port=port, sleeps=sleep))


@main.command("check-config", cls=SettingsCommand)
@config_option
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The form of the answer.",
)
@click.pass_context
def check_config(
    context: click.Context, /, config: Path | None, output: str, **_flags: str
) -> None:
    """Show the settings that `serve` would use and where each comes from, or what is wrong.

    Takes the flags and reads the environment and the file as `serve` does. Exit code 2 when something is wrong.
    """
    try:
        loaded = load_from(context, config)
    except SettingsError as error:
        if output == "json":
            click.echo(
                json.dumps({"problems": [str(problem) for problem in error.problems]}, indent=2)
            )
        raise Refusal(str(error)) from None
    click.echo(report.as_json(loaded) if output == "json" else report.as_text(loaded))
    tell_warnings(loaded)


@main.command()
def version() -> None:
    """Show the versions of the router, of Python and of the key libraries."""
    own = installed_version("sandbox-router") or "(from a source tree)"
    click.echo(f"sandbox-router {own}")
    click.echo(code_form.CURRENT.as_sentence())
    click.echo(f"{platform.python_implementation()} {platform.python_version()}")
    for name in KEY_LIBRARIES:
        click.echo(f"{name} {installed_version(name) or '(not installed)'}")


main.add_command(token)
main.add_command(connect)
main.add_command(explain)
main.add_command(suspend_idle)


def installed_version(name: str) -> str | None:
    """Returns a distribution's version, None when it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
