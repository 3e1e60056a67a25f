"""Why grants don't cover a call, in words for the log and for explanations."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from router.auth.principal import ANY, CONNECT, Grant
from router.auth.rights import Rights, SourcedGrant
from router.routing.endpoint import Endpoint, SandboxRef

MAX_LOOKED_AT = 64
"""Who is refused again and again must not cost a walk through a thousand grants each time."""

_WEIGHTS = {"namespace": 8, "name": 4, "uid": 2, "port": 1, "method": 1}


def missing_parts(
    grant: Grant,
    names: tuple[SandboxRef, ...],
    endpoint: Endpoint | None,
    port: int,
    method: bytes,
) -> list[str]:
    """Returns the parts of the call that `grant` doesn't cover: `namespace`, `name`, `port`, `method`, `uid`; [] when it covers it."""
    parts = []
    if not any(grant.covers_name(ref) for ref in names):
        is_near = grant.namespace == ANY or any(grant.namespace == ref.namespace for ref in names)
        parts.append("name" if is_near else "namespace")
    is_raw = method == CONNECT
    if (is_raw and grant.ports is None) or (grant.ports is not None and port not in grant.ports):
        parts.append("port")
    if is_raw if grant.methods is None else method not in grant.methods:
        parts.append("method")
    if endpoint is not None and not grant.covers_endpoint(endpoint):
        parts.append("uid")
    return parts


def shortfall(
    rights: Rights,
    names: tuple[SandboxRef, ...],
    endpoint: Endpoint | None,
    port: int,
    method: bytes,
) -> str:
    """Returns which grant comes nearest to the call and what it lacks; `endpoint` is None for a sandbox that isn't ready."""
    nearest: tuple[int, SourcedGrant, list[str]] | None = None
    for sourced in islice(rights.all(), MAX_LOOKED_AT):
        parts = missing_parts(sourced.grant, names, endpoint, port, method)
        distance = _distance(parts)
        if parts and (nearest is None or distance < nearest[0]):
            nearest = distance, sourced, parts
    if nearest is None:
        return (
            "the caller has no grant at all: none in its credential, and no policy rule matches it"
        )
    _, sourced, parts = nearest
    asked = {
        "namespace": names[0].namespace,
        "name": names[0].name,
        "port": str(port),
        "method": method[:32].decode("latin-1"),
        "uid": endpoint.uid if endpoint is not None else "",
    }
    lacks = ", ".join(f"{part} {asked[part]}".rstrip() for part in parts)
    return f"no grant covers the call; the nearest, {sourced.source}, lacks {lacks}"


def _distance(parts: Iterable[str]) -> int:
    return sum(_WEIGHTS[part] for part in parts)
