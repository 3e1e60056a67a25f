"""The demo: real sandboxes on this machine behind a real router, and what comes back through it."""

from __future__ import annotations


def run(*, once: bool, http_port: int | None = None, sleeps: bool = False) -> int:
    """Runs the demo in this process's main thread and returns its exit status; see session.run."""
    # Imported late: a sandbox process (`python -m router.demo.sandboxes`) needs none of it.
    from router.demo import session

    return session.run(once=once, http_port=http_port, sleeps=sleeps)
