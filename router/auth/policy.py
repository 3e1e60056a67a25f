"""Policy: which grants principals have beside their credential's own, and which credentials are revoked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from router.auth.principal import Grant, Principal


@dataclass(frozen=True, slots=True)
class PrincipalMatch:
    """Which principals a rule is about: every key that is given must match; at least one is given."""

    subject: str = ""
    group: str = ""
    issuer: str = ""
    identity: str = ""

    def matches(self, principal: Principal) -> bool:
        """Returns True when every given key is the principal's."""
        return (
            (not self.subject or self.subject == principal.subject)
            and (not self.group or self.group in principal.groups)
            and (not self.issuer or self.issuer == principal.issuer)
            and (not self.identity or self.identity == principal.identity)
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """Grants for the principals that match; `number` counts from 1, `line` is where it stands in the file."""

    principal: PrincipalMatch
    grants: tuple[Grant, ...]
    number: int
    line: int


@dataclass(frozen=True, slots=True)
class NotBefore:
    """Refuses the tokens that an issuer, or for a subject, was issued before `time` (Unix seconds)."""

    issuer: str
    subject: str
    time: float


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy file, as a value."""

    rules: tuple[Rule, ...] = ()
    revoked: frozenset[str] = frozenset()
    not_before: tuple[NotBefore, ...] = ()

    def rules_for(self, principal: Principal) -> Iterator[Rule]:
        """Yields every rule that matches, in the file's order."""
        return (rule for rule in self.rules if rule.principal.matches(principal))


class CurrentPolicy:
    """The policy in force: replaced as a whole, and whoever derived something from the old one is told."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy if policy is not None else Policy()
        self._listeners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        policy = self.policy
        return (
            f"<CurrentPolicy rules={len(policy.rules)} revoked={len(policy.revoked)}"
            f" not_before={len(policy.not_before)}>"
        )

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after every replacement."""
        self._listeners.append(listener)

    def replace(self, policy: Policy) -> None:
        """Puts another policy in force."""
        self.policy = policy
        for listener in self._listeners:
            listener()
