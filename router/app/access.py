"""Builds who may call: authenticators, authorizers and the files and fetchers behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from router.auth.anonymous import AnonymousAuthenticator
from router.auth.authenticator import Authenticator
from router.auth.chain import AuthenticatorChain
from router.auth.claims import ClaimRules
from router.auth.forwarded import ForwardedAuthenticator
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.mtls import CertificateAuthenticator
from router.auth.policy import CurrentPolicy
from router.auth.policy_file import watch_policy
from router.auth.review import Reviewer
from router.auth.revocation import Revocation
from router.auth.self_check import ReviewCheck
from router.auth.session_desk import SessionDesk
from router.auth.static import StaticTokenAuthenticator, tokens_from_file, watch_static_tokens
from router.auth.subject_access_review import SubjectAccessReviewAuthorizer
from router.auth.token_review import TokenReviewVerifier
from router.auth.verifier import BearerVerifier
from router.routing.endpoint import Endpoint
from router.settings import Settings
from router.watched_file import Reloadable, WatchedFiles, read_regular


@dataclass(slots=True)
class Access:
    """Who may call, with what has to run and be closed for it."""

    authenticator: Authenticator
    authorizer: GrantAuthorizer | SubjectAccessReviewAuthorizer
    rights: Revocation
    grants: GrantAuthorizer
    """What decides by grants alone, without asking Kubernetes."""
    policy: CurrentPolicy
    failures: Counter[tuple[str, str]]
    """Refused credentials by (mode, reason)."""
    files: dict[str, WatchedFiles[Any]] = field(default_factory=dict)
    """Watched files by their name in metrics."""
    runners: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
    closers: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
    missing: list[Callable[[], list[str]]] = field(default_factory=list)
    """What keeps the router from being ready, in sentences."""
    notes: list[Callable[[], list[str]]] = field(default_factory=list)
    """What an operator should know of a router that is ready, in sentences."""
    links: list[BearerVerifier] = field(default_factory=list)
    """Who knows the links that platforms mint."""
    sessions: SessionDesk | None = None
    """Where people's sessions begin and end; None where there are none."""
    remote: dict[str, Reloadable] = field(default_factory=dict)
    """What is fetched again and again, by its name in metrics."""

    def sources(self) -> dict[str, Reloadable]:
        """Returns everything that is read or fetched again, for reload_all() and for the states of its reloads."""
        return {**self.files, **self.remote}


def needs_reviews(settings: Settings) -> bool:
    """Returns True when the API server is asked about callers."""
    return "token-review" in settings.auth.auth or settings.auth.subject_access_review


def build_access(
    settings: Settings,
    *,
    reviewer: Reviewer | None,
    current: Callable[[Endpoint], Endpoint],
) -> Access:
    """Returns who may call, with every file read. Raises ValueError or OSError that names the file at fault.

    `reviewer` asks the API server; it must be given when needs_reviews(). `current` returns an endpoint as it is known now.
    """
    auth = settings.auth
    policy = CurrentPolicy()
    rights = Revocation(policy=policy, auth_grace_s=auth.auth_grace_s, current=current)
    grants = GrantAuthorizer(policy=policy, public_ports=settings.browsers.public_ports)
    access = Access(
        authenticator=AnonymousAuthenticator(),
        authorizer=grants,
        grants=grants,
        rights=rights,
        policy=policy,
        failures=Counter(),
    )
    if reviewer is not None and needs_reviews(settings):
        reviewer = _checked(reviewer, settings, access)
    if auth.policy_file is not None:
        access.files["policy"] = watch_policy(policy, auth.policy_file)
    if auth.auth != ("none",):
        bearer = [
            _bearer_verifier(mode, settings, access, reviewer)
            for mode in auth.auth
            if mode not in ("mtls", "forwarded")
        ]
        session, links = _sessions(settings, access)
        chain = AuthenticatorChain(
            bearer=bearer,
            certificate=CertificateAuthenticator() if "mtls" in auth.auth else None,
            certificate_before=_after("mtls", auth.auth),
            session=session,
            links=links,
            forwarded=ForwardedAuthenticator() if "forwarded" in auth.auth else None,
            forwarded_first="mtls" in _after("forwarded", auth.auth),
        )
        access.authenticator = chain
        access.failures = chain.failures
    if auth.subject_access_review and reviewer is not None:
        rbac = SubjectAccessReviewAuthorizer(
            grants=grants,
            reviewer=reviewer,
            ttl_s=auth.token_review_ttl_s,
            stale_s=auth.token_review_stale_s,
        )
        access.authorizer = rbac
        access.closers.append(rbac.close)
    for watched in access.files.values():
        watched.load_once()
        access.runners.append(watched.run)
    return access


