"""Policy: which grants principals have beside their credential's own, and which credentials are revoked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from router.auth.principal import Grant, Principal

MATCHED_MODES = ("jwt", "token-review", "mtls", "forwarded")
"""The modes whose callers have only what rules, tokens and RBAC grant; the others may call everything."""
KINDS = ("uri", "dns", "cn")

_KUBERNETES_NAMES = "system:"
_URI = re.compile(r"(?!system:)[A-Za-z][A-Za-z0-9+.-]*:\S+", re.ASCII)
_DNS_NAME = re.compile(r"(\*\.)?([A-Za-z0-9_-]{1,63}\.)+[A-Za-z0-9-]{1,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PrincipalMatch:
    """Which principals a rule is about: every key that is given must match; at least one is given.

    `subject` and `group` are what a token says, never a certificate; names that begin with `system:` are Kubernetes' own,
    unless `mode` or `issuer` says whose they are. `identity` is a certificate's name of that `kind`, nothing else's.
    """

    subject: str = ""
    group: str = ""
    issuer: str = ""
    identity: str = ""
    mode: str = ""
    kind: str = ""

    def matches(self, principal: Principal) -> bool:
        """Returns True when every given key is the principal's."""
        if self.mode and self.mode != principal.mode:
            return False
        if self.issuer and self.issuer != principal.issuer:
            return False
        if self.identity and (principal.identity, principal.kind) != (self.identity, self.kind):
            return False
        if self.subject and (
            self.subject != principal.subject or not self._means(self.subject, principal)
        ):
            return False
        return not self.group or (
            self.group in principal.groups and self._means(self.group, principal)
        )

    def _means(self, name: str, principal: Principal) -> bool:
        """Returns True when a subject or group of this spelling is meant for the principal's mode."""
        if principal.mode == "mtls":
            return False
        is_open = principal.mode == "token-review" or not name.startswith(_KUBERNETES_NAMES)
        return is_open or bool(self.mode or self.issuer)


def kind_of(identity: str) -> str:
    """Returns which of a certificate's names a rule means that doesn't say: one kind by its spelling, never several."""
    if _URI.fullmatch(identity):
        return "uri"
    return "dns" if _DNS_NAME.fullmatch(identity) else "cn"


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
