"""The hosts file: names that the machine, or the pod's `hostAliases`, answers without DNS."""

from __future__ import annotations

import ipaddress
import logging
import os
from pathlib import Path
from typing import Final

from router.watched_file import read_regular

logger = logging.getLogger("sandbox_router.discovery")

_LOCALHOST: Final = ["127.0.0.1", "::1"]
"""RFC 6761 §6.3: this name is never asked of a server."""


class HostsFile:
    """Reads the file again whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int, int] | None = None
        """The inode, size and time of change of what was read."""
        self._names: dict[str, list[str]] = {}

    def __repr__(self) -> str:
        return f"<HostsFile {self._path} names={len(self._names)}>"

    def find(self, name: str) -> list[str]:
        """Returns the addresses of a name in any case, IPv4 first; [] when the file doesn't have it."""
        self._refresh()
        name = name.lower()
        return list(self._names.get(name, _LOCALHOST if name == "localhost" else ()))

    def _refresh(self) -> None:
        try:
            found = os.stat(self._path)
            state = (found.st_ino, found.st_size, found.st_mtime_ns)
            if state == self._read:
                return
            text = read_regular(self._path).decode("utf-8", errors="replace")
        except (OSError, ValueError) as exc:
            if self._names:
                logger.warning(
                    "the hosts file can't be read: its names are not known any more",
                    extra={"fields": {"file": str(self._path), "reason": str(exc)}},
                )
            self._read, self._names = None, {}
            return
        self._read, self._names = state, _parse(text)


def _parse(text: str) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for line in text.splitlines():
        fields = line.partition("#")[0].split()
        if len(fields) < 2:
            continue
        try:
            address = str(ipaddress.ip_address(fields[0]))
        except ValueError:
            continue
        for name in fields[1:]:
            addresses = names.setdefault(name.lower(), [])
            if address not in addresses:
                addresses.append(address)
    for addresses in names.values():
        addresses.sort(key=lambda address: ":" in address)
    return names
