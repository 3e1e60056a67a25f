"""Grants as they are written: the claim `sandboxes` of a token, the lists of a policy file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from router.auth.principal import ANY, Grant
from router.settings.values import nearest

MAX_GRANTS = 1000
MAX_SHOWN = 60
"""How much of a wrong value a message repeats."""

Path: TypeAlias = tuple[str | int, ...]
"""Where in a document something stands: keys and positions from its root."""

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_METHOD = re.compile(r"[A-Z0-9!#$%&'*+.^_`|~-]{1,32}", re.ASCII)
_UID = re.compile(r"[!-~]{1,256}", re.ASCII)
_KEYS = ("namespace", "name", "uid", "ports", "methods", "wake")


class GrantError(ValueError):
    """A grant that says something this router doesn't understand; `path` leads to it.

    `detail` is the message with what stands there, for whoever wrote it; callers get the message alone. `key` is a key
    below `path` that it is about.
    """

    def __init__(self, path: Path, message: str, *, detail: str = "", key: str = "") -> None:
        self.path = path
        self.key = key
        self.message = message
        self.detail = detail or message
        super().__init__(f"{spell(path)}: {message}" if path else message)


def parse_grants(value: object, *, at: Path = ()) -> tuple[Grant, ...]:
    """Returns the grants of a list of `{namespace, name, uid?, ports?, methods?, wake?}`. Raises GrantError at the first fault.

    Nothing is passed over: a key that is not understood may be a restriction.
    """
    return tuple(each_grant(value, at=at, on_error=_raise))


def each_grant(
    value: object, *, at: Path, on_error: Callable[[GrantError], None]
) -> Iterator[Grant]:
    """Yields the grants that are well-formed and hands every fault to `on_error`."""
    if not isinstance(value, list):
        on_error(
            _wrong(at, "must be a list of {namespace, name, uid?, ports?, methods?, wake?}", value)
        )
        return
    if len(value) > MAX_GRANTS:
        on_error(GrantError(at, f"holds more than {MAX_GRANTS} grants"))
        return
    for position, entry in enumerate(value):
        try:
            yield _parse_grant(entry, (*at, position))
        except GrantError as error:
            on_error(error)


def spell(path: Path) -> str:
    """Returns a path for people: `sandboxes[2].ports`, positions counted from 0 as in JSON."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: object) -> str:
    """Returns a value that stands where it should not, short and printable, for the message about it."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    spelled = value if isinstance(value, str) else json.dumps(value)
    cut = spelled if len(spelled) <= MAX_SHOWN else f"{spelled[:MAX_SHOWN]}…"
    return f"`{cut}`" if cut and cut.isprintable() else repr(cut)


def unknown_key(key: str, keys: Sequence[str]) -> str:
    """Returns what to say about a key that is not one of `keys`."""
    near = nearest(key[:MAX_SHOWN], keys)
    hint = f" (did you mean `{near}`?)" if near else ""
    return f"has the key {shown(key)}{hint}, which is not one of {', '.join(keys)}"


def _wrong(at: Path, message: str, value: object) -> GrantError:
    return GrantError(at, message, detail=f"{message}, not {shown(value)}")


def _raise(error: GrantError) -> None:
    raise error


def _parse_grant(entry: object, at: Path) -> Grant:
    if not isinstance(entry, dict):
        raise _wrong(
            at, "must be a mapping {namespace, name, uid?, ports?, methods?, wake?}", entry
        )
    for key in entry:
        if key not in _KEYS:
            raise GrantError(
                at,
                f"has a key that is not one of {', '.join(_KEYS)}",
                detail=unknown_key(key, _KEYS),
                key=key,
            )
    return Grant(
        namespace=_label(entry, "namespace", at),
        name=_label(entry, "name", at),
        uid=_uid(entry, at),
        ports=_ports(entry, at),
        methods=_methods(entry, at),
        wake=_wake(entry, at),
    )


def _label(entry: dict[str, object], key: str, at: Path) -> str:
    if key not in entry:
        raise GrantError(at, f"`{key}` is missing")
    value = entry[key]
    if isinstance(value, str) and (value == ANY or _LABEL.fullmatch(value)):
        return value
    raise _wrong((*at, key), "must be an RFC 1123 label in lower case, or *", value)


def _uid(entry: dict[str, object], at: Path) -> str:
    if "uid" not in entry:
        return ""
    value = entry["uid"]
    if isinstance(value, str) and _UID.fullmatch(value):
        return value
    raise _wrong((*at, "uid"), "must be a UID (leave it out for any)", value)


def _ports(entry: dict[str, object], at: Path) -> frozenset[int] | None:
    if "ports" not in entry:
        return None
    ports = set()
    for value in _list(entry["ports"], (*at, "ports"), "every port"):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
            raise _wrong((*at, "ports"), "must hold whole numbers from 1 to 65535", value)
        ports.add(value)
    return frozenset(ports)


def _methods(entry: dict[str, object], at: Path) -> frozenset[bytes] | None:
    if "methods" not in entry:
        return None
    methods = set()
    for value in _list(entry["methods"], (*at, "methods"), "every method"):
        if not isinstance(value, str) or not _METHOD.fullmatch(value):
            raise _wrong((*at, "methods"), "must hold HTTP methods in upper case", value)
        methods.add(value.encode("ascii"))
    return frozenset(methods)


def _wake(entry: dict[str, object], at: Path) -> bool:
    value = entry.get("wake", False)
    if isinstance(value, bool):
        return value
    raise _wrong((*at, "wake"), "must be true or false", value)


def _list(value: object, at: Path, everything: str) -> list[object]:
    if isinstance(value, list) and value:
        return value
    raise _wrong(at, f"must be a list with entries (leave it out for {everything})", value)
