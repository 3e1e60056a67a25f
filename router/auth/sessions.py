"""Sessions: what a person's browser shows instead of a credential, for one sandbox and port, signed by the router's own keys.

Nothing is stored: a session is what its token says, until it expires or is revoked.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import jwt

from router.auth.algorithms import family_of
from router.auth.claims import BadClaimsError, ClaimRules, checked, text_claim
from router.auth.home_tokens import HOME_LINKS, HOMES, home_session_claims
from router.auth.jws import SESSION_TYPES, parse_jws
from router.auth.jwt import JwtVerifier, TokenKind
from router.auth.keys import KeyRing, Keys, VerificationKey, parse_secrets
from router.auth.links import LINKS, read_link, sandbox_grant
from router.auth.minting import SigningKey, mint_link
from router.auth.principal import Principal
from router.auth.revocation import EndedSessions
from router.auth.session_desk import BegunSession
from router.auth.verifier import Reason
from router.routing.endpoint import Endpoint, SandboxRef
from router.watched_file import WatchedFiles

_SOURCE: Final = "session-key-file"
_OWN_LINK_S: Final = 30.0
MAX_TOKEN_BYTES: Final = 16_384
_RULES: Final = ClaimRules(issuer=None, audiences=(), leeway_s=30.0)
"""Of tokens that the router signed itself: issuer and audience say nothing, and replicas' clocks may differ."""


def session_principal(
    claims: dict[str, Any], rules: ClaimRules, now: float, *, key_id: str
) -> Principal:
    """Returns whose session it is, with the one grant that it has. Raises BadClaimsError."""
    facts = checked(claims, rules, now)
    session_id = text_claim(claims, "sid")
    if not session_id or facts.issued_at is None:
        raise BadClaimsError(Reason.BAD_CLAIMS, "The session has no id (sid) or beginning (iat).")
    return Principal(
        subject=facts.subject,
        mode="session",
        issuer=facts.issuer,
        grants=(sandbox_grant(claims),),
        token_id=session_id,
        made_of=text_claim(claims, "jti"),
        key_id=key_id,
        issued_at=facts.issued_at,
        expires_at=facts.expires_at,
    )


SESSIONS: Final = TokenKind("session", SESSION_TYPES, session_principal)


class SessionKeys(NamedTuple):
    """The keys of `session-key-file`: the first signs, all verify."""

    signing: SigningKey
    verifying: Keys


