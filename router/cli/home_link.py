"""The command `token home-link`: a URL that shows a person their sandboxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from router.cli.signing import seconds, signing_key

_existing_file = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("home-link")
@click.argument("sandboxes", nargs=-1, required=True, metavar="NAMESPACE/NAME...")
@click.option(
    "--url",
    required=True,
    envvar="SANDBOX_ROUTER_URL",
    metavar="URL",
    help="Where browsers reach the router: https://<base-domain>.",
)
@click.option(
    "--secret-file",
    type=_existing_file,
    required=True,
    help="Sign with a secret of this file: the router's `session-key-file`.",
)
@click.option("--kid", help="Use the secret of this name, by default the first.")
@click.option(
    "--ttl",
    type=seconds,
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="How long the link can be clicked; at most 10m.",
)
@click.option(
    "--session-ttl",
    type=seconds,
    metavar="DURATION",
    help="How long the session lasts; at most the router's `session-ttl`, which is the default.",
)
@click.option("--wake", is_flag=True, help="Suspended sandboxes may be woken too.")
@click.option("--subject", default="", help="Who the link is for (sub); shown on the page.")
@click.option("--issuer", default="", help="Who mints it (iss).")
def home_link(
    sandboxes: tuple[str, ...],
    url: str,
    secret_file: Path,
    kid: str | None,
    ttl: float,
    session_ttl: float | None,
    wake: bool,
    subject: str,
    issuer: str,
) -> None:
    """Print a link that shows a person their sandboxes on the router's base domain (setting `home`).

    Name the sandboxes as NAMESPACE/NAME; `*` stands for every name or namespace. Whoever clicks the link while it is good may open
    them in their browser.
    """
    from router.auth.minting import grant_claim, mint_home_link

    if not ttl or session_ttl == 0:
        raise click.UsageError("--ttl and --session-ttl must be longer than nothing.")
    place = _place(url)
    key = signing_key(secret_file, None, None, kid)
    try:
        minted = mint_home_link(
            key,
            grants=[_grant(grant_claim, sandbox, wake=wake) for sandbox in sandboxes],
            ttl_s=ttl,
            session_ttl_s=session_ttl,
            subject=subject,
            issuer=issuer,
        )
    except ValueError as error:
        raise click.UsageError(f"The router would refuse this link: {error}") from None
    click.echo(f"{place}/.sandbox-router/session?link={minted}")


def _grant(grant_claim: Any, sandbox: str, *, wake: bool) -> dict[str, Any]:
    namespace, slash, name = sandbox.partition("/")
    if not slash:
        raise click.UsageError(f"Name the sandbox as NAMESPACE/NAME, not {sandbox}.")
    claim: dict[str, Any] = grant_claim(
        namespace=namespace, name=name, uid="", ports=(), methods=(), wake=wake
    )
    return claim


def _place(url: str) -> str:
    """Returns the base domain's URL without a slash at its end. Raises UsageError."""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.netloc or "@" in parts.netloc:
        raise click.UsageError("--url must be like https://sandboxes.example.com.")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise click.UsageError("--url has no path: the page is that of the base domain itself.")
    return f"{parts.scheme}://{parts.netloc}"
