"""Version: which router this is."""

from __future__ import annotations

from importlib import metadata


def installed_version() -> str:
    """Returns the router's version, `0+source` when it runs from a source tree that isn't installed."""
    try:
        return metadata.version("sandbox-router")
    except metadata.PackageNotFoundError:
        return "0+source"
