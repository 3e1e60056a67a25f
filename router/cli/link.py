"""The command `token link`: a URL that a person can click."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import click

from router.cli.signing import ALGORITHMS, seconds, signing_key

_SANDBOX = re.compile(r"([a-z0-9-]{1,63})/([a-z0-9-]{1,63})", re.ASCII)
_MAX_LABEL = 63
_existing_file = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command()
@click.argument("sandbox", metavar="NAMESPACE/NAME")
@click.option("--port", required=True, type=click.IntRange(1, 65535), help="The app's port.")
@click.option(
    "--url",
    required=True,
    envvar="SANDBOX_ROUTER_URL",
    metavar="URL",
    help="Where browsers reach the router: https://<base-domain>, or with --path-prefix https://<its host>.",
)
@click.option(
    "--path-prefix", default="", metavar="PREFIX", help="Name the sandbox by path, below this."
)
@click.option("--secret-file", type=_existing_file, help="Sign with a secret of this file.")
@click.option("--key-file", type=_existing_file, help="Sign with this private key (PEM).")
@click.option("--algorithm", type=click.Choice(ALGORITHMS[3:]), help="Default: by the kind of key.")
@click.option("--kid", help="Use the secret of this name, or name the private key so.")
@click.option(
    "--ttl",
    type=seconds,
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="How long the link can be clicked; at most 10m.",
)
@click.option("--path", default="/", show_default=True, help="The page that it opens.")
@click.option(
    "--session-ttl",
    type=seconds,
    metavar="DURATION",
    help="How long the session lasts; at most the router's `session-ttl`, which is the default.",
)
@click.option("--wake", is_flag=True, help="The session may also wake the sandbox.")
@click.option("--uid", default="", help="Only while the sandbox or its pod has this UID.")
@click.option("--subject", default="", help="Who the link is for (sub).")
@click.option("--issuer", default="", help="Who mints it (iss); the router's `jwt-issuer`.")
@click.option("--audience", "audiences", multiple=True, help="Who it is for (aud); repeatable.")
def link(
    sandbox: str,
    port: int,
    url: str,
    path_prefix: str,
    secret_file: Path | None,
    key_file: Path | None,
    algorithm: str | None,
    kid: str | None,
    ttl: float,
    path: str,
    session_ttl: float | None,
    wake: bool,
    uid: str,
    subject: str,
    issuer: str,
    audiences: tuple[str, ...],
) -> None:
    """Print a link that opens a sandbox's page in a browser.

    Whoever clicks it while it is good has a session in this one sandbox, on this one port. The key is one of mode `jwt`, or of
    the router's `session-key-file`.
    """
    from router.auth.minting import mint_link

    named = _SANDBOX.fullmatch(sandbox)
    if named is None:
        raise click.UsageError("Name the sandbox as NAMESPACE/NAME.")
    namespace, name = named.groups()
    if not ttl or session_ttl == 0:
        raise click.UsageError("--ttl and --session-ttl must be longer than nothing.")
    place = _place(url, path_prefix, namespace, name, port)
    key = signing_key(secret_file, key_file, algorithm, kid)
    try:
        minted = mint_link(
            key,
            namespace=namespace,
            name=name,
            port=port,
            ttl_s=ttl,
            uid=uid,
            path=path,
            session_ttl_s=session_ttl,
            wake=wake,
            subject=subject,
            issuer=issuer,
            audiences=audiences,
        )
    except ValueError as error:
        raise click.UsageError(f"The router would refuse this link: {error}") from None
    click.echo(f"{place}/.sandbox-router/session?link={minted}")


def _place(url: str, path_prefix: str, namespace: str, name: str, port: int) -> str:
    """Returns the sandbox's own URL without a slash at its end. Raises UsageError."""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.netloc or "@" in parts.netloc:
        raise click.UsageError("--url must be like https://sandboxes.example.com.")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise click.UsageError("--url has no path; --path-prefix is for that.")
    if path_prefix:
        prefix = path_prefix.strip("/")
        return f"{parts.scheme}://{parts.netloc}/{prefix}/{namespace}/{name}/{port}"
    label = f"{port}-{name}--{namespace}"
    if len(label) > _MAX_LABEL:
        raise click.UsageError(
            f"The host name would begin with {len(label)} characters, and DNS allows {_MAX_LABEL}: use shorter names, or --path-prefix."
        )
    return f"{parts.scheme}://{label}.{parts.netloc}"
