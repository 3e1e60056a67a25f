"""Rights: all grants of one principal, found by sandbox name without a walk through every rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from router.auth.policy import Policy
from router.auth.principal import ANY, Grant, Principal
from router.routing.endpoint import SandboxRef


class SourcedGrant(NamedTuple):
    """A grant with where it comes from, for the explanation."""

    grant: Grant
    source: str


OWN_GRANTS_MODES = frozenset({"link", "session", "home-link", "home"})
"""Modes whose callers have the grants of their credential alone, whatever rules say of its subject."""

NO_GRANTS: tuple[SourcedGrant, ...] = ()


class Rights:
    """The grants of `principal` under one policy, by (namespace, name) as they are written, `*` included."""

    __slots__ = ("_by_ref", "_has_wildcards", "principal")

    def __init__(self, principal: Principal, policy: Policy) -> None:
        self.principal = principal
        by_ref: dict[tuple[str, str], list[SourcedGrant]] = {}
        for sourced in _grants_of(principal, policy):
            written = sourced.grant.namespace, sourced.grant.name
            by_ref.setdefault(written, []).append(sourced)
        self._by_ref = {written: tuple(grants) for written, grants in by_ref.items()}
        self._has_wildcards = any(ANY in written for written in by_ref)

    def __repr__(self) -> str:
        return f"<Rights of {self.principal.subject!r} on={len(self._by_ref)}>"

    def about(self, ref: SandboxRef) -> tuple[SourcedGrant, ...]:
        """Returns every grant that covers this name (its UID, port and method apart)."""
        by_ref = self._by_ref
        found = by_ref.get(ref, NO_GRANTS)
        if self._has_wildcards:
            namespace, name = ref
            # Plain tuples equal named ones and cost a third (bench/auth.py).
            for wider in ((namespace, ANY), (ANY, name), (ANY, ANY)):
                found += by_ref.get(wider, NO_GRANTS)
        return found

    def all(self) -> Iterator[SourcedGrant]:
        """Yields every grant."""
        for grants in self._by_ref.values():
            yield from grants


def _grants_of(principal: Principal, policy: Policy) -> Iterator[SourcedGrant]:
    if principal.mode in OWN_GRANTS_MODES:
        # Whoever got hold of it elsewhere would have all that its subject may.
        yield from (SourcedGrant(grant, f"the {principal.mode}") for grant in principal.grants)
        return
    for number, grant in enumerate(principal.grants, 1):
        yield SourcedGrant(grant, f"token claim sandboxes, entry {number}")
    for rule in policy.rules_for(principal):
        for grant in rule.grants:
            yield SourcedGrant(grant, f"policy rule {rule.number} at line {rule.line}")
