"""What is legal in a configuration but hardly meant: said once at the start, stops nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from router.settings.candidate import Candidate
from router.settings.problems import Origin, Problem, Source
from router.settings.rules import Rule, gather, token_in
from router.settings.table import (
    CONFIG_VARIABLE,
    FILE_KEYS,
    OPEN_DOOR_VARIABLE,
    PREFIX,
    SERVICE_LINK,
    STATIC_TOKEN_VARIABLE,
    TABLE,
)
from router.settings.values import TRUTH, nearest

SHORT_TOKEN_CHARACTERS = 16

MODE_OF = {
    "jwt-secret-file": "jwt",
    "jwks-file": "jwt",
    "jwks-url": "jwt",
    "jwks-ca-file": "jwt",
    "jwt-issuer": "jwt",
    "jwt-audience": "jwt",
    "static-token-file": "static",
    "token-review-audiences": "token-review",
    "identity-header": "forwarded",
    "groups-header": "forwarded",
}
DISCOVERY_OF = {"sandboxes-file": "file", "namespaces": "kubernetes", "max-staleness": "kubernetes"}


def advise(candidate: Candidate, environment: Mapping[str, str]) -> Iterator[Problem]:
    """Yields what works but is probably not meant. The candidate has passed every rule."""
    yield from gather(ADVICE, candidate)
    yield from _ignored_switches(candidate, environment)
    yield from _slips(environment)


def _token_is_long(candidate: Candidate) -> Iterator[Problem]:
    if "static" not in candidate["auth"]:
        return
    path = candidate["static-token-file"]
    token = candidate["static-token"] if path is None else token_in(path)
    if token is not None and len(token) < SHORT_TOKEN_CHARACTERS:
        key = "static-token" if path is None else "static-token-file"
        yield candidate.problem(
            key,
            "the token is short enough to be guessed",
            f"use {SHORT_TOKEN_CHARACTERS} random characters or more",
        )


def _what_is_set_is_used(candidate: Candidate) -> Iterator[Problem]:
    for key, mode in MODE_OF.items():
        if candidate.is_said(key) and mode not in candidate["auth"]:
            yield candidate.problem(
                key,
                f"has no effect: auth does not have {mode}",
                f"add {mode} to auth, or remove it",
            )
    for key, discovery in DISCOVERY_OF.items():
        if candidate.is_said(key) and candidate["discovery"] != discovery:
            yield candidate.problem(
                key, f"has no effect: discovery is {candidate['discovery']}", "remove it"
            )


def _authorities_are_asked(candidate: Candidate) -> Iterator[Problem]:
    url = candidate["jwks-url"]
    if candidate["jwks-ca-file"] is not None and not (url or "").startswith("https://"):
        yield candidate.problem(
            "jwks-ca-file", "has no effect: jwks-url is not https", "set jwks-url, or remove it"
        )


def _callers_have_grants(candidate: Candidate) -> Iterator[Problem]:
    if "forwarded" in candidate["auth"] and candidate["policy-file"] is None:
        yield candidate.problem(
            "auth",
            "whom a proxy has signed in has no grants: only rules give some",
            "set policy-file",
        )
    bare = [mode for mode in candidate["auth"] if mode in ("token-review", "mtls")]
    if bare and candidate["policy-file"] is None and not candidate["subject-access-review"]:
        yield candidate.problem(
            "auth",
            f"callers known by {' or '.join(bare)} have no grants, so every call is forbidden",
            "set policy-file or subject-access-review",
        )


def _attempts_fit_into_the_budget(candidate: Candidate) -> Iterator[Problem]:
    if candidate["connect-timeout"] > candidate["connect-budget"]:
        yield candidate.problem(
            "connect-timeout", "is cut short by the smaller connect-budget", "raise connect-budget"
        )


def _lines_fit_into_heads(candidate: Candidate) -> Iterator[Problem]:
    head, line = candidate["max-header-bytes"], candidate["max-request-line-bytes"]
    if line > head:
        key = "max-request-line-bytes"
        yield candidate.problem(
            key if candidate.is_said(key) else "max-header-bytes",
            f"a request line is part of the head, so {head} bytes is its limit too, not {line}",
            f"lower {key} to {head}, or raise max-header-bytes",
        )


def _not_everybody_is_a_proxy(candidate: Candidate) -> Iterator[Problem]:
    if any(network.prefixlen == 0 for network in candidate["trusted-proxies"]):
        yield candidate.problem(
            "trusted-proxies",
            "lets every client choose its own address",
            "name the networks of your proxies alone",
        )


ADVICE: tuple[Rule, ...] = (
    _token_is_long,
    _what_is_set_is_used,
    _authorities_are_asked,
    _callers_have_grants,
    _attempts_fit_into_the_budget,
    _lines_fit_into_heads,
    _not_everybody_is_a_proxy,
)


def _ignored_switches(candidate: Candidate, environment: Mapping[str, str]) -> Iterator[Problem]:
    """Says when a switch of the older deployments decides nothing, as somebody may count on it."""
    if environment.get(STATIC_TOKEN_VARIABLE):
        origin = Origin(Source.ENVIRONMENT)
        if "static" not in candidate["auth"]:
            yield Problem(
                STATIC_TOKEN_VARIABLE,
                origin,
                "is ignored: auth does not have static",
                "add static to auth, or unset it",
            )
        elif candidate["static-token-file"] is not None:
            yield Problem(
                STATIC_TOKEN_VARIABLE, origin, "is ignored: static-token-file is set", "unset it"
            )
    door_is_open = TRUTH.get(environment.get(OPEN_DOOR_VARIABLE, "").lower(), False)
    if door_is_open and candidate.origins["auth"].name != OPEN_DOOR_VARIABLE:
        yield Problem(
            OPEN_DOOR_VARIABLE,
            Origin(Source.ENVIRONMENT),
            "is ignored: auth is set elsewhere",
            "unset it",
        )


def _slips(environment: Mapping[str, str]) -> Iterator[Problem]:
    """Yields variables that are ignored and look like a misspelt setting; service links look different."""
    known = {TABLE[key].variable for key in FILE_KEYS} | {CONFIG_VARIABLE}
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in known or SERVICE_LINK.match(environment[name]):
            continue
        if near := nearest(name.removeprefix(PREFIX), FILE_KEYS, cutoff=0.85):
            right = f"did you mean {TABLE[near].variable}?"
            yield Problem(name, Origin(Source.ENVIRONMENT), "is no setting and is ignored", right)
