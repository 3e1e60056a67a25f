"""The rule that makes one Endpoint of a Sandbox and its pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from router.discovery.pods import PodRecord, PodStage
from router.discovery.sandboxes import Intent, SandboxRecord
from router.routing.endpoint import Endpoint, SandboxRef, State

MULTIPLE_PODS = "MultiplePods"
"""As the Sandbox's controller has it for a Sandbox with pods that can't be told apart."""

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
    traits = sandbox.traits
    if traits.intent is Intent.SUSPENDED:
        return _absent(sandbox, State.SUSPENDED, traits.reason or "SandboxSuspended")
    if traits.intent is Intent.OVER:
        return _absent(sandbox, State.FINISHED, traits.reason)
    own = [pod for pod in pods if pod.sandbox_uid == sandbox.uid]
    found = candidates(own, traits.pod_name or ref.name)
    if len(found) > 1:
        return _absent(sandbox, State.STARTING, MULTIPLE_PODS)
    if found and (addresses := _route(found[0], dialable, is_claimed=bool(traits.claim_uid))):
        return _ready(sandbox.ref, found[0], addresses, sandbox)
    if traits.intent is Intent.FINISHED:
        return _absent(sandbox, State.FINISHED, traits.reason)
    return _absent(sandbox, State.STARTING, _why_starting(found, traits.reason), _live_uid(found))


def candidates(own: Sequence[PodRecord], named: str) -> Sequence[PodRecord]:
    """Returns the pods that may be the Sandbox's: the one called `named` if there is one, else all that live.

    Whoever may create a pod can write any ownerReference into it, but no two pods have one name: so the named one is never
    passed over, and of several others none is more likely than the next.
    """
    by_name = [pod for pod in own if pod.name == named]
    if by_name:
        # Two of one name: the end of the old one has not been seen yet.
        return [max(by_name, key=lambda pod: (pod.traits.is_live, pod.created, pod.uid))]
    return [pod for pod in own if pod.traits.is_live]


def _of_pods_alone(ref: SandboxRef, pods: Sequence[PodRecord], dialable: Dialable) -> Endpoint:
    """The owner of the pod with the sandbox's own name, else of the newest, is the current Sandbox: no predecessor's is routed."""
    current = max(
        pods,
        key=lambda pod: (
            pod.name == ref.name and pod.traits.is_live,
            pod.created,
            pod.traits.is_live,
            pod.uid,
        ),
    ).sandbox_uid
    own = [pod for pod in pods if pod.sandbox_uid == current]
    found = candidates(own, ref.name)
    if len(found) == 1 and (addresses := _route(found[0], dialable, is_claimed=False)):
        return _ready(ref, found[0], addresses, None)
    is_over = all(pod.traits.stage is PodStage.ENDED for pod in own)
    reason = MULTIPLE_PODS if len(found) > 1 else _why_starting(found, "")
    return Endpoint(
        ref=ref,
        uid=_live_uid(found),
        state=State.FINISHED if is_over else State.STARTING,
        sandbox_uid=current,
        reason="PodEnded" if is_over else reason,
    )


def _route(pod: PodRecord, dialable: Dialable, *, is_claimed: bool) -> tuple[str, ...]:
    """Returns the addresses to dial, () while the pod is not routable."""
    traits = pod.traits
    is_routable = traits.stage is PodStage.READY and (is_claimed or not traits.is_pooled)
    return dialable(pod) if is_routable else ()


def _ready(
    ref: SandboxRef,
    pod: PodRecord,
    addresses: tuple[str, ...],
    sandbox: SandboxRecord | None,
) -> Endpoint:
    if sandbox is None:
        return Endpoint(ref, pod.uid, State.READY, addresses, sandbox_uid=pod.sandbox_uid)
    traits = sandbox.traits
    return Endpoint(
        ref=ref,
        uid=pod.uid,
        state=State.READY,
        addresses=addresses,
        sandbox_uid=pod.sandbox_uid,
        wishes=traits.wishes,
        tokens_not_before=traits.tokens_not_before,
        resumed_at=sandbox.resumed_at,
    )


def _absent(sandbox: SandboxRecord, state: State, reason: str, uid: str = "") -> Endpoint:
    return Endpoint(
        ref=sandbox.ref,
        uid=uid,
        state=state,
        sandbox_uid=sandbox.uid,
        reason=reason,
        tokens_not_before=sandbox.traits.tokens_not_before,
        wishes=sandbox.traits.wishes,
        shutdown_at=sandbox.shutdown_at,
        resumed_at=0.0 if state is State.SUSPENDED else sandbox.resumed_at,
    )


def _live_uid(found: Sequence[PodRecord]) -> str:
    """Returns the UID of the pod that is coming, "" while that isn't certain."""
    return found[0].uid if len(found) == 1 and found[0].traits.is_live else ""


def _why_starting(found: Sequence[PodRecord], reason: str) -> str:
    """Returns words for people; the pods say more than the Sandbox's condition where there are any."""
    ready = [pod for pod in found if pod.traits.stage is PodStage.READY]
    if any(pod.traits.is_pooled for pod in ready):
        return "WaitingForClaim"
    if ready:
        if any(pod.addresses for pod in ready):
            return "AddressContested"
        return "AddressRefused" if ready[0].traits.refused_address else "NoAddress"
    if any(pod.traits.stage is PodStage.STARTING for pod in found):
        return "PodNotReady"
    return reason or "NoPod"
