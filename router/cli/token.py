"""The commands under `token`: keys and tokens for mode `jwt`, without a server."""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from router.cli.home_link import home_link
from router.cli.link import link
from router.cli.signing import ALGORITHMS, seconds, signing_key

_file = click.Path(path_type=Path, dir_okay=False)
_existing_file = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def token() -> None:
    """Make keys and gateway tokens, and look into tokens."""


@token.command()
@click.option(
    "--algorithm",
    type=click.Choice(ALGORITHMS),
    default="HS256",
    show_default=True,
    help="HS…: one shared secret. The others: a private key for who mints, a public one for the router.",
)
@click.option("--kid", help="Name the key. Default: the thumbprint; none for a secret.")
@click.option(
    "--key-file",
    type=_file,
    help="Write the private key (or the secret) here, readable by its owner alone. Needed for public-key algorithms.",
)
def keygen(algorithm: str, kid: str | None, key_file: Path | None) -> None:
    """Make a new key.

    A secret goes to --key-file, or to standard output without it: it is what `jwt-secret-file` and `mint --secret-file` read. For the
    public-key algorithms the private key goes to --key-file, and the public one to standard output, as a JWK Set for `jwks-file`.
    """
    from router.auth.minting import SigningKey, public_jwk

    key = SigningKey.generate(algorithm)
    if algorithm.startswith("HS"):
        secret = f"{kid} {key.material.decode()}" if kid else key.material.decode()
        if key_file is None:
            click.echo(secret)
        else:
            _write_private(key_file, secret.encode() + b"\n")
        return
    if key_file is None:
        raise click.UsageError("--key-file says where the private key goes.")
    _write_private(key_file, key.private_pem())
    jwk = public_jwk(key.material, algorithm)
    click.echo(json.dumps({"keys": [{**jwk, "kid": kid} if kid else jwk]}, indent=2))


@token.command()
@click.option("--secret-file", type=_existing_file, help="Sign with a secret of this file.")
@click.option("--key-file", type=_existing_file, help="Sign with this private key (PEM).")
@click.option("--algorithm", type=click.Choice(ALGORITHMS[3:]), help="Default: by the kind of key.")
@click.option("--kid", help="Use the secret of this name, or name the private key so.")
@click.option("--namespace", required=True, help="The sandbox's namespace; * for all.")
@click.option("--name", required=True, help="The sandbox's name; * for all.")
@click.option("--uid", default="", help="Only while the sandbox or its pod has this UID.")
@click.option(
    "--port",
    "ports",
    multiple=True,
    type=click.IntRange(1, 65535),
    help="Only this port; repeatable.",
)
@click.option("--method", "methods", multiple=True, help="Only this HTTP method; repeatable.")
@click.option("--wake", is_flag=True, help="It may also wake the sandbox when that is suspended.")
@click.option("--subject", default="", help="Who the token is for (sub).")
@click.option(
    "--ttl",
    type=seconds,
    metavar="DURATION",
    default="1h",
    show_default=True,
    help="How long it is good for.",
)
@click.option("--issuer", default="", help="Who mints it (iss); the router's `jwt-issuer`.")
@click.option("--audience", "audiences", multiple=True, help="Who it is for (aud); repeatable.")
def mint(
    secret_file: Path | None,
    key_file: Path | None,
    algorithm: str | None,
    kid: str | None,
    namespace: str,
    name: str,
    uid: str,
    ports: tuple[int, ...],
    methods: tuple[str, ...],
    wake: bool,
    subject: str,
    ttl: float,
    issuer: str,
    audiences: tuple[str, ...],
) -> None:
    """Mint a token for a sandbox and print it alone."""
    from router.auth import minting

    if not ttl:
        raise click.UsageError("--ttl must be longer than nothing.")
    key = signing_key(secret_file, key_file, algorithm, kid)
    try:
        grant = minting.grant_claim(
            namespace=namespace, name=name, uid=uid, ports=ports, methods=methods, wake=wake
        )
    except ValueError as error:
        raise click.UsageError(f"The router would refuse this grant: {error}.") from None
    click.echo(
        minting.mint(
            key, grants=[grant], ttl_s=ttl, subject=subject, issuer=issuer, audiences=audiences
        )
    )


