"""Descriptors: how many open files this process may have, and how many connections that is enough for."""

from __future__ import annotations

import logging
import resource
from typing import Final

logger = logging.getLogger("sandbox_router.app")

_OTHERS: Final = 256
"""For listeners, logs, the admin port, the API server, files being read."""
_PER_CONNECTION: Final = 2
"""A client's socket and a sandbox's."""


def raise_limit() -> int:
    """Raises the soft limit of open files to the hard one, and returns it: the usual 1,024 would end at 500 clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # a kernel's own maximum may be lower than "unlimited"
        return soft
    return hard


def connections_allowed(open_files: int, *, wanted: int, workers: int) -> int:
    """Returns how many connections all workers together may hold: `wanted` (0 = no limit), or what the open files are enough for.

    Over it a connection gets a clear answer; without descriptors nobody would get any.
    """
    if open_files == resource.RLIM_INFINITY:
        return wanted
    enough_for = max(1, (open_files - _OTHERS) // _PER_CONNECTION) * workers
    return min(wanted, enough_for) if wanted else 0


def connections_here(wanted: int) -> int:
    """Returns how many of `wanted` connections (0 = no limit) this process alone has open files for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections_allowed(soft, wanted=wanted, workers=1)


def tell(open_files: int, *, wanted: int, allowed: int) -> None:
    """Says in one line what the limit is, and whether it is what bounds the connections."""
    fields = {"open_files": open_files, "max_connections": allowed or "unlimited"}
    if allowed < wanted:
        fields["wanted"] = wanted
        logger.info(
            "open files allow fewer connections than max-connections: this many are taken",
            extra={"fields": fields},
        )
    else:
        logger.info("open files allow max-connections", extra={"fields": fields})
