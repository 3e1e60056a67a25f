"""What the commands that mint tokens have in common: the key, and spans of time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from router.auth.minting import SigningKey

ALGORITHMS = ("HS256", "HS384", "HS512", "RS256", "PS256", "ES256", "EdDSA")


def seconds(text: str) -> float:
    """Returns the seconds of a duration as settings take it: `90s`, `15m`, `8h`, or plain seconds."""
    from router.settings.values import BadValueError, duration

    try:
        return float(duration().read(text))
    except BadValueError as error:
        raise click.BadParameter(str(error)) from None


def signing_key(
    secret_file: Path | None, key_file: Path | None, algorithm: str | None, kid: str | None
) -> SigningKey:
    """Returns the key that the options name. Raises UsageError, ClickException."""
    from router.auth.minting import SigningKey

    if (secret_file is None) == (key_file is None):
        raise click.UsageError("Give either --secret-file or --key-file.")
    path = secret_file or key_file
    assert path is not None
    try:
        if secret_file is not None:
            if algorithm is not None:
                raise click.UsageError("--algorithm is for --key-file; secrets sign by HS256.")
            return SigningKey.from_secrets(path.read_bytes(), kid=kid)
        return SigningKey.from_pem(path.read_bytes(), algorithm=algorithm, kid=kid)
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}") from None
