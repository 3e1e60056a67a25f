"""Durations and keys as the minting commands take them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from router.cli.signing import seconds, signing_key

SECRETS = "a 0123456789012345678901234567890123456789\nb abcdefghijabcdefghijabcdefghijabcdefghij\n"


def test_a_duration_is_what_settings_take() -> None:
    assert (seconds("90s"), seconds("1h"), seconds("60")) == (90.0, 3600.0, 60.0)
    with pytest.raises(click.BadParameter):
        seconds("soon")


def test_the_first_secret_signs_unless_another_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_text(SECRETS)
    assert signing_key(path, None, None, None).kid == "a"
    assert signing_key(path, None, None, "b").kid == "b"


@pytest.mark.parametrize("files", [(None, None), (Path("a"), Path("b"))])
def test_one_key_is_named(files: tuple[Path | None, Path | None]) -> None:
    with pytest.raises(click.UsageError, match="Give either"):
        signing_key(*files, None, None)


def test_a_file_without_a_key_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_text("short")
    with pytest.raises(click.ClickException, match="secrets: line 1"):
        signing_key(path, None, None, None)
    with pytest.raises(click.UsageError, match="--algorithm is for --key-file"):
        signing_key(path, None, "RS256", None)