def _checked(reviewer: Reviewer, settings: Settings, access: Access) -> Reviewer:
    """Returns the reviewer that also knows whether the router may ask at all, and makes it say so."""
    auth = settings.auth
    asks_for = {
        "TokenReview": "token-review" in auth.auth,
        "SubjectAccessReview": auth.subject_access_review,
    }
    only_ways = set()
    if set(auth.auth) == {"token-review"}:
        only_ways.add("TokenReview")
        if auth.policy_file is None:
            only_ways.add("SubjectAccessReview")
    check = ReviewCheck(
        reviewer=reviewer,
        kinds=tuple(kind for kind, is_asked in asks_for.items() if is_asked),
        only_ways=frozenset(only_ways),
    )
    access.runners.append(check.run)
    access.missing.append(check.missing)
    access.notes.append(check.notes)
    return check


def _after(mode: str, modes: tuple[str, ...]) -> tuple[str, ...]:
    return modes[modes.index(mode) + 1 :] if mode in modes else ()


def _bearer_verifier(
    mode: str, settings: Settings, access: Access, reviewer: Reviewer | None
) -> BearerVerifier:
    if mode == "static":
        return _static(settings, access)
    if mode == "jwt":
        return _jwt(settings, access)
    if mode == "token-review" and reviewer is not None:
        verifier = TokenReviewVerifier(
            reviewer=reviewer,
            audiences=settings.auth.token_review_audiences,
            ttl_s=settings.auth.token_review_ttl_s,
            stale_s=settings.auth.token_review_stale_s,
            is_refused=access.rights.is_refused,
        )
        access.policy.on_change(verifier.forget)
        access.closers.append(verifier.close)
        return verifier
    raise ValueError(f"auth: the mode {mode!r} can't be built")


def _static(settings: Settings, access: Access) -> StaticTokenAuthenticator:
    token = settings.auth.static_token
    always = () if token is None else (token.strip().encode(),)
    path = settings.auth.static_token_file
    if path is None:
        return StaticTokenAuthenticator(tokens=always)
    try:
        tokens = tokens_from_file(read_regular(path))
    except ValueError as exc:
        raise ValueError(f"{path}: {exc}") from exc
    verifier = StaticTokenAuthenticator(tokens=(*always, *tokens))
    access.files["static_token"] = watch_static_tokens(verifier, path, always=always)
    return verifier


def _jwt(settings: Settings, access: Access) -> BearerVerifier:
    # Here, because the cryptography behind it takes ten megabytes that other modes don't need.
    from router.auth.jwks import JwksFetcher, watch_authorities
    from router.auth.jwt import JwtVerifier
    from router.auth.keys import KeyRing, watch_keys
    from router.auth.links import LINKS

    auth = settings.auth
    keys = KeyRing()
    remote: JwksFetcher | None = None
    if auth.jwt_secret_file is not None:
        access.files["jwt_secret"] = watch_keys(
            keys, auth.jwt_secret_file, source="jwt-secret-file", allow_secrets=True
        )
    if auth.jwks_file is not None:
        access.files["jwks"] = watch_keys(
            keys, auth.jwks_file, source="jwks-file", allow_secrets=False
        )
    if auth.jwks_url is not None:
        remote = JwksFetcher(url=auth.jwks_url, keys=keys)
        access.runners.append(remote.run)
        access.missing.append(remote.missing)
        access.remote["jwks_url"] = remote
        if auth.jwks_ca_file is not None:
            access.files["jwks_ca"] = watch_authorities(remote, auth.jwks_ca_file)
    rules = ClaimRules(
        issuer=auth.jwt_issuer, audiences=auth.jwt_audience, leeway_s=auth.jwt_leeway_s
    )
    refused = access.rights.is_refused
    verifier = JwtVerifier(keys=keys, rules=rules, is_refused=refused, remote=remote)
    access.policy.on_change(verifier.forget)
    if settings.browsers.session_key_file is not None:
        links = JwtVerifier(keys=keys, rules=rules, is_refused=refused, remote=remote, kind=LINKS)
        access.policy.on_change(links.forget)
        access.links.append(links)
    return verifier


def _sessions(
    settings: Settings, access: Access
) -> tuple[BearerVerifier | None, list[BearerVerifier]]:
    """Returns who knows sessions, and who knows the links that begin them; None and none where sessions are off."""
    path = settings.browsers.session_key_file
    if path is None:
        return None, []
    from router.auth.sessions import Sessions, watch_session_keys

    sessions = Sessions(
        is_refused=access.rights.is_refused,
        ended=access.rights.ended_sessions,
        longest_s=settings.browsers.session_ttl_s,
    )
    access.files["session_key"] = watch_session_keys(sessions, path)
    access.policy.on_change(sessions.forget)
    access.sessions = sessions
    return sessions.verifier, [sessions.links, *access.links]
