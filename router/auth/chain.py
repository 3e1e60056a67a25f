"""AuthenticatorChain: which of a request's credentials decides who calls.

A bearer token is looked for in X-Sandbox-Token, then Authorization (as Bearer, or as the password of Basic), then the
offered WebSocket subprotocol; the verifiers are asked in the configured order. Where there is none, a session counts, then a certificate or
whom a proxy has signed in. Whatever is presented for an enabled mode must be valid: an invalid
credential is never passed over for a better one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence

from router.auth.anonymous import ANONYMOUS, PUBLIC
from router.auth.authenticator import Authenticated, Credentials
from router.auth.basic import CHALLENGE, basic_token, helps, looks_like_a_gateway_token
from router.auth.forwarded import ForwardedAuthenticator
from router.auth.mtls import CertificateAuthenticator
from router.auth.principal import Principal
from router.auth.verifier import BearerVerifier, Reason, Refusal, Verdict
from router.errors import AuthUnavailable, Unauthenticated

MAX_TOKEN_BYTES = 16 * 1024
"""Longer tokens are refused unread: nobody's token is that long, and hashing it costs time."""

_REALM = 'realm="sandbox-router"'
_TOO_LARGE = Refusal("none", Reason.TOO_LARGE, "The token is too long.")
_MISSING = Refusal("none", Reason.MISSING, "Credentials are required.")
_NO_LINK = Refusal("link", Reason.MISSING, "The link is incomplete.")
_MALFORMED = Refusal("none", Reason.MALFORMED, "The Authorization header is malformed.")


