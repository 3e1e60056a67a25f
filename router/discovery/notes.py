"""What stands out about one sandbox, in sentences for people: on its line of /debug/sandboxes, and in the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from router.discovery.composition import candidates
from router.discovery.pods import PodRecord
from router.discovery.sandboxes import SandboxRecord
from router.routing.endpoint import SandboxRef

_SHOWN_NAMES = 5


def notes_of(
    ref: SandboxRef, sandbox: SandboxRecord | None, pods: Sequence[PodRecord]
) -> tuple[str, ...]:
    """Returns what could not be followed in the Sandbox object, and what is odd about the pods that carry its reference."""
    unreadable = sandbox.traits.unreadable if sandbox is not None else ()
    return (*unreadable, *_of_several(ref, sandbox, pods), *_of_addresses(pods))


def is_plain(sandbox: SandboxRecord | None, pods: Sequence[PodRecord]) -> bool:
    """Returns True when there can be no notes: the quick answer for almost all."""
    if sandbox is not None and sandbox.traits.unreadable:
        return False
    return not pods or (len(pods) == 1 and not pods[0].traits.refused_address)


def _of_several(
    ref: SandboxRef, sandbox: SandboxRecord | None, pods: Sequence[PodRecord]
) -> Iterable[str]:
    own = [pod for pod in pods if sandbox is None or pod.sandbox_uid == sandbox.uid]
    named = (sandbox.traits.pod_name if sandbox is not None else "") or ref.name
    chosen = candidates(own, named)
    if len(chosen) > 1:
        yield (
            f"pods that carry its ownerReference and can't be told apart: {_names(chosen)}; none is "
            f"called {named}, so none is dialled: delete those that are not its own"
        )
    # Not those of the chosen one's own name: their end has only not been seen yet.
    known = {pod.name for pod in chosen}
    others = [pod for pod in own if pod.traits.is_live and pod.name not in known]
    if others:
        yield f"pods that carry its ownerReference beside its own, never dialled: {_names(others)}"


def _of_addresses(pods: Sequence[PodRecord]) -> Iterable[str]:
    for pod in pods:
        if pod.traits.refused_address and pod.traits.is_live:
            yield (
                f"its pod {pod.name} reports the address {pod.traits.refused_address}, which can't be "
                "a pod's: it is not dialled"
            )


def _names(pods: Sequence[PodRecord]) -> str:
    names = sorted(pod.name for pod in pods)
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more
