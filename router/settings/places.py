"""The types of settings that name places: addresses, networks, domains, paths, files, URLs."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from router.settings.groups import Address
from router.settings.values import OFF_WORDS, BadValueError, Kind, printable, within

BIND = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<four>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?"
)
PATH_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+")


def file_path() -> Kind:
    """A Path, None for `off` or an empty text. Whether the file exists is a matter of the rules."""

    def parse(value: str) -> Path | None:
        return None if not value or value.lower() in OFF_WORDS else Path(printable(value))

    return Kind("path", "PATH", parse, lambda value: "off" if value is None else str(value))


def bind() -> Kind:
    """An Address, None for `off`."""
    right = "write :8080 (every address), 127.0.0.1:8080, [::1]:8080 or off"

    def parse(value: str) -> Address | None:
        if value.lower() in OFF_WORDS:
            return None
        match = BIND.fullmatch(value)
        if match is None:
            raise BadValueError("is not an address to listen on", right)
        host = match["four"] if match["six"] is None else match["six"]
        if host not in ("", "localhost") or match["six"] is not None:
            _require_ip(host, version=4 if match["six"] is None else 6, right=right)
        return Address(host, within(int(match["port"]), 0, 65535))

    return Kind("address", "ADDRESS", parse, lambda value: "off" if value is None else str(value))


def _require_ip(host: str, *, version: int, right: str) -> None:
    try:
        if ipaddress.ip_address(host).version == version:
            return
    except ValueError:
        pass
    raise BadValueError(f"has a host that is not an IPv{version} address", right)


def network() -> Kind:
    """Several IP networks in CIDR form; a bare address stands for itself alone."""

    def parse(value: str) -> Any:
        try:
            if "%" not in value:
                return ipaddress.ip_network(value, strict=True)
        except ValueError:
            _refuse_host_bits(value)
        raise BadValueError(
            f"has an item that is not a network: {value!r}", "write 10.0.0.0/8 or fd00::/8"
        )

    return Kind(
        "list of networks",
        "CIDR,...",
        parse,
        lambda value: [str(item) for item in value],
        is_list=True,
    )


def _refuse_host_bits(value: str) -> None:
    try:
        loose = ipaddress.ip_network(value, strict=False)
    except ValueError:
        return
    raise BadValueError(f"has a network with host bits set: {value!r}", f"did you mean {loose}?")


def label() -> Kind:
    """A Kubernetes namespace."""
    return Kind("namespace", "NAMESPACE", _label)


def labels(*, or_words: tuple[str, ...] = ()) -> Kind:
    """Several Kubernetes namespaces; or one of some words, which a rule keeps alone."""
    words = "".join(f"`{word}`, " for word in or_words)
    metavar = "|".join((*or_words, "NAMESPACE,..."))
    return Kind(f"{words}list of namespaces", metavar, _label, list, is_list=True)


def _label(value: str) -> str:
    if not LABEL.fullmatch(value):
        raise BadValueError(
            f"is not a namespace: {value!r}",
            "write 1 to 63 lower case letters, digits and inner hyphens",
        )
    return value


def domain(*, optional: bool) -> Kind:
    """A DNS name in lower case without a final dot; "" for `off`, where it is optional."""
    example = "sandboxes.example.com" if optional else "cluster.local"
    right = f"write a name such as {example}" + (", or off" if optional else "")

    def parse(value: str) -> str:
        if optional and (not value or value.lower() in OFF_WORDS):
            return ""
        name = value.lower().removesuffix(".") if value.isascii() else ""
        parts = name.split(".")
        if len(name) > 253 or not all(map(LABEL.fullmatch, parts)) or parts[-1].isdigit():
            raise BadValueError("is not a domain name", right)
        return name

    return Kind("domain", "DOMAIN", parse, lambda value: value or "off")


def path_prefix() -> Kind:
    """A path of whole segments without a trailing slash; "" for `off`."""
    right = "write whole segments of letters, digits and - . _ ~ such as /sandboxes, or off"

    def parse(value: str) -> str:
        if not value or value.lower() in OFF_WORDS:
            return ""
        if not value.startswith("/"):
            raise BadValueError("does not begin with a slash", right)
        segments = value.removesuffix("/").split("/")[1:]
        if not segments or any(
            part in (".", "..") or not PATH_SEGMENT.fullmatch(part) for part in segments
        ):
            raise BadValueError("is not a plain path", right)
        return "/" + "/".join(segments)

    return Kind("path prefix", "PREFIX", parse, lambda value: value or "off")


def key_url() -> Kind:
    """An https URL, or http to this very machine; None when empty or `off`."""
    right = "write https://host/path (http only for localhost, 127.0.0.1 or [::1])"

    def parse(value: str) -> str | None:
        if not value or value.lower() in OFF_WORDS:
            return None
        scheme, host = _url_parts(value, right)
        if scheme == "http" and not _is_loopback(host):
            raise BadValueError("would fetch keys without TLS", right)
        return value

    return Kind("URL", "URL", parse, lambda value: "off" if value is None else value)


def page_url() -> Kind:
    """An http or https URL that browsers open; None when empty or `off`."""
    right = "write https://host/path"

    def parse(value: str) -> str | None:
        if not value or value.lower() in OFF_WORDS:
            return None
        _url_parts(value, right)
        return value

    return Kind("URL", "URL", parse, lambda value: "off" if value is None else value)


def _url_parts(value: str, right: str) -> tuple[str, str]:
    """Returns the scheme and the host of an http or https URL. Raises BadValueError."""
    if not value.isascii() or not value.isprintable() or " " in value:
        raise BadValueError("is not a URL", right)
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise BadValueError("is not a URL", right) from None
    if parts.scheme not in ("https", "http") or not host:
        raise BadValueError("is not a URL", right)
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise BadValueError("has a user, a password or a fragment", right)
    return parts.scheme, host


def origins() -> Kind:
    """Several origins as browsers write them: in lower case, without a path, and without a port that is the default."""
    right = "write https://host or https://host:port (http only for localhost)"

    def parse(value: str) -> str:
        match = ORIGIN.fullmatch(value.lower().removesuffix("/"))
        if match is None or (match["port"] and not 1 <= int(match["port"]) <= 65535):
            raise BadValueError(f"has an item that is no origin: {value!r}", right)
        scheme, host, port = match["scheme"], match["host"], match["port"]
        if scheme == "http" and not (_is_loopback(host.strip("[]")) or host.endswith(".localhost")):
            raise BadValueError(f"has an origin without TLS: {value!r}", right)
        default = "443" if scheme == "https" else "80"
        return f"{scheme}://{host}" + (f":{port}" if port and port != default else "")

    return Kind("list of origins", "ORIGIN,...", parse, list, is_list=True)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