token.add_command(link)
token.add_command(home_link)


@token.command("inspect")
@click.argument("token_text", metavar="[TOKEN]", default="-")
@click.option("--secret-file", type=_existing_file, help="Check it with the secrets of this file.")
@click.option("--keys-file", type=_existing_file, help="Check it with this JWK Set or PEM file.")
@click.option("--issuer", help="Check that this is its issuer.")
@click.option("--audience", "audiences", multiple=True, help="Check it is for this audience.")
@click.option(
    "--leeway",
    type=seconds,
    metavar="DURATION",
    default="30s",
    show_default=True,
    help="Forgive clocks this much.",
)
@click.pass_context
def inspect_token(
    context: click.Context,
    token_text: str,
    secret_file: Path | None,
    keys_file: Path | None,
    issuer: str | None,
    audiences: tuple[str, ...],
    leeway: float,
) -> None:
    """Show what is in a token, and with keys whether a router would accept it (exit code 1 if not).

    Without TOKEN, or for `-`, it is read from standard input: an argument can be seen by everybody on the machine.
    """
    from router.auth.jws import NotJwsError, parse_jws

    raw = sys.stdin.read() if token_text == "-" else token_text  # noqa: S105
    compact = raw.strip().encode("utf-8", "surrogateescape")
    try:
        jws = parse_jws(compact)
    except NotJwsError as error:
        raise click.ClickException(str(error)) from None
    told: dict[str, Any] = {"header": jws.header, "claims": jws.claims, "times": _times(jws.claims)}
    files = {"secret": secret_file, "keys": keys_file}
    if not any(files.values()):
        told["verdict"] = "not checked: give --secret-file or --keys-file"
        click.echo(json.dumps(told, indent=2))
        return
    refusal = _check(compact, jws.header, files, issuer, audiences, leeway)
    told["verdict"] = refusal or "accepted"
    click.echo(json.dumps(told, indent=2))
    context.exit(1 if refusal else 0)


def _check(
    compact: bytes,
    header: dict[str, Any],
    files: dict[str, Path | None],
    issuer: str | None,
    audiences: tuple[str, ...],
    leeway_s: float,
) -> str:
    """Returns why a router with these keys would refuse the token; "" if it would not."""
    from router.auth.claims import ClaimRules
    from router.auth.home_tokens import HOME_LINKS, HOMES
    from router.auth.jwt import BEARER_TOKENS, JwtVerifier
    from router.auth.keys import KeyRing, parse_key_file
    from router.auth.links import LINKS
    from router.auth.sessions import SESSIONS
    from router.auth.verifier import Refusal

    for_browsers = (LINKS, SESSIONS, HOME_LINKS, HOMES)
    by_type = {name: kind for kind in for_browsers for name in kind.types}
    kind = by_type.get(str(header.get("typ")).lower(), BEARER_TOKENS)
    ring = KeyRing()
    for source, path in files.items():
        if path is not None:
            try:
                keys = parse_key_file(path.read_bytes(), allow_secrets=source == "secret")
            except ValueError as error:
                raise click.ClickException(f"{path}: {error}") from None
            ring.replace(source, keys)
    verifier = JwtVerifier(
        keys=ring,
        rules=ClaimRules(issuer, audiences, leeway_s),
        is_refused=lambda principal: False,
        remote=None,
        kind=kind,
    )
    verdict = verifier.verify(compact)
    return verdict.detail if isinstance(verdict, Refusal) else ""


def _times(claims: dict[str, Any]) -> dict[str, str]:
    """Returns the times of a token for people."""
    times = {}
    for name in ("iat", "nbf", "exp"):
        value = claims.get(name)
        if isinstance(value, (int, float)) and 0 <= value <= 253_402_300_799:
            moment = datetime.datetime.fromtimestamp(value, datetime.UTC)
            times[name] = moment.isoformat(timespec="seconds")
    return times


def _write_private(path: Path, content: bytes) -> None:
    """Writes a new file that its owner alone may read; never over an old key."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.ClickException(f"{path} exists already; keys are never overwritten.") from None
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    with open(descriptor, "wb") as file:
        file.write(content)
