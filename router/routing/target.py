"""Target: the sandbox, port and conditions that one request asks for.

A request names its sandbox by header, by host or by path. TargetParser reads all three; whatever is said twice must agree.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import NamedTuple

from router.errors import (
    AmbiguousTarget,
    BadRequest,
    InvalidNamespace,
    InvalidPodIp,
    InvalidPort,
    InvalidSandboxId,
    Misdirected,
    MissingSandboxId,
)
from router.routing.addresses import is_never_a_sandbox, parse_ip_literal, without_mapping
from router.routing.endpoint import SandboxRef


class NamedBy(enum.Enum):
    """Which part of the request said where it goes."""

    HEADER = "header"
    HOST = "host"
    PATH = "path"


class Asked(NamedTuple):
    """The raw values of the X-Sandbox-* routing headers, None where absent; equal duplicates are one already."""

    sandbox_id: bytes | None = None
    namespace: bytes | None = None
    port: bytes | None = None
    uid: bytes | None = None
    pod_ip: bytes | None = None
    timeout: bytes | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What one request asks for; valid by construction when TargetParser made it."""

    ref: SandboxRef
    port: int
    uid: str = ""
    """X-Sandbox-UID: the sandbox that answers must have it; "" when not asked for."""
    timeout_s: float | None = None
    """X-Sandbox-Timeout, capped; None for the router's own `proxy-timeout`."""
    pod_ip: str | None = None
    """X-Sandbox-Pod-IP in canonical form: a hint, dialled with `trust-pod-ip-header` alone."""
    named_by: NamedBy = NamedBy.HEADER
    path_root: bytes = b""
    """Path mode: the sandbox's own root, `/prefix/namespace/name/port`, as the client wrote it; else empty."""


class _Name(NamedTuple):
    """A sandbox and port as host or path say them."""

    ref: SandboxRef
    port: int


