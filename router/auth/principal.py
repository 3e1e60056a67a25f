"""Principal: who calls. Grant: which sandboxes a caller may reach."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.routing.endpoint import Endpoint, SandboxRef

ANY = "*"
CONNECT = b"CONNECT"
"""The method that a raw TCP connection's rights are judged by: bytes go around every rule for requests, so it is never implied."""
AMBIENT_MODES = frozenset({"session", "forwarded"})
"""Modes whose credentials a browser adds by itself, also to what a page of somebody else asks for."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to call some sandboxes. `*` stands for every namespace or name; None for every port or method."""

    namespace: str
    name: str
    uid: str = ""
    """When given, only the pod or Sandbox with this UID."""
    ports: frozenset[int] | None = None
    methods: frozenset[bytes] | None = None
    wake: bool = False
    """Whether a call that it covers may also wake a suspended sandbox."""

    def covers_name(self, ref: SandboxRef) -> bool:
        """Returns True when the grant may concern a sandbox of this name (UID, port and method apart)."""
        return self.namespace in (ANY, ref.namespace) and self.name in (ANY, ref.name)

    def covers_call(self, port: int, method: bytes) -> bool:
        """Returns True when the grant allows this port and method; raw connections only where it says both."""
        if method == CONNECT and (self.ports is None or self.methods is None):
            return False
        return (self.ports is None or port in self.ports) and (
            self.methods is None or method in self.methods
        )

    def covers_endpoint(self, endpoint: Endpoint) -> bool:
        """Returns True when the grant's UID, if any, is the endpoint's."""
        return not self.uid or endpoint.answers_to_uid(self.uid)


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller whose credential was verified. Never holds the credential itself."""

    subject: str
    mode: str
    """How it was recognised: `none`, `static`, `jwt`, `token-review`, `mtls`; `forwarded`, `session` and `link` for people's browsers, `home` and `home-link` on the home page; `public` for whoever calls a public port; or `preflight` for a CORS preflight that passes without a credential."""
    kind: str = ""
    """Which of a certificate's names `subject` is: `uri`, `dns` or `cn`; "" without a certificate."""
    groups: tuple[str, ...] = ()
    issuer: str = ""
    identity: str = ""
    """The certificate's name, the same as `subject`; "" without a certificate."""
    grants: tuple[Grant, ...] = ()
    """The grants that the credential itself carries."""
    token_id: str = ""
    """The token's own id (`jti`), for the log and for revoking it; "" where it has none."""
    made_of: str = ""
    """The `jti` of the link that the session was made of: it is revoked with it; "" for anything else."""
    key_id: str = ""
    """The name (`kid`) of the key that verified the token; "" for a key without one."""
    issued_at: float | None = None
    expires_at: float | None = None
    """Unix seconds; long-lived streams end `auth-grace` after it."""
    believed_until: float = field(default=0.0, compare=False)
    """Until when (Unix seconds) somebody else's word for the caller, the TokenReview API's, is believed without asking again."""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Extra user attributes from TokenReview, handed on to SubjectAccessReview."""
    user_uid: str = ""
    """The user's UID from TokenReview, handed on to SubjectAccessReview."""

    def share(self) -> tuple[str, ...] | None:
        """Returns what tells this caller from others where each has a share of something; None for callers who can't be told apart.

        A token that names nobody is told apart by its own id.
        """
        if self.mode in ("none", "static"):
            return None
        if self.subject:
            return (self.mode, self.kind, self.issuer, self.subject)
        return (self.mode, "token", self.issuer, self.token_id) if self.token_id else None