class Sessions:
    """Begins sessions and knows them again. `verifier` is of the cookie's values, `links` of links that the same keys have signed."""

    def __init__(
        self,
        *,
        is_refused: Callable[[Principal], bool],
        ended: EndedSessions,
        longest_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ring = KeyRing()
        self._signing: SigningKey | None = None
        self._longest_s = longest_s
        self._ended = ended
        self._clock = clock
        self.verifier = self._verifier(SESSIONS, is_refused)
        self.links = self._verifier(LINKS, is_refused)
        self._homes = self._verifier(HOMES, is_refused)
        self._home_links = self._verifier(HOME_LINKS, is_refused)
        ended.on_learned(self.forget)

    def __repr__(self) -> str:
        return f"<Sessions {self._ring!r} longest_s={self._longest_s:g}>"

    def _verifier(self, kind: TokenKind, is_refused: Callable[[Principal], bool]) -> JwtVerifier:
        return JwtVerifier(
            keys=self._ring,
            rules=_RULES,
            is_refused=is_refused,
            remote=None,
            kind=kind,
            clock=self._clock,
        )

    def use(self, keys: SessionKeys) -> None:
        """Puts the keys in force instead of the former ones."""
        self._signing = keys.signing
        self._ring.replace(_SOURCE, keys.verifying)

    def forget(self) -> None:
        """Forgets what was verified, because the policy is another one."""
        for verifier in (self.verifier, self.links, self._homes, self._home_links):
            verifier.forget()

    def begin(self, caller: Principal, link: bytes, endpoint: Endpoint) -> BegunSession:
        """Returns a new session of whoever the link is for, which has been verified, in the sandbox as it is now.

        A sandbox that is made anew under the same name has another UID, and is not entered by it.
        """
        assert self._signing is not None
        (grant,) = caller.grants
        assert grant.ports is not None
        (port,) = grant.ports
        now = int(self._clock())
        asked = read_link(parse_jws(link).claims)
        wanted_s = self._longest_s if asked.session_ttl_s is None else asked.session_ttl_s
        ttl_s = max(1, int(min(wanted_s, self._longest_s)))
        claims: dict[str, Any] = {
            "sid": secrets.token_hex(16),
            "jti": caller.token_id,
            "iat": now,
            "exp": now + ttl_s,
            "namespace": grant.namespace,
            "name": grant.name,
            "port": port,
        }
        more = {
            "uid": endpoint.sandbox_uid or endpoint.uid,
            "sub": caller.subject,
            "iss": caller.issuer,
            "wake": grant.wake,
        }
        claims |= {name: value for name, value in more.items() if value}
        return BegunSession(self._signed(claims, "session+jwt"), ttl_s, asked.path)

    def begin_home(self, caller: Principal, link: bytes) -> BegunSession:
        """Returns a new session on the home page of whoever the link is for, which has been verified."""
        claims = home_session_claims(
            caller, parse_jws(link).claims, now=self._clock(), longest_s=self._longest_s
        )
        ttl_s = claims["exp"] - claims["iat"]
        return BegunSession(self._signed(claims, "home+jwt"), ttl_s, "/")

    def _signed(self, claims: dict[str, Any], kind: str) -> str:
        key = self._signing
        assert key is not None
        headers = {"typ": kind, **({"kid": key.kid} if key.kid else {})}
        return jwt.encode(claims, key.material, algorithm=key.algorithm, headers=headers)

    def link(
        self,
        caller: Principal,
        ref: SandboxRef,
        port: int,
        *,
        uid: str = "",
        path: str = "/",
        wake: bool = False,
    ) -> str:
        """Returns a link to a sandbox for a caller who may call it, signed by the router itself, good for half a minute.

        The session that it begins lasts no longer than the caller's own right, and is revoked with it.
        """
        assert self._signing is not None
        now = self._clock()
        left_s = None if caller.expires_at is None else max(1.0, caller.expires_at - now)
        return mint_link(
            self._signing,
            namespace=ref.namespace,
            name=ref.name,
            port=port,
            ttl_s=_OWN_LINK_S,
            uid=uid,
            path=path,
            session_ttl_s=left_s,
            wake=wake,
            subject=caller.subject,
            issuer=caller.issuer,
            token_id=caller.token_id,
            now=now,
        )

    def home_link(self, link: bytes) -> Principal | None:
        """Returns whom a link to the home page is for; None for one that isn't good."""
        return _principal_of(self._home_links, link)

    def whose_home(self, cookie: bytes) -> Principal | None:
        """Returns whose session on the home page a cookie's value is; None for none that is good."""
        return _principal_of(self._homes, cookie)

    def whose(self, cookie: bytes) -> Principal | None:
        """Returns whose session a cookie's value is; None for none that is good."""
        return _principal_of(self.verifier, cookie)

    def end(self, session: Principal) -> None:
        """Ends a session: its cookie is refused, and its streams and tunnels are closed."""
        self._ended.add(session)
        self.forget()


def _principal_of(verifier: JwtVerifier, token: bytes) -> Principal | None:
    verdict = verifier.verify(token) if len(token) <= MAX_TOKEN_BYTES else None
    return verdict if isinstance(verdict, Principal) else None


def parse_session_keys(content: bytes) -> SessionKeys:
    """Returns the keys of a file of secrets, one `secret` or `kid secret` a line. Raises ValueError with the line."""
    found = parse_secrets(content)
    verifying = tuple(VerificationKey(kid, family_of(secret), secret) for kid, secret in found)
    return SessionKeys(SigningKey("HS256", *found[0]), verifying)


def watch_session_keys(
    sessions: Sessions, path: Path, *, poll_interval_s: float = 1.0
) -> WatchedFiles[SessionKeys]:
    """Returns the watcher that keeps the sessions' keys at the file's."""
    return WatchedFiles(
        (path,),
        parse=lambda contents: parse_session_keys(contents[0]),
        apply=sessions.use,
        poll_interval_s=poll_interval_s,
    )
