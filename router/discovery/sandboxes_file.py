"""The form of the sandboxes file: from its YAML to Endpoints, each mistake with its line."""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from router.discovery.sandboxes import PATH_MODES, read_ports
from router.routing.endpoint import NO_PORTS, NO_WISHES, Endpoint, SandboxRef, State, Wishes
from router.timestamps import FORM, parse_timestamp

# The C loader is ten times faster and keeps the same line marks; a file may hold thousands of entries.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_KEYS = (
    "name", "namespace", "host", "uid", "ports", "state", "path-mode", "tokens-not-before", "public-ports"
)  # fmt: skip
_STATES = tuple(state.value for state in State)
_SHOWN_MISTAKES = 20

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_VISIBLE = re.compile(r"[!-~]{1,253}")
_PORT = re.compile(r"[0-9]{1,5}")
# Underscores: container engines' networks have such names.
_DNS_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?"
    r"(?:\.[A-Za-z0-9_](?:[-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*\.?"
)
# Resolvers read such names as addresses: `127.1`, `0x7f000001`.
_NUMERIC_LAST_LABEL = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9a-fA-F]*)\.?")

_LABEL_ADVICE = (
    "must be an RFC 1123 label: lower case letters, digits and inner hyphens, 1 to 63 characters"
)
_HOST_ADVICE = "must be an IP address without brackets, or a DNS name; without a port (see `ports`)"

# What YAML makes of a plain word or number; `null` and explicit tags of other types are no text.
_PLAIN_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "timestamp")
)

_UID_NAMESPACE = uuid.UUID("6f1e7a3c-5a0b-5c61-9d53-3f0e8a4b7c19")


