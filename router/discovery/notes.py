"""What stands out about one sandbox, in sentences for people: on its line of /debug/sandboxes, and in the log."""

from __future__ import annotations

from router.discovery.sandboxes import TOKENS_NOT_BEFORE_ANNOTATION, SandboxRecord
from router.timestamps import FORM


def sandbox_notes(sandbox: SandboxRecord | None) -> tuple[str, ...]:
    """Returns what in the Sandbox object itself could not be followed."""
    if sandbox is None or not sandbox.traits.unreadable_time:
        return ()
    return (
        f"every token is refused: the annotation {TOKENS_NOT_BEFORE_ANNOTATION} is "
        f"{sandbox.traits.unreadable_time}; it must be {FORM}",
    )
