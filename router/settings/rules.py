"""What must be true of settings together, whatever each one's type allows."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from router.settings.candidate import Candidate, UnreadableError
from router.settings.groups import Address
from router.settings.problems import Problem
from router.settings.table import STATIC_TOKEN_VARIABLE, TABLE

Rule = Callable[[Candidate], Iterator[Problem]]

KEY_SOURCES = ("jwt-secret-file", "jwks-file", "jwks-url")
EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound


def check(candidate: Candidate) -> list[Problem]:
    """Returns every broken rule; a rule about a value that could not be read is left out."""
    return gather(RULES, candidate)


def gather(rules: tuple[Rule, ...], candidate: Candidate) -> list[Problem]:
    """Returns what all the rules have to say."""
    found: list[Problem] = []
    for rule in rules:
        try:
            found.extend(rule(candidate))
        except UnreadableError:
            continue
    return found


# --- who may call ---------------------------------------------------------------------------


def _somebody_said_who_may_call(candidate: Candidate) -> Iterator[Problem]:
    modes = candidate["auth"]
    if not modes:
        yield candidate.problem(
            "auth",
            "no authentication mode is set",
            f"set auth to jwt, static, token-review, mtls or forwarded (flag --auth, environment {TABLE['auth'].variable}, "
            f"file key auth), or give a token in {STATIC_TOKEN_VARIABLE}; "
            "to let every caller reach every sandbox, say so: auth: none",
        )
    elif "none" in modes and len(modes) > 1:
        yield candidate.problem(
            "auth", "has none beside other modes", "write none alone, or leave it out"
        )


def _static_has_a_token(candidate: Candidate) -> Iterator[Problem]:
    if "static" not in (candidate["auth"] or ()):
        return
    path, token = candidate["static-token-file"], candidate["static-token"]
    if path is None and not token:
        yield candidate.problem(
            "auth",
            "static has no token",
            f"name a static-token-file, or set {STATIC_TOKEN_VARIABLE}",
        )
    elif path is not None and token_in(path) == "":
        yield candidate.problem("static-token-file", "is empty", "put the token in it")


def _jwt_has_keys(candidate: Candidate) -> Iterator[Problem]:
    if "jwt" in (candidate["auth"] or ()) and not any(candidate[key] for key in KEY_SOURCES):
        yield candidate.problem(
            "auth", "jwt has no keys", "set jwt-secret-file, jwks-file or jwks-url"
        )


def _mtls_callers_can_arrive(candidate: Candidate) -> Iterator[Problem]:
    arrives = candidate["mtls"] != "off" or candidate["trusted-proxies"]
    if "mtls" in (candidate["auth"] or ()) and not arrives:
        yield candidate.problem(
            "auth",
            "mtls is a mode, but no client certificate is ever seen",
            "set mtls to optional or required, or name the trusted-proxies that hand on X-Forwarded-Client-Cert",
        )


def _forwarded_is_complete(candidate: Candidate) -> Iterator[Problem]:
    if "forwarded" not in (candidate["auth"] or ()):
        return
    if candidate["identity-header"] is None:
        yield candidate.problem(
            "auth",
            "forwarded has no header to read",
            "set identity-header to the one in which the proxy says who has signed in",
        )
    if not candidate["trusted-proxies"]:
        yield candidate.problem(
            "auth",
            "forwarded has no proxy to believe",
            "set trusted-proxies to the proxy's network; everybody else could write that header too",
        )
    if any(network.prefixlen == 0 for network in candidate["trusted-proxies"] or ()):
        yield candidate.problem(
            "trusted-proxies",
            "is everybody, and auth has forwarded: whoever writes the header would be believed",
            "name the networks of your proxies alone",
        )


# --- people in browsers ---------------------------------------------------------------------


def _sessions_can_begin(candidate: Candidate) -> Iterator[Problem]:
    key_file = candidate["session-key-file"]
    if key_file is None:
        for key in ("session-origins", "session-iframe", "session-path-mode"):
            if candidate[key]:
                yield candidate.problem(
                    key, "there are no sessions", "set session-key-file, or remove it"
                )
        return
    if "none" in (candidate["auth"] or ()):
        yield candidate.problem(
            "session-key-file", "auth is none, so nobody needs a session", "remove one of them"
        )
    if key_file == candidate["jwt-secret-file"]:
        yield candidate.problem(
            "session-key-file",
            "is jwt-secret-file too: whoever mints tokens could make sessions",
            "give the sessions secrets of their own",
        )
    if not candidate["base-domain"] and not (
        candidate["path-prefix"] and candidate["session-path-mode"]
    ):
        yield candidate.problem(
            "session-key-file",
            "no sandbox is named in a way that allows a session",
            "set base-domain, or path-prefix with session-path-mode",
        )


def _home_has_something_to_show(candidate: Candidate) -> Iterator[Problem]:
    if not candidate["home"]:
        return
    if not candidate["base-domain"]:
        yield candidate.problem("home", "there is no base domain to show it on", "set base-domain")
    if candidate["discovery"] == "dns":
        yield candidate.problem(
            "home",
            "discovery dns has no table of sandboxes to show",
            "use discovery kubernetes or file, or remove it",
        )


# --- listeners and TLS ----------------------------------------------------------------------


def _somewhere_to_connect(candidate: Candidate) -> Iterator[Problem]:
    if candidate["http-bind"] is None and candidate["https-bind"] is None:
        yield candidate.problem(
            "http-bind", "https-bind is off too", "set one of them to an address such as :8080"
        )


def _listeners_keep_apart(candidate: Candidate) -> Iterator[Problem]:
    keys = ("http-bind", "https-bind", "extauthz-bind", "admin-bind")
    binds = [(key, candidate[key]) for key in keys]
    for index, (key, address) in enumerate(binds):
        for earlier, other in binds[:index]:
            if address and other and _overlap(address, other):
                yield candidate.problem(
                    key, f"is taken by {earlier} = {other}", "give each listener its own port"
                )


def _overlap(one: Address, other: Address) -> bool:
    same_host = one.host == other.host or not EVERY_ADDRESS.isdisjoint((one.host, other.host))
    return same_host and one.port == other.port != 0


def _tls_is_complete(candidate: Candidate) -> Iterator[Problem]:
    if candidate["https-bind"] is not None:
        for key in ("tls-cert-file", "tls-key-file"):
            if candidate[key] is None:
                yield candidate.problem(
                    "https-bind", f"TLS needs {key}", f"set {key}, or https-bind to off"
                )
        return
    for key in ("tls-cert-file", "tls-key-file", "tls-client-ca-file"):
        if candidate[key] is not None:
            yield candidate.problem(
                key, "https-bind is off", "set https-bind, for example to :8443, or remove the file"
            )


def _mtls_is_complete(candidate: Candidate) -> Iterator[Problem]:
    mtls, authorities = candidate["mtls"], candidate["tls-client-ca-file"]
    if mtls == "off":
        if authorities is not None and candidate["https-bind"] is not None:
            yield candidate.problem(
                "tls-client-ca-file",
                "mtls is off",
                "set mtls to optional or required, or remove the file",
            )
        return
    if candidate["https-bind"] is None:
        yield candidate.problem(
            "mtls", "https-bind is off", "set https-bind, for example to :8443, or mtls to off"
        )
    if authorities is None:
        yield candidate.problem(
            "mtls",
            "no authority to check certificates by",
            "set tls-client-ca-file, or mtls to off",
        )


# --- finding sandboxes ----------------------------------------------------------------------


def _discovery_is_chosen(candidate: Candidate) -> Iterator[Problem]:
    discovery = candidate["discovery"]
    if discovery is None:
        yield candidate.problem(
            "discovery",
            "must be said outside of a cluster",
            "set discovery to file (with sandboxes-file), kubernetes (with kubeconfig) or dns",
        )
    elif discovery == "file" and candidate["sandboxes-file"] is None:
        yield candidate.problem(
            "discovery",
            "no sandboxes-file is named",
            "set sandboxes-file to the YAML list of sandboxes",
        )


def _client_addresses_need_dns(candidate: Candidate) -> Iterator[Problem]:
    discovery = candidate["discovery"]
    if candidate["trust-pod-ip-header"] and discovery not in ("dns", None):
        yield candidate.problem(
            "trust-pod-ip-header",
            f"discovery is {discovery}, which knows the addresses itself",
            "remove it, or set discovery to dns",
        )


def _a_waker_exists(candidate: Candidate) -> Iterator[Problem]:
    discovery = candidate["discovery"]
    if candidate["wake"] != "off" and discovery not in ("kubernetes", None):
        yield candidate.problem(
            "wake",
            f"discovery is {discovery}, whose sandboxes the router can't wake",
            "set wake to off, or discovery to kubernetes",
        )


# --- files ----------------------------------------------------------------------------------


def _file_rule(key: str) -> Rule:
    def rule(candidate: Candidate) -> Iterator[Problem]:
        path = candidate[key]
        wrong = None if path is None else unreadable_reason(path)
        if wrong is not None:
            yield candidate.problem(key, wrong, "name a file that the router may read")

    return rule


def _words_for_metrics_stand_alone(candidate: Candidate) -> Iterator[Problem]:
    names = candidate["metrics-namespaces"] or ()
    for word in ("all", "none"):
        if word in names and len(names) > 1:
            yield candidate.problem(
                "metrics-namespaces",
                f"has {word} beside other names",
                f"write {word} alone, or the names alone",
            )


def _kubeconfig_is_readable(candidate: Candidate) -> Iterator[Problem]:
    """KUBECONFIG may list several files, of which kubectl skips the missing ones; and it may be meant for others."""
    path = candidate["kubeconfig"]
    if path is None or not _needs_kubernetes(candidate):
        return
    reasons = [unreadable_reason(Path(part)) for part in str(path).split(os.pathsep) if part]
    if reasons and None not in reasons:
        yield candidate.problem(
            "kubeconfig", reasons[0] or "", "name a file that the router may read"
        )


def _needs_kubernetes(candidate: Candidate) -> bool:
    return (
        candidate["discovery"] == "kubernetes"
        or "token-review" in (candidate["auth"] or ())
        or bool(candidate["subject-access-review"])
    )


def unreadable_reason(path: Path) -> str | None:
    """Returns why a file can't be read, None when it can. Files are read again when they change, so a pipe won't do."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return f"can't be read: {error.strerror}"
    if not stat.S_ISREG(mode):
        return "is a directory" if stat.S_ISDIR(mode) else "is a pipe or device, not a file"
    return None if os.access(path, os.R_OK) else "can't be read: Permission denied"


def token_in(path: Path) -> str | None:
    """Returns the token in a regular file, None when the file is of another kind or can't be read."""
    try:
        return path.read_bytes().decode("latin-1").strip() if path.is_file() else None
    except OSError:
        return None


RULES: tuple[Rule, ...] = (
    _somebody_said_who_may_call,
    _static_has_a_token,
    _jwt_has_keys,
    _mtls_callers_can_arrive,
    _forwarded_is_complete,
    _sessions_can_begin,
    _home_has_something_to_show,
    _somewhere_to_connect,
    _listeners_keep_apart,
    _tls_is_complete,
    _mtls_is_complete,
    _discovery_is_chosen,
    _client_addresses_need_dns,
    _a_waker_exists,
    _words_for_metrics_stand_alone,
    *(
        _file_rule(key)
        for key, row in TABLE.items()
        if row.kind.name == "path" and key != "kubeconfig"
    ),
    _kubeconfig_is_readable,
)
