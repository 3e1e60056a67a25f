"""AliasTable: the names of SandboxClaims, and which sandbox each leads to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from router.discovery.claims import ClaimRecord
from router.discovery.listing import Listing
from router.discovery.multimap import MultiMap
from router.discovery.recent_versions import RecentVersions
from router.discovery.sandboxes import SandboxRecord
from router.discovery.tombstones import Tombstones
from router.routing.endpoint import SandboxRef
from router.routing.index import EndpointIndex


class AliasTable:
    """Keeps the index's aliases right as claims and Sandboxes change, in any order.

    A claim's name leads to the Sandbox that it is bound to, unless that Sandbox is known to serve another claim. A binding
    that only the claim's annotation tells counts once the Sandbox confirms it. `sandbox` looks a Sandbox up.
    """

    def __init__(
        self,
        *,
        index: EndpointIndex,
        sandbox: Callable[[SandboxRef], SandboxRecord | None],
    ) -> None:
        self._index = index
        self._sandbox = sandbox
        self._claims: dict[SandboxRef, ClaimRecord] = {}
        self._claims_of: MultiMap[SandboxRef, SandboxRef] = MultiMap()
        self._versions: RecentVersions[SandboxRef] = RecentVersions()
        self._gone = Tombstones()
        self._listed: set[str | None] = set()

    def __len__(self) -> int:
        return len(self._claims)

    def upsert(self, claim: ClaimRecord) -> None:
        """Takes an ADDED or MODIFIED claim."""
        is_late = self._versions.is_late(claim.ref, claim.version)
        if is_late or self._gone.is_late(claim.uid, claim.version):
            return
        self._versions.note(claim.ref, claim.version)
        self._put(claim)

    def remove(self, claim: ClaimRecord) -> None:
        """Takes a DELETED claim; a predecessor's late end leaves its successor alone."""
        self._gone.add(claim.uid, claim.version)
        known = self._claims.get(claim.ref)
        if known is not None and known.uid == claim.uid:
            self._drop(known)

    def listing(self, namespace: str | None) -> Listing[ClaimRecord, SandboxRef]:
        """Returns where a complete list of the scope's claims (None = all namespaces) goes."""
        return Listing(
            key=lambda claim: claim.ref,
            is_known=self._is_known,
            commit=partial(self._commit, namespace),
        )

    def _is_known(self, claim: ClaimRecord) -> bool:
        known = self._claims.get(claim.ref)
        return known == claim or (known is None and claim.sandbox == claim.ref)

    def _commit(
        self, namespace: str | None, unchanged: set[SandboxRef], changed: list[ClaimRecord]
    ) -> None:
        listed = {claim.ref for claim in changed}
        missing = [
            known
            for ref, known in self._claims.items()
            if ref not in unchanged and ref not in listed and namespace in (None, ref.namespace)
        ]
        for known in missing:
            self._gone.add(known.uid, self._versions.latest(known.ref))
            self._drop(known)
        self._versions.clear()
        for claim in changed:
            self._gone.discard(claim.uid)
            self._put(claim)
        if namespace not in self._listed:
            self._listed.add(namespace)
            self._drop_strays(namespace)

    def _drop_strays(self, namespace: str | None) -> None:
        """Takes out of the index what it has of a scope from another table and our own first list doesn't have."""
        for alias in self._index.snapshot()[1]:
            if namespace in (None, alias.namespace) and alias not in self._claims:
                self._index.remove_alias(alias)

    def sandbox_changed(self, ref: SandboxRef) -> None:
        """Looks again at the claims that are bound to this Sandbox."""
        for claim_ref in self._claims_of.get(ref):
            self._point(self._claims[claim_ref])

    def _put(self, claim: ClaimRecord) -> None:
        known = self._claims.get(claim.ref)
        if claim.sandbox == claim.ref:
            # The usual case, a claim and its Sandbox of one name, needs no alias and no memory.
            if known is not None:
                self._drop(known)
            return
        if known is not None and known.sandbox != claim.sandbox:
            self._claims_of.discard(known.sandbox, known.ref)
        self._claims_of.add(claim.sandbox, claim.ref)
        self._claims[claim.ref] = claim
        if known != claim:
            self._point(claim)

    def _drop(self, known: ClaimRecord) -> None:
        del self._claims[known.ref]
        self._claims_of.discard(known.sandbox, known.ref)
        self._index.remove_alias(known.ref)

    def _point(self, claim: ClaimRecord) -> None:
        if self._is_bound(claim):
            self._index.set_alias(claim.ref, claim.sandbox)
        else:
            self._index.remove_alias(claim.ref)

    def _is_bound(self, claim: ClaimRecord) -> bool:
        if not claim.sandbox.name:
            return False
        sandbox = self._sandbox(claim.sandbox)
        if sandbox is not None and sandbox.traits.claim_uid:
            return sandbox.traits.claim_uid == claim.uid
        return claim.is_bound_by_status
