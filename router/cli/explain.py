"""The command `explain`: asks a running router what it would do with a request, or what keeps a sandbox awake, and why."""

from __future__ import annotations

import http.client
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import click

from router.cli import awake as awake_text

_TIMEOUT_S = 10.0
_STEPS = ("target", "principal", "endpoint", "decision", "outcome")


class CannotAsk(click.ClickException):
    """The router gave no usable answer; nothing is known about the request."""

    exit_code = 2


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False)
@click.option("--namespace", help="The sandbox's namespace. Default: the router's own default.")
@click.option("--port", help="The port asked for. Default: the router's own default.")
@click.option("--method", default="GET", show_default=True)
@click.option("--path", help="The path of the request; with path-prefix it may name the sandbox.")
@click.option("--host", help="The Host of the request; with base-domain it may name the sandbox.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A file with the caller's token. Without it the variable SANDBOX_TOKEN is taken, if set.",
)
@click.option("--token", envvar="SANDBOX_TOKEN", hidden=True, default="")
@click.option(
    "--awake",
    metavar="NS/NAME",
    help="Show instead what keeps this sandbox awake, as far as this router knows.",
)
@click.option(
    "--admin",
    default="http://127.0.0.1:9090",
    show_default=True,
    help="Where the router's admin port is.",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(
    name: str | None,
    namespace: str | None,
    port: str | None,
    method: str,
    path: str | None,
    host: str | None,
    token_file: Path | None,
    token: str,
    awake: str | None,
    admin: str,
    output: str,
) -> None:
    """Show each decision that a running router would take about a request to sandbox NAME, up to the address.

    Nothing is sent to the sandbox. The exit code is 0 when the request would reach it, 1 when it would be refused, and 2 when the
    router could not be asked. With --awake it is 0 when the router told, and 1 when it doesn't know everything.
    """
    if awake is not None:
        _explain_awake(awake, admin, output)
        return
    query = {"namespace": namespace, "name": name, "port": port, "path": path, "method": method}
    headers = {"Accept": "application/json"}
    if host is not None:
        headers["Host"] = host
    if token_file is not None:
        token = token_file.read_text(encoding="utf-8")
    if token.strip():
        headers["X-Sandbox-Token"] = token.strip()
    answer = _ask(admin, "/debug/route", {k: v for k, v in query.items() if v}, headers)
    if "outcome" not in answer:
        raise CannotAsk(f"{admin} is not a router's admin port: it tells no outcome")
    click.echo(json.dumps(answer, indent=2) if output == "json" else as_text(answer))
    if answer["outcome"].get("status") is not None or answer["outcome"].get("code"):
        sys.exit(1)


def _explain_awake(named: str, admin: str, output: str) -> None:
    namespace, slash, name = named.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.UsageError(f"--awake: {named!r} is not NAMESPACE/NAME")
    told = _ask(admin, "/activity", {"namespace": namespace, "name": name}, {})
    try:
        text = awake_text.as_text(named, told)
    except (KeyError, TypeError, ValueError) as exc:
        raise CannotAsk(f"{admin} told no activity that can be read: {exc}") from exc
    click.echo(json.dumps(told, indent=2) if output == "json" else text)
    if not told["complete"]:
        sys.exit(1)


def as_text(answer: dict[str, Any]) -> str:
    """Returns the answer for people: a line a step, what is empty left out."""
    lines = []
    for step in _STEPS:
        facts = answer.get(step)
        lines.append(f"{step:<10} {_facts(facts)}")
    return "\n".join(lines)


def _facts(facts: Any) -> str:
    if not isinstance(facts, dict):
        return "-"
    shown = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in facts.items()
        if value not in (None, "", [], {})
    ]
    return "  ".join(shown) or "-"


def _ask(admin: str, page: str, query: dict[str, str], headers: dict[str, str]) -> dict[str, Any]:
    """Returns the admin port's answer. Raises CannotAsk when there is none."""
    url = urlsplit(admin if "://" in admin else f"http://{admin}")
    if url.scheme != "http" or url.hostname is None:
        raise CannotAsk(f"--admin: {admin!r} is no http address")
    connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", f"{page}?{urlencode(query)}", headers=headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException) as exc:
        raise CannotAsk(
            f"no answer from the router's admin port at {admin}: {exc}. "
            "Is it running? In a cluster: kubectl port-forward to its port 9090, for this once."
        ) from exc
    except ValueError as exc:
        raise CannotAsk(f"{admin} is not a router's admin port: {exc}") from exc
    finally:
        connection.close()
    if response.status != 200 or not isinstance(answer, dict):
        raise CannotAsk(str(answer.get("detail", answer) if isinstance(answer, dict) else answer))
    return answer
