"""Mode `forwarded`: whoever a trusted proxy in front has signed in, as it says in a header of its own."""

from __future__ import annotations

from cachetools import LRUCache

from router.auth.authenticator import ForwardedIdentity
from router.auth.principal import Principal
from router.auth.verifier import Reason, Refusal, Verdict

MAX_REMEMBERED = 4096

_MALFORMED = Refusal(
    "forwarded", Reason.MALFORMED, "The proxy in front does not say clearly who has signed in."
)


class ForwardedAuthenticator:
    """Takes a trusted proxy at its word. What such a caller may do is for the policy file alone to say."""

    mode = "forwarded"

    def __init__(self) -> None:
        # The same object for the same person: what it may do is remembered by it.
        self._known: LRUCache[ForwardedIdentity, Principal] = LRUCache(MAX_REMEMBERED)

    def __repr__(self) -> str:
        return f"<ForwardedAuthenticator remembered={len(self._known)}>"

    def verify(self, identity: ForwardedIdentity) -> Verdict:
        """Returns the caller whom the proxy names; a refusal where it named nobody, or several."""
        if not identity.subject:
            return _MALFORMED
        principal = self._known.get(identity)
        if principal is None:
            principal = Principal(subject=identity.subject, mode=self.mode, groups=identity.groups)
            self._known[identity] = principal
        return principal
