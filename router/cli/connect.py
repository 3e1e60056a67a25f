"""The command `connect`: TCP to a sandbox's ports, through a router and nothing else (docs/connect.md)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


class Wrong(click.ClickException):
    """Ends the command with one message."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Writes the message to stderr."""
        click.echo(f"sandbox-router connect: {self.message}", file=file, err=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("sandbox", metavar="[NS/]NAME")
@click.argument("ports", metavar="[LOCAL:]PORT...", nargs=-1, required=True)
@click.option(
    "--stdio", is_flag=True, help="Connect standard input and output, for ssh's ProxyCommand."
)
@click.option(
    "--url", envvar="SANDBOX_URL", help="Where the router is.  [environment: SANDBOX_URL]"
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A file with the token, read for every connection. Without it the variable SANDBOX_TOKEN is taken.",
)
@click.option(
    "--ca-file",
    type=click.Path(dir_okay=False, exists=True),
    help="The authorities that sign the router's certificate (PEM), instead of the system's.",
)
@click.pass_context
def connect(
    context: click.Context,
    sandbox: str,
    ports: tuple[str, ...],
    *,
    stdio: bool,
    url: str | None,
    token_file: Path | None,
    ca_file: str | None,
) -> None:
    """Bring TCP to ports of a sandbox: LOCAL on 127.0.0.1 of this machine leads to PORT of sandbox NAME. Needs no cluster access.

    LOCAL is PORT where it isn't given; 0 is any free port. Every connection to it becomes one of its own to the sandbox. With
    --stdio there is one PORT, and standard input and output are the connection:

    \b
      ssh -o ProxyCommand='sandbox-router connect --stdio %h %p' user@box
    """
    from router.cli.forwarding import TOKEN_VARIABLE, Forward, Way, run
    from router.cli.raw_link import Router

    namespace, name = _named(sandbox)
    forwards = [Forward(*_ports(text, stdio=stdio)) for text in ports]
    if stdio and len(forwards) > 1:
        raise Wrong("--stdio takes one PORT")
    if not url:
        raise Wrong("where is the router? Give --url https://router.example, or set SANDBOX_URL")
    try:
        router = Router.of(url, ca_file)
    except (OSError, ValueError) as exc:
        raise Wrong(f"--url: {exc}") from None
    way = Way(router, namespace, name, token_file, os.environ.get(TOKEN_VARIABLE, ""))
    context.exit(run(way, forwards, stdio=stdio))


def _named(sandbox: str) -> tuple[str, str]:
    namespace, slash, name = sandbox.rpartition("/")
    if not _LABEL.fullmatch(name) or (slash and not _LABEL.fullmatch(namespace)):
        raise Wrong(f"{sandbox!r} names no sandbox: NAME or NAMESPACE/NAME")
    return namespace, name


def _ports(text: str, *, stdio: bool) -> tuple[int, int]:
    """Returns the local port and the sandbox's."""
    local, colon, port = text.rpartition(":")
    if (stdio and colon) or not _PORT.fullmatch(port) or (colon and not _PORT.fullmatch(local)):
        form = "PORT" if stdio else "PORT or LOCAL:PORT"
        raise Wrong(f"{text!r} is no port: {form}, like {'22' if stdio else '22 or 2222:22'}")
    here, there = int(local or port), int(port)
    if not 1 <= there <= 65_535 or here > 65_535:
        raise Wrong(f"{text!r} is no port: they go from 1 to 65535")
    return here, there