def parse_sandboxes(content: bytes, *, source: str, default_namespace: str) -> tuple[Endpoint, ...]:
    """Returns the sandboxes that the file's bytes list. Raises ValueError that names `source`, lines and every mistake."""
    try:
        root = yaml.compose(content, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise ValueError(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        told = " ".join(str(error).split())
        raise ValueError(f"{source}: not valid YAML: {told}") from error
    reader = _Reader(source, default_namespace)
    endpoints = reader.read(root)
    if reader.mistakes:
        raise ValueError(_listed(reader.mistakes))
    return endpoints


def _listed(mistakes: list[str]) -> str:
    more = len(mistakes) - _SHOWN_MISTAKES
    return "\n".join(mistakes[:_SHOWN_MISTAKES] + ([f"and {more} more"] if more > 0 else []))


class _Reader:
    """Walks the YAML nodes of one file and notes every mistake with its line."""

    def __init__(self, source: str, default_namespace: str) -> None:
        self.mistakes: list[str] = []
        self._source = source
        self._default_namespace = default_namespace

    def read(self, root: yaml.Node | None) -> tuple[Endpoint, ...]:
        """Returns the sandboxes without mistakes; whoever calls looks at `mistakes` first."""
        if not isinstance(root, yaml.MappingNode):
            self._note(root, "expected `sandboxes:` with a list (`sandboxes: []` for none)")
            return ()
        listed = self._mapping(root, ("sandboxes",)).get("sandboxes", root)
        if not isinstance(listed, yaml.SequenceNode):
            self._note(listed, "`sandboxes` must be a list (`sandboxes: []` for none)")
            return ()
        lines: dict[SandboxRef, int] = {}
        endpoints = [self._entry(node, lines) for node in listed.value]
        return tuple(endpoint for endpoint in endpoints if endpoint is not None)

    def _entry(self, node: yaml.Node, lines: dict[SandboxRef, int]) -> Endpoint | None:
        if not isinstance(node, yaml.MappingNode):
            self._note(node, "a sandbox must be a mapping with `name` and `host`")
            return None
        found_before = len(self.mistakes)
        fields = self._mapping(node, _KEYS)
        for key in ("name", "host"):
            if key not in fields:
                self._note(node, f"`{key}` is missing")
        name = self._text(fields, "name", "", _is_label, _LABEL_ADVICE)
        namespace = self._text(
            fields, "namespace", self._default_namespace, _is_label, _LABEL_ADVICE
        )
        host = self._text(fields, "host", "", _is_host, _HOST_ADVICE)
        uid = self._text(fields, "uid", "", _is_uid, "must be 1 to 253 visible ASCII characters")
        state = State(
            self._text(fields, "state", "ready", _is_state, f"must be one of {', '.join(_STATES)}")
        )
        path_mode = self._text(
            fields, "path-mode", "", _is_path_mode, f"must be {' or '.join(PATH_MODES)}"
        )
        not_before = self._text(fields, "tokens-not-before", "", _is_time, f"must be {FORM}")
        ports = self._ports(fields.get("ports"))
        public = self._text(
            fields,
            "public-ports",
            "",
            _are_ports,
            "must be ports with commas like 3000 or 3000,8080",
        )
        ref = SandboxRef(namespace, name)
        if len(self.mistakes) > found_before:
            return None
        if ref in lines:
            self._note(node, f"{ref} is listed on line {lines[ref]} already")
        lines.setdefault(ref, node.start_mark.line + 1)
        return Endpoint(
            ref=ref,
            uid=uid or _uid_of(ref, host, ports),
            state=state,
            addresses=(_canonical(host),) if state is State.READY else (),
            ports=ports,
            wishes=Wishes(path_mode, public_ports=read_ports(public) or frozenset())
            if path_mode or public
            else NO_WISHES,
            tokens_not_before=max(parse_timestamp(not_before), 1.0) if not_before else 0.0,
        )

    def _mapping(self, node: yaml.MappingNode, known: tuple[str, ...]) -> dict[str, yaml.Node]:
        """Returns the values of the known keys; notes unknown and repeated ones."""
        fields: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                advice = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known)}"
                self._note(key_node, f"unknown key `{key}` ({advice})")
            elif key in fields:
                self._note(key_node, f"`{key}` is given twice")
            else:
                fields[key] = value
        return fields

    def _text(
        self,
        fields: Mapping[str, yaml.Node],
        key: str,
        default: str,
        is_valid: Callable[[str], bool],
        advice: str,
    ) -> str:
        """Returns a field as it is written (`name: 1e3` is the name "1e3"), or the default after noting a mistake."""
        node = fields.get(key)
        if node is None:
            return default
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _PLAIN_TAGS:
            self._note(node, f"`{key}` must be plain text")
            return default
        text: str = node.value
        if not is_valid(text):
            self._note(node, f"`{key}: {_shown(text)}` {advice}")
            return default
        return text

    def _ports(self, node: yaml.Node | None) -> Mapping[int, int]:
        if node is None:
            return NO_PORTS
        if not isinstance(node, yaml.MappingNode):
            self._note(node, "`ports` must be a mapping of port asked for to port dialled")
            return NO_PORTS
        ports: dict[int, int] = {}
        for asked_node, dialled_node in node.value:
            asked = self._port(asked_node)
            dialled = self._port(dialled_node)
            if asked and asked in ports:
                self._note(asked_node, f"port {asked} is mapped twice")
            ports[asked] = dialled
        return ports or NO_PORTS

    def _port(self, node: yaml.Node) -> int:
        """Returns a port, or 0 after noting a mistake."""
        text = node.value if isinstance(node, yaml.ScalarNode) else ""
        port = int(text) if _PORT.fullmatch(text) else 0
        if not 1 <= port <= 65535:
            self._note(node, f"`{_shown(text)}` in `ports` must be a number from 1 to 65535")
        return port

    def _note(self, node: yaml.Node | None, mistake: str) -> None:
        line = 1 if node is None else node.start_mark.line + 1
        self.mistakes.append(f"{self._source}:{line}: {mistake}")


def _is_label(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def _is_uid(text: str) -> bool:
    return _VISIBLE.fullmatch(text) is not None


def _is_state(text: str) -> bool:
    return text in _STATES


def _is_path_mode(text: str) -> bool:
    return text in PATH_MODES


def _are_ports(text: str) -> bool:
    return read_ports(text) is not None


def _is_time(text: str) -> bool:
    try:
        parse_timestamp(text)
    except ValueError:
        return False
    return True


def _is_host(text: str) -> bool:
    if _ip_address(text) is not None:
        return True
    return _DNS_NAME.fullmatch(text) is not None and _NUMERIC_LAST_LABEL.fullmatch(text) is None


def _ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _canonical(host: str) -> str:
    address = _ip_address(host)
    return host if address is None else str(address)


def _uid_of(ref: SandboxRef, host: str, ports: Mapping[int, int]) -> str:
    """Returns a UID made from what is dialled, so that a changed entry is another sandbox behind the same name."""
    entry = json.dumps([ref.namespace, ref.name, _canonical(host), sorted(ports.items())])
    return str(uuid.uuid5(_UID_NAMESPACE, entry))


def _shown(text: str) -> str:
    """Returns text for one line of a message."""
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
