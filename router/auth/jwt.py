"""Signed tokens, verified once and remembered by digest until they expire: those of mode `jwt`, links and sessions."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from cachetools import LRUCache

from router.auth.algorithms import SUPPORTED
from router.auth.claims import BadClaimsError, ClaimRules, principal_of
from router.auth.jws import (
    BEARER_TYPES,
    Jws,
    NotJwsError,
    header_fault,
    is_for_browsers,
    parse_jws,
)
from router.auth.keys import KeyRing, VerificationKey
from router.auth.principal import Principal
from router.auth.verifier import Reason, Refusal, Verdict

MAX_REMEMBERED = 8192


class RemoteKeys(Protocol):
    """Keys that somebody else publishes and may change."""

    @property
    def is_loaded(self) -> bool:
        """True once they have been fetched."""
        ...

    async def look_again(self) -> bool:
        """Returns True when they were fetched anew just now; bounded in time, and seldom: most calls return False at once."""
        ...


class _Verified(NamedTuple):
    principal: Principal
    deadline: float


class Reader(Protocol):
    """Reads the claims of a token whose signature is right."""

    def __call__(
        self, claims: dict[str, Any], rules: ClaimRules, now: float, *, key_id: str
    ) -> Principal:
        """Returns the caller that the claims describe. Raises BadClaimsError."""
        ...


@dataclass(frozen=True, slots=True)
class TokenKind:
    """One kind of signed token: the name in logs and metrics, what `typ` may say, and who reads its claims."""

    mode: str
    types: frozenset[str]
    read: Reader


BEARER_TOKENS = TokenKind("jwt", BEARER_TYPES, principal_of)


class JwtVerifier:
    """Verifies signed tokens of one kind with the keys of `keys`.

    `is_refused` says whether the policy has revoked a caller's token. The owner calls `forget()` whenever an answer may
    have changed: keys (done here), policy.
    """

    is_local = True

    def __init__(
        self,
        *,
        keys: KeyRing,
        rules: ClaimRules,
        is_refused: Callable[[Principal], bool],
        remote: RemoteKeys | None,
        kind: TokenKind = BEARER_TOKENS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.mode = kind.mode
        self._kind = kind
        self._keys = keys
        self._rules = rules
        self._is_refused = is_refused
        self._remote = remote
        self._clock = clock
        self._verified: LRUCache[bytes, _Verified] = LRUCache(MAX_REMEMBERED)
        self.verifications = 0
        """How many tokens were not answered from memory."""
        self._listeners: list[Callable[[], None]] = []
        keys.on_change(self.forget)

    def __repr__(self) -> str:
        return f"<JwtVerifier {self.mode} {self._keys!r} remembered={len(self._verified)}>"

    def forget(self) -> None:
        """Forgets every verified token, so that each is verified again under the present keys and policy."""
        self._verified.clear()
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` whenever the verified tokens were forgotten."""
        self._listeners.append(listener)

    def valid_until(self, principal: Principal) -> float:
        """Returns the end of the token that proved `principal`, leeway included."""
        return 0.0 if principal.expires_at is None else self._deadline(principal.expires_at)

    def _deadline(self, expires_at: float) -> float:
        return expires_at + self._rules.leeway_s

    def verify(self, token: bytes) -> Verdict | Awaitable[Verdict]:
        """Returns the caller, or why not; awaits only to look for a key that is not known yet."""
        digest = hashlib.sha256(token).digest()
        known = self._verified.get(digest)
        if known is not None:
            if self._clock() < known.deadline:
                return known.principal
            del self._verified[digest]
            return self._refusal(Reason.EXPIRED, "The token has expired.")
        try:
            jws = parse_jws(token)
        except NotJwsError as error:
            return self._refusal(Reason.MALFORMED, str(error), is_final=False)
        refusal = self._before_keys(jws)
        if refusal is not None:
            return refusal
        if self._is_key_missing(jws):
            return self._verify_after_another_look(jws, digest)
        return self._verify_signed(jws, digest)

    def _before_keys(self, jws: Jws) -> Refusal | None:
        """Returns why the token is refused before any key is looked for, if it is."""
        fault = header_fault(jws.header, self._kind.types)
        if fault:
            is_final = self._is_ours(jws) or is_for_browsers(jws.header)
            return self._refusal(Reason.MALFORMED, fault, is_final)
        algorithm = jws.header["alg"]
        if algorithm not in SUPPORTED:
            # Not final for the others: a Kubernetes token may use an algorithm that gateway tokens may not.
            is_final = self._is_ours(jws) or algorithm.lower() == "none"
            return Refusal(
                "jwt", Reason.WRONG_ALGORITHM, "The token's algorithm is not accepted.", is_final
            )
        if self._rules.issuer is not None and not self._is_ours(jws):
            return Refusal(
                "jwt", Reason.WRONG_ISSUER, "The token's issuer is not accepted.", is_final=False
            )
        return None

    def _is_ours(self, jws: Jws) -> bool:
        """Returns True when the token claims the issuer that is configured here: then nobody else is asked."""
        return self._rules.issuer is not None and jws.claims.get("iss") == self._rules.issuer

    def _is_key_missing(self, jws: Jws) -> bool:
        if self._remote is None:
            return False
        kid = jws.header.get("kid")
        return not self._remote.is_loaded or (kid is not None and not self._keys.knows(kid))

    async def _verify_after_another_look(self, jws: Jws, digest: bytes) -> Verdict:
        """Tries the keys that are there, then those of a new look."""
        assert self._remote is not None
        verdict = self._verify_signed(jws, digest)
        if isinstance(verdict, Principal) or verdict.reason not in (
            Reason.UNKNOWN_KEY,
            Reason.BAD_SIGNATURE,
        ):
            return verdict
        if await self._remote.look_again():
            return self._verify_signed(jws, digest)
        if self._remote.is_loaded:
            return verdict
        return Refusal(self.mode, Reason.UNAVAILABLE, "", log="no keys have been loaded yet")

    def _verify_signed(self, jws: Jws, digest: bytes) -> Verdict:
        """Verifies the signature, then every claim; remembers a success."""
        self.verifications += 1
        key = self._signer(jws)
        if isinstance(key, Refusal):
            return key
        try:
            principal = self._kind.read(jws.claims, self._rules, self._clock(), key_id=key.kid)
        except BadClaimsError as error:
            return self._refusal(error.reason, str(error))
        if self._is_refused(principal):
            return self._refusal(Reason.REVOKED, "The token has been revoked.")
        assert principal.expires_at is not None
        self._verified[digest] = _Verified(principal, self._deadline(principal.expires_at))
        return principal

    def _signer(self, jws: Jws) -> VerificationKey | Refusal:
        """Returns which of the keys in force made the signature."""
        kid = jws.header.get("kid")
        algorithm = jws.header["alg"]
        candidates = self._keys.candidates(kid)
        is_final = self._is_ours(jws) or self._keys.knows(kid)
        if not candidates:
            return self._refusal(Reason.UNKNOWN_KEY, "The token's key is not known.", is_final)
        fitting = [key for key in candidates if algorithm in key.algorithms]
        if not fitting:
            return Refusal(
                "jwt", Reason.WRONG_ALGORITHM, "The token's algorithm is not accepted.", is_final
            )
        for key in fitting:
            if key.verifies(algorithm, jws.signed, jws.signature):
                return key
        return self._refusal(Reason.BAD_SIGNATURE, "The token's signature is wrong.", is_final)

    def _refusal(self, reason: Reason, detail: str, is_final: bool = True) -> Refusal:
        return Refusal(self.mode, reason, detail, is_final)