# Bytes and fullmatch: `$` also matches before a final newline, str digits include other scripts.
_LABEL = re.compile(rb"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_PORT = re.compile(rb"[0-9]{1,5}")
_VISIBLE = re.compile(rb"[!-~]{1,253}")
_SECONDS = re.compile(rb"[0-9]+(?:\.[0-9]+)?")
_HOST = re.compile(rb"([a-z0-9.-]+?)\.?(?::[0-9]{0,5})?")

# A longer number is no timeout that a person means, and slow to convert.
_SECONDS_MAX_LENGTH = 32

# Load generators and agents repeat their routing headers: a memo hit costs a tenth of a parse. The bounds
# keep a stranger from filling memory (16,384 entries of at most about 1 KiB).
_MEMO_ENTRIES = 16_384
_MEMO_HOST_LENGTH = 320


class TargetParser:
    """Turns what a request says about its destination into a Target."""

    def __init__(
        self,
        *,
        base_domain: str,
        path_prefix: str,
        default_port: int,
        default_namespace: str,
        proxy_timeout_s: float,
    ) -> None:
        """Empty `base_domain` or `path_prefix` switch that way off; `proxy_timeout_s` 0 lifts the cap."""
        domain = base_domain.lower().strip(".").encode("ascii")
        self._host_suffix = b"." + domain if domain else b""
        prefix = path_prefix.rstrip("/").encode("ascii")
        self._path_start = prefix + b"/" if prefix else b""
        self._path_form = f"{path_prefix.rstrip('/')}/<namespace>/<name>/<port>/<rest>"
        self._default_port = default_port
        self._default_namespace = default_namespace.encode("ascii")
        self._proxy_timeout_s = proxy_timeout_s
        self._memo: dict[tuple[Asked, bytes], Target] = {}

    def __repr__(self) -> str:
        return (
            f"<TargetParser host={self._host_suffix!r} path={self._path_start!r} "
            f"memo={len(self._memo)}>"
        )

    def parse(self, asked: Asked, host: bytes, request_target: bytes) -> Target:
        """Returns the Target of a request with this Host (raw; empty when absent) and origin-form request target.

        Raises BadRequest or one of its kinds; Misdirected when only a Host could have named the sandbox and doesn't.
        """
        if self._path_start and self._is_under_prefix(request_target):
            return self._parse_under_prefix(asked, host, request_target)
        return self._parse_host_or_headers(asked, host)

    def names_sandbox(self, asked: Asked, host: bytes, request_target: bytes) -> bool:
        """Returns True when the request names a sandbox in any way, be it wrongly."""
        return (
            asked.sandbox_id is not None
            or (bool(self._path_start) and self._is_under_prefix(request_target))
            or self._name_in_host(host) is not None
        )

    @property
    def path_root(self) -> bytes:
        """What every path begins with that may name a sandbox; empty where none does."""
        return self._path_start[:-1]

    # --- by path ----------------------------------------------------------------------------

    def _is_under_prefix(self, request_target: bytes) -> bool:
        """Whole segments only: `/prefixes` is not under `/prefix`; `/prefix` and `/prefix?x` are."""
        start = self._path_start
        return request_target.startswith(start) or (request_target.partition(b"?")[0] == start[:-1])

    def _parse_under_prefix(self, asked: Asked, host: bytes, request_target: bytes) -> Target:
        path = request_target.partition(b"?")[0]
        segments = path[len(self._path_start) :].split(b"/", 3)
        problem = self._problem_with(segments)
        if problem is not None:
            # An app may well have such a path of its own, when something else names its sandbox.
            if asked.sandbox_id is not None or self._name_in_host(host) is not None:
                return self._parse_host_or_headers(asked, host)
            raise problem
        namespace, name, port = segments[:3]
        named = _Name(SandboxRef(namespace.decode(), name.decode()), int(port))
        in_host = self._name_in_host(host)
        if in_host is not None and in_host != named:
            raise AmbiguousTarget("Host and path name different sandboxes.")
        root = self._path_start + b"/".join(segments[:3])
        return self._agreed(named, asked, NamedBy.PATH, root)

    def _problem_with(self, segments: list[bytes]) -> BadRequest | None:
        form = f"The path form is {self._path_form}."
        if len(segments) < 3:
            return BadRequest(f"The path names no sandbox. {form}")
        kind: type[BadRequest]
        if _LABEL.fullmatch(segments[0]) is None:
            kind = InvalidNamespace
        elif _LABEL.fullmatch(segments[1]) is None:
            kind = InvalidSandboxId
        elif _port_or_none(segments[2]) is None:
            kind = InvalidPort
        else:
            return None
        return kind(f"{kind.default_detail} {form}")

    # --- by host ----------------------------------------------------------------------------

    def _name_in_host(self, host: bytes) -> _Name | None:
        """Returns what `<port>-<name>[--<namespace>].<base-domain>` names; None for any other Host.

        The labels `www`, `api` and `admin` are none because no label without a port is one.
        """
        if not self._host_suffix:
            return None
        match = _HOST.fullmatch(host.lower())
        if match is None or not match[1].endswith(self._host_suffix):
            return None
        label = match[1][: -len(self._host_suffix)]
        digits, hyphen, name = label.partition(b"-")
        port = _port_or_none(digits)
        if not hyphen or port is None:
            return None
        namespace = self._default_namespace
        if b"--" in name:
            name, _, namespace = name.rpartition(b"--")
        if _LABEL.fullmatch(name) is None or _LABEL.fullmatch(namespace) is None:
            return None
        return _Name(SandboxRef(namespace.decode(), name.decode()), port)

    def _parse_host_or_headers(self, asked: Asked, host: bytes) -> Target:
        key = (asked, host if self._host_suffix else b"")
        known = self._memo.get(key)
        if known is not None:
            return known
        in_host = self._name_in_host(host)
        if in_host is not None:
            target = self._agreed(in_host, asked, NamedBy.HOST, b"")
        else:
            target = self._parse_headers(asked)
        # Everything else in a key is short, or the parse would have refused it.
        if len(key[1]) <= _MEMO_HOST_LENGTH and len(asked.timeout or b"") <= _SECONDS_MAX_LENGTH:
            if len(self._memo) >= _MEMO_ENTRIES:
                self._memo.clear()
            self._memo[key] = target
        return target

    # --- by header --------------------------------------------------------------------------

    def _parse_headers(self, asked: Asked) -> Target:
        if asked.sandbox_id is None:
            if self._host_suffix:
                raise Misdirected.for_domain(self._host_suffix[1:].decode("ascii"))
            raise MissingSandboxId
        name = _label(asked.sandbox_id, InvalidSandboxId)
        namespace = _label(asked.namespace or self._default_namespace, InvalidNamespace)
        port = self._default_port if asked.port is None else _port(asked.port)
        return self._target(_Name(SandboxRef(namespace, name), port), asked, NamedBy.HEADER, b"")

    def _agreed(self, named: _Name, asked: Asked, named_by: NamedBy, root: bytes) -> Target:
        """Returns the Target of a host or path whose routing headers, where present, say the same."""
        ref, port = named
        if asked.sandbox_id is not None and _label(asked.sandbox_id, InvalidSandboxId) != ref.name:
            raise AmbiguousTarget(
                f"X-Sandbox-ID and the {named_by.value} name different sandboxes."
            )
        if asked.namespace is not None:
            namespace = _label(asked.namespace or self._default_namespace, InvalidNamespace)
            if namespace != ref.namespace:
                raise AmbiguousTarget(
                    f"X-Sandbox-Namespace and the {named_by.value} name different namespaces."
                )
        if asked.port is not None and _port(asked.port) != port:
            raise AmbiguousTarget(f"X-Sandbox-Port and the {named_by.value} name different ports.")
        return self._target(named, asked, named_by, root)

    def _target(self, named: _Name, asked: Asked, named_by: NamedBy, root: bytes) -> Target:
        return Target(
            ref=named.ref,
            port=named.port,
            uid=_uid(asked.uid),
            timeout_s=self._timeout_s(asked.timeout),
            pod_ip=_pod_ip(asked.pod_ip),
            named_by=named_by,
            path_root=root,
        )

    def _timeout_s(self, value: bytes | None) -> float | None:
        """Returns the seconds asked for, capped; None for none, zero or junk."""
        if value is None or len(value) > _SECONDS_MAX_LENGTH or not _SECONDS.fullmatch(value):
            return None
        seconds = float(value)
        if self._proxy_timeout_s and seconds > self._proxy_timeout_s:
            return self._proxy_timeout_s
        return seconds or None


def forwarded_target(target: Target, request_target: bytes, *, keeps_path: bool = False) -> bytes:
    """Returns the request target that the sandbox gets: in path mode what follows its root, byte for byte, else all."""
    if keeps_path or not target.path_root:
        return request_target
    rest = request_target[len(target.path_root) :]
    return rest if rest.startswith(b"/") else b"/" + rest


def _label(value: bytes, invalid: type[BadRequest]) -> str:
    """Returns an RFC 1123 label. Raises `invalid`."""
    if _LABEL.fullmatch(value) is None:
        raise invalid
    return value.decode("ascii")


def _port(value: bytes) -> int:
    """Returns a port. Raises InvalidPort."""
    port = _port_or_none(value)
    if port is None:
        raise InvalidPort
    return port


def _port_or_none(value: bytes) -> int | None:
    if _PORT.fullmatch(value) is None:
        return None
    port = int(value)
    return port if 1 <= port <= 65535 else None


def _uid(value: bytes | None) -> str:
    """Returns X-Sandbox-UID, "" for none. Raises BadRequest."""
    if not value:
        return ""
    if _VISIBLE.fullmatch(value) is None:
        raise BadRequest("Invalid X-Sandbox-UID format.")
    return value.decode("ascii")


def _pod_ip(value: bytes | None) -> str | None:
    """Returns X-Sandbox-Pod-IP in canonical form, None for none. Raises InvalidPodIp."""
    if value is None:
        return None
    address = parse_ip_literal(value)
    if address is None or is_never_a_sandbox(address, allow_loopback=False):
        raise InvalidPodIp
    return str(without_mapping(address))