class AuthenticatorChain:
    """Asks the enabled modes in their configured order.

    `bearer` are the verifiers of bearer tokens; `certificate` is mode `mtls`, None when it is off; `certificate_before` are the
    bearer modes that stand behind `mtls`; `anonymous` says that a caller without any credential is let in. `session` verifies the
    cookies of people's browsers, `links` what they begin a session by; None and () when there are no sessions. `forwarded` is that
    mode, None when it is off; `forwarded_first` says that it stands before `mtls`.
    """

    def __init__(
        self,
        *,
        bearer: Sequence[BearerVerifier],
        certificate: CertificateAuthenticator | None,
        certificate_before: Iterable[str] = (),
        anonymous: bool = False,
        session: BearerVerifier | None = None,
        links: Sequence[BearerVerifier] = (),
        forwarded: ForwardedAuthenticator | None = None,
        forwarded_first: bool = False,
    ) -> None:
        self._bearer = tuple(bearer)
        self._certificate = certificate
        self._certificate_before = frozenset(certificate_before)
        self._anonymous = anonymous
        self._session = session
        self._links = tuple(links)
        self._forwarded = forwarded
        self._forwarded_first = forwarded_first
        self.failures: Counter[tuple[str, str]] = Counter()
        """Refused credentials by (mode, reason); both come from closed sets."""
        self.generation = 0
        for verifier in self._bearer if session is None else (*self._bearer, session):
            verifier.on_change(self._changed)

    def __repr__(self) -> str:
        modes = [verifier.mode for verifier in self._bearer]
        if self._certificate is not None:
            modes.insert(len(modes) - len(self._certificate_before), "mtls")
        if self._forwarded is not None:
            modes.append("forwarded")
        if self._anonymous:
            modes.append("none")
        return f"<AuthenticatorChain {','.join(modes)}>"

    def valid_until(self, authenticated: Authenticated) -> float:
        """Returns until when (Unix seconds) the same credentials give this answer within the generation; 0 for no time at all."""
        principal = authenticated.principal
        if not authenticated.is_sole_credential:
            return 0.0
        if principal is ANONYMOUS or (principal is PUBLIC and self._forwarded is None):
            return math.inf
        if self._certificate is not None and principal.mode == self._certificate.mode:
            # On the same connection a proxy may name somebody in the next request.
            return 0.0 if self._forwarded_first else self._certificate.valid_until(principal)
        if self._session is not None and principal.mode == self._session.mode:
            return self._session.valid_until(principal)
        for verifier in self._bearer:
            if verifier.mode == principal.mode:
                return verifier.valid_until(principal)
            # It declined this token, and may answer otherwise at any time.
            if not verifier.is_local:
                break
        return 0.0

    def _changed(self) -> None:
        self.generation += 1

    def authenticate(self, credentials: Credentials) -> Authenticated | Awaitable[Authenticated]:
        """Returns the caller. Raises Unauthenticated, AuthUnavailable (at once or from the awaitable)."""
        if credentials.link is not None:
            return self._by_link(credentials.link, credentials)
        if not self._bearer:
            return self._without_bearer(credentials, consumed=False)
        token = credentials.sandbox_token
        consumed = False
        if token is None and credentials.authorization is not None:
            token = bearer_token(credentials.authorization)
            consumed = token is not None
        # The common case, one token and nothing else, takes no detour: bench/auth.py.
        if (
            token is not None
            and credentials.subprotocol_token is None
            and (credentials.certificate is None or self._certificate is None)
        ):
            if len(token) > MAX_TOKEN_BYTES:
                raise self._refused(_TOO_LARGE, credentials)
            verdict = self._bearer[0].verify(token)
            if type(verdict) is Principal:
                return Authenticated(verdict, consumed)
            return self._go_on(self._bearer, token, verdict, consumed, credentials)
        return self._several(credentials, token, consumed)

    def _several(
        self, credentials: Credentials, token: bytes | None, consumed: bool
    ) -> Authenticated | Awaitable[Authenticated]:
        """Decides when there is no token, or more than one credential: every one must be valid."""
        authorization = credentials.authorization
        if credentials.sandbox_token is None and authorization is not None and token is None:
            scheme = _scheme(authorization)
            if not scheme or scheme == b"bearer":
                raise self._refused(_MALFORMED, credentials)
            if scheme == b"basic" and credentials.subprotocol_token is None:
                return self._by_basic(credentials, basic_token(authorization))
        tokens = [t for t in (token, credentials.subprotocol_token) if t is not None]
        if not tokens:
            return self._without_bearer(credentials, consumed=False)
        return self._all_of(tokens, credentials, consumed)

    def _by_basic(
        self, credentials: Credentials, token: bytes | None
    ) -> Authenticated | Awaitable[Authenticated]:
        """Decides about a Basic password. Where something else tells who calls, one that is no token of ours is the app's own."""
        has_other = (
            self._anonymous
            or (self._certificate is not None and credentials.certificate is not None)
            or (self._session is not None and credentials.session is not None)
            or (self._forwarded is not None and credentials.forwarded is not None)
            or credentials.is_public
        )
        if has_other and (token is None or not self._is_ours(token)):
            return self._without_bearer(credentials, consumed=False)
        if token is None:
            raise self._refused(_MALFORMED, credentials)
        return self._all_of([token], credentials, consumed=True)

    def _is_ours(self, password: bytes) -> bool:
        """Returns True for a password that is meant for this router; asks nobody outside, for it may be the app's secret."""
        return looks_like_a_gateway_token(password) or any(
            isinstance(verifier.verify(password), Principal)
            for verifier in self._bearer
            if verifier.is_local
        )

    async def _all_of(
        self, tokens: list[bytes], credentials: Credentials, consumed: bool
    ) -> Authenticated:
        """Verifies every token and the certificate; the first token's caller counts, or the certificate's where `mtls` stands before."""
        if any(len(token) > MAX_TOKEN_BYTES for token in tokens):
            raise self._refused(_TOO_LARGE, credentials)
        of_certificate = None
        if credentials.certificate is not None and self._certificate is not None:
            verdict = self._certificate.verify(credentials.certificate)
            of_certificate = self._accept(verdict, credentials)
        callers = []
        for token in tokens:
            answer = self._go_on(
                self._bearer, token, self._bearer[0].verify(token), consumed, credentials
            )
            callers.append(answer if isinstance(answer, Authenticated) else await answer)
        decides = callers[0].principal
        if of_certificate is not None and decides.mode in self._certificate_before:
            decides = of_certificate
        is_sole = len(tokens) == 1 and of_certificate is None
        return Authenticated(decides, consumed, is_sole)

    def _by_link(
        self, link: bytes, credentials: Credentials
    ) -> Authenticated | Awaitable[Authenticated]:
        """Decides about a request that begins a session: nothing but its link counts."""
        if not link or not self._links:
            raise self._refused(_NO_LINK, credentials)
        if len(link) > MAX_TOKEN_BYTES:
            raise self._refused(_TOO_LARGE, credentials)
        return self._go_on(self._links, link, self._links[0].verify(link), False, credentials)

    def _by_session(self, cookie: bytes, credentials: Credentials) -> Authenticated:
        assert self._session is not None
        verdict = self._session.verify(cookie) if len(cookie) <= MAX_TOKEN_BYTES else _TOO_LARGE
        assert isinstance(verdict, Principal | Refusal), "sessions are verified at once"
        return Authenticated(self._accept(verdict, credentials), consumed_authorization=False)

    def _without_bearer(self, credentials: Credentials, *, consumed: bool) -> Authenticated:
        if self._session is not None and credentials.session is not None:
            return self._by_session(credentials.session, credentials)
        verdicts = [self._of_certificate(credentials), self._of_forwarded(credentials)]
        if self._forwarded_first:
            verdicts.reverse()
        for verdict in verdicts:
            if verdict is not None:
                return Authenticated(self._accept(verdict, credentials), consumed)
        if self._anonymous:
            return Authenticated(ANONYMOUS, consumed)
        if credentials.is_public:
            return Authenticated(PUBLIC, consumed)
        raise self._refused(_MISSING, credentials)

    def _of_certificate(self, credentials: Credentials) -> Verdict | None:
        if self._certificate is None or credentials.certificate is None:
            return None
        return self._certificate.verify(credentials.certificate)

    def _of_forwarded(self, credentials: Credentials) -> Verdict | None:
        if self._forwarded is None or credentials.forwarded is None:
            return None
        return self._forwarded.verify(credentials.forwarded)

    def _go_on(
        self,
        verifiers: tuple[BearerVerifier, ...],
        token: bytes,
        verdict: Verdict | Awaitable[Verdict],
        consumed: bool,
        credentials: Credentials,
    ) -> Authenticated | Awaitable[Authenticated]:
        """Goes on from the first verifier's answer: asks the next ones while the token is not of their kind."""
        first: Refusal | None = None
        for position in range(1, len(verifiers) + 1):
            if isinstance(verdict, Principal):
                return Authenticated(verdict, consumed)
            if not isinstance(verdict, Refusal):
                return self._go_on_later(
                    verifiers, token, verdict, position, first, consumed, credentials
                )
            if verdict.is_final:
                raise self._refused(verdict, credentials)
            first = _better(first, verdict)
            if position < len(verifiers):
                verdict = verifiers[position].verify(token)
        assert first is not None
        raise self._refused(first, credentials)

    async def _go_on_later(
        self,
        verifiers: tuple[BearerVerifier, ...],
        token: bytes,
        pending: Awaitable[Verdict],
        position: int,
        first: Refusal | None,
        consumed: bool,
        credentials: Credentials,
    ) -> Authenticated:
        """The same for a verifier that has to ask somebody."""
        verdict = await pending
        while isinstance(verdict, Refusal):
            first = _better(first, verdict)
            if verdict.is_final or position == len(verifiers):
                raise self._refused(verdict if verdict.is_final else first, credentials)
            following = verifiers[position].verify(token)
            position += 1
            verdict = following if isinstance(following, (Principal, Refusal)) else await following
        return Authenticated(verdict, consumed)

    def _accept(self, verdict: Verdict, credentials: Credentials) -> Principal:
        if isinstance(verdict, Refusal):
            raise self._refused(verdict, credentials)
        return verdict

    def _refused(
        self, refusal: Refusal, credentials: Credentials
    ) -> Unauthenticated | AuthUnavailable:
        """Counts the refusal and returns the error to raise."""
        reason = refusal.reason.value
        self.failures[refusal.mode, reason] += 1
        log = f"{refusal.mode}: {reason}" + (f": {refusal.log}" if refusal.log else "")
        if refusal.reason is Reason.UNAVAILABLE:
            return AuthUnavailable(reason=log)
        error = Unauthenticated(refusal.detail, reason=log)
        error.challenge = self._challenge(refusal)
        # Where people have links, a dialog for a password would only hide what the page says.
        asks_people = credentials.fetch_mode is not None
        if self._bearer and helps(credentials.fetch_mode) and not (self._session and asks_people):
            error.basic_challenge = CHALLENGE
        return error

    def _challenge(self, refusal: Refusal) -> str:
        """Returns the value of WWW-Authenticate (RFC 6750 §3): a token that was refused is told from none."""
        if not self._bearer:
            return f"Certificate {_REALM}"
        is_missing = refusal.reason is Reason.MISSING
        return f"Bearer {_REALM}" + ("" if is_missing else ', error="invalid_token"')


def _better(first: Refusal | None, refusal: Refusal) -> Refusal:
    """Returns the refusal that tells more: a plain mismatch says less than what the next verifier found."""
    if first is None or first.reason is Reason.MISMATCH:
        return refusal
    return first


def bearer_token(authorization: bytes) -> bytes | None:
    """Returns the token of an `Authorization: Bearer` value (the scheme in any case, RFC 9110 §11.1), None when it is no such value."""
    if authorization[:7] != b"Bearer " and _scheme(authorization) != b"bearer":
        return None
    return authorization.strip()[6:].strip() or None


def _scheme(authorization: bytes) -> bytes:
    """Returns the authentication scheme in lower case; empty when there is a single word, which may be a bare token."""
    words = authorization.split(None, 1)
    return words[0].lower() if len(words) == 2 else b""
