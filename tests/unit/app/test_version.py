"""Which router this is."""

from __future__ import annotations

import pytest

from router.app.version import installed_version


def test_the_version_is_known_or_told_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed_version()
    monkeypatch.setattr("router.app.version.metadata.version", _not_installed)
    assert installed_version() == "0+source"


def _not_installed(name: str) -> str:
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)
