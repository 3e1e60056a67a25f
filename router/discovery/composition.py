"""The rule that makes one Endpoint of a Sandbox and its pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from router.discovery.pods import PodRecord, PodStage
from router.discovery.sandboxes import Intent, SandboxRecord
from router.routing.endpoint import Endpoint, SandboxRef, State

Dialable = Callable[[PodRecord], tuple[str, ...]]
"""Gives the addresses of a pod that are certainly its own."""


def compose(
    ref: SandboxRef,
    sandbox: SandboxRecord | None,
    pods: Sequence[PodRecord],
    dialable: Dialable,
) -> Endpoint | None:
    """Returns what `ref` leads to, None when there is no such sandbox.

    `pods` are those that a Sandbox of this name controls, except those whose Sandbox is known to be gone. Without a Sandbox
    object (not seen yet, or not visible to us) the pods speak for themselves.
    """
    if sandbox is None:
        return _of_pods_alone(ref, pods, dialable) if pods else None
    own = [pod for pod in pods if pod.sandbox_uid == sandbox.uid]
    if sandbox.traits.intent is Intent.SUSPENDED:
        return _absent(sandbox, State.SUSPENDED, sandbox.traits.reason or "SandboxSuspended")
    chosen = _choose(
        own, dialable, is_claimed=bool(sandbox.traits.claim_uid), named=sandbox.traits.pod_name
    )
    if chosen is not None:
        return _ready(sandbox.ref, chosen, dialable(chosen), sandbox.traits.tokens_not_before)
    if sandbox.traits.intent is Intent.FINISHED:
        return _absent(sandbox, State.FINISHED, sandbox.traits.reason)
    return _absent(
        sandbox, State.STARTING, _why_starting(own, sandbox.traits.reason), _newest_uid(own)
    )


def _of_pods_alone(ref: SandboxRef, pods: Sequence[PodRecord], dialable: Dialable) -> Endpoint:
    """The newest pod's owner is the current Sandbox of the name: a predecessor's pod is never routed once it is seen."""
    current = max(pods, key=lambda pod: (pod.created, pod.traits.is_live, pod.uid)).sandbox_uid
    own = [pod for pod in pods if pod.sandbox_uid == current]
    chosen = _choose(own, dialable, is_claimed=False, named="")
    if chosen is not None:
        return _ready(ref, chosen, dialable(chosen), 0.0)
    is_over = all(pod.traits.stage is PodStage.ENDED for pod in own)
    return Endpoint(
        ref=ref,
        uid=_newest_uid(own),
        state=State.FINISHED if is_over else State.STARTING,
        sandbox_uid=current,
        reason="PodEnded" if is_over else _why_starting(own, ""),
    )


def _choose(
    own: Sequence[PodRecord], dialable: Dialable, *, is_claimed: bool, named: str
) -> PodRecord | None:
    """Returns the pod to route to: the one the Sandbox names, else the newest (the UID breaks ties, whatever the order of events)."""
    routable = [
        pod
        for pod in own
        if pod.traits.stage is PodStage.READY
        and (is_claimed or not pod.traits.is_pooled)
        and dialable(pod)
    ]
    return max(routable, key=lambda pod: (pod.name == named, pod.created, pod.uid), default=None)


def _ready(
    ref: SandboxRef, pod: PodRecord, addresses: tuple[str, ...], tokens_not_before: float
) -> Endpoint:
    return Endpoint(
        ref=ref,
        uid=pod.uid,
        state=State.READY,
        addresses=addresses,
        sandbox_uid=pod.sandbox_uid,
        tokens_not_before=tokens_not_before,
    )


def _absent(sandbox: SandboxRecord, state: State, reason: str, uid: str = "") -> Endpoint:
    return Endpoint(
        ref=sandbox.ref,
        uid=uid,
        state=state,
        sandbox_uid=sandbox.uid,
        reason=reason,
        tokens_not_before=sandbox.traits.tokens_not_before,
    )


def _newest_uid(own: Sequence[PodRecord]) -> str:
    newest = max(own, key=lambda pod: (pod.traits.is_live, pod.created, pod.uid), default=None)
    return newest.uid if newest is not None and newest.traits.is_live else ""


def _why_starting(own: Sequence[PodRecord], reason: str) -> str:
    """Returns words for people; the pods say more than the Sandbox's condition where there are any."""
    ready = [pod for pod in own if pod.traits.stage is PodStage.READY]
    if any(pod.traits.is_pooled for pod in ready):
        return "WaitingForClaim"
    if ready:
        return "AddressContested" if any(pod.addresses for pod in ready) else "NoAddress"
    if any(pod.traits.stage is PodStage.STARTING for pod in own):
        return "PodNotReady"
    return reason or "NoPod"
