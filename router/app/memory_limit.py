"""Memory limit: what the container's control group allows, and how much of it connections may hold."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

logger = logging.getLogger("sandbox_router.app")

_PART: Final = 4
"""`auto` is one part in four: the rest is for the table, idle connections, TLS, the kernel's buffers and what Python needs."""
_WITHOUT_LIMIT_BYTES: Final = 256 * 2**20
_LEAST_BYTES: Final = 8 * 2**20
_NO_LIMIT: Final = 2**60
"""Version 1 writes "no limit" as the largest number of whole pages."""


def container_limit(
    *, proc: Path = Path("/proc"), mount: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Returns the least memory limit (bytes) of this process's control group and those above it, None without one."""
    limits: list[int] = []
    try:
        lines = (proc / "self" / "cgroup").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:  # version 2
            limits += _limits(mount, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(mount / "memory", path, "memory.limit_in_bytes")
    return min(limits, default=None)


def _limits(root: Path, path: str, name: str) -> list[int]:
    """Returns the limits along a path. In a container the path may be the host's: then the root is the container's own group."""
    found = []
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts) + 1):
        try:
            text = root.joinpath(*parts[:depth], name).read_text("ascii").strip()
        except (OSError, UnicodeError):
            continue
        if text.isdecimal() and int(text) < _NO_LIMIT:
            found.append(int(text))
    return found


def buffered_bytes_allowed(wanted: int | None, limit: int | None) -> int:
    """Returns how much all workers together may hold for their connections: `wanted`, or what None (`auto`) comes to."""
    if wanted is not None:
        return wanted
    return _WITHOUT_LIMIT_BYTES if limit is None else max(_LEAST_BYTES, limit // _PART)


def tell(allowed: int, limit: int | None) -> None:
    """Says in one line what it came to, and warns where the rest can't be enough."""
    fields = {"max_buffered_bytes": allowed, "memory_limit": limit or "none"}
    if limit is not None and allowed > limit // 2:
        logger.warning(
            "max-buffered-bytes is more than half of the memory limit: the process may be killed before it is reached; "
            "lower it, or raise the limit",
            extra={"fields": fields},
        )
    else:
        logger.info("memory for what connections hold", extra={"fields": fields})
