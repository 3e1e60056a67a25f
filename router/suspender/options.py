"""Options: what the operator said to `suspend-idle`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from router.settings.groups import Address
from router.settings.places import LABEL
from router.settings.values import BadValueError, within


@dataclass(frozen=True, slots=True)
class ServiceName:
    """The Service whose pods are the routers."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Options:
    """Everything, checked. Exactly one of `routers` and `service` is given."""

    routers: tuple[Address, ...]
    service: ServiceName | None
    namespaces: tuple[str, ...]
    """Whose Sandboxes; empty: all."""
    interval_s: float
    lease_namespace: str
    lease_name: str
    kubeconfig: Path | None
    is_dry_run: bool
    metrics_bind: Address | None
    log_level: str
    log_format: str


def parse_service(text: str) -> ServiceName:
    """Returns NAMESPACE/NAME. Raises BadValueError."""
    namespace, slash, name = text.partition("/")
    if not (slash and LABEL.fullmatch(namespace) and LABEL.fullmatch(name)):
        raise BadValueError(f"is not a Service: {text!r}", "write NAMESPACE/NAME")
    return ServiceName(namespace, name)


def parse_routers(text: str) -> tuple[Address, ...]:
    """Returns the addresses of HOST:PORT,... without repetitions. Raises BadValueError."""
    return tuple(dict.fromkeys(_address(item.strip()) for item in text.split(",")))


def _address(text: str) -> Address:
    right = "write HOST:PORT, with [ ] around an IPv6 address"
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not (colon and bare and port.isascii() and port.isdigit() and len(port) <= 5):
        raise BadValueError(f"is not a router's address: {text!r}", right)
    if (":" in bare) is not is_bracketed or not bare.isascii() or any(c in bare for c in "/@ []"):
        raise BadValueError(f"is not a router's address: {text!r}", right)
    return Address(bare, within(int(port), 1, 65535))


def own_namespace(folder: Path, otherwise: str) -> str:
    """Returns the namespace of this pod's service account, `otherwise` outside of a pod."""
    try:
        return (folder / "namespace").read_text("ascii").strip() or otherwise
    except (OSError, ValueError):
        return otherwise


def process_identity(host: str, unique: str) -> str:
    """Returns the name under which this process holds a Lease; no two processes share one."""
    return f"{host}_{unique}"


def described(options: Options) -> Mapping[str, object]:
    """Returns what a log line at the start says."""
    asked = (
        f"Service {options.service.namespace}/{options.service.name}"
        if options.service is not None
        else ", ".join(map(str, options.routers))
    )
    return {
        "routers": asked,
        "sandboxes_of": list(options.namespaces) or ["*"],
        "interval_s": options.interval_s,
        "lease": "" if options.is_dry_run else f"{options.lease_namespace}/{options.lease_name}",
        "dry_run": options.is_dry_run,
    }
