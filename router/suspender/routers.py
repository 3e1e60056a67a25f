"""Routers: which router processes have to be asked, all of them; by a Service's EndpointSlices or from a list."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from router.discovery.objects import entries, section, text
from router.kube.api_client import ApiError, JsonObject, KubernetesApi
from router.settings.groups import Address

ADMIN_PORT: Final = "admin"
TIMEOUT_S: Final = 5.0


class RoutersUnknown(Exception):
    """It can't be said which routers there are; the message says why."""


@dataclass(frozen=True, slots=True)
class Router:
    """One router: a name that no other has at the same time, and the addresses that all lead to it (`host:port`)."""

    name: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Routers:
    """All routers of a moment. Not `is_continuous`: since the last look one may have come and gone unseen.

    The first look is none behind another: it comes late, where the API server was away.
    """

    found: tuple[Router, ...]
    is_continuous: bool = True


class RouterFinder(Protocol):
    """Finds all routers."""

    async def find(self) -> Routers:
        """Returns them as they are now. Raises RoutersUnknown."""
        ...


class ListedRouters:
    """Routers at fixed addresses. Each address of a host name is one: a headless Service's name leads to several."""

    def __init__(self, addresses: tuple[Address, ...]) -> None:
        self._addresses = addresses
        self._has_looked = False

    def __repr__(self) -> str:
        return f"<ListedRouters {', '.join(map(str, self._addresses))}>"

    async def find(self) -> Routers:
        """Returns them, names resolved. Raises RoutersUnknown."""
        found: dict[str, Router] = {}
        for address in self._addresses:
            for place in await _resolved(address):
                found[place] = Router(place, (place,))
        is_continuous, self._has_looked = self._has_looked, True
        return Routers(tuple(found.values()), is_continuous=is_continuous)


async def _resolved(address: Address) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            infos = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        reason = str(error) or "no answer in time"
        raise RoutersUnknown(f"{address.host} can't be resolved: {reason}") from error
    # Of a name with both, one family: else every router would have to listen on both.
    four = [info for info in infos if info[0] is socket.AF_INET]
    return [str(Address(str(info[4][0]), address.port)) for info in four or infos]


class ServiceRouters:
    """The pods behind a Service, ready or not, and those that are ending."""

    def __init__(self, *, api: KubernetesApi, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._generations: dict[str, int] | None = None

    def __repr__(self) -> str:
        return f"<ServiceRouters {self._namespace}/{self._name}>"

    async def find(self) -> Routers:
        """Returns them as the API server has them at this moment. Raises RoutersUnknown."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self._namespace}/endpointslices"
        selector = {"labelSelector": f"kubernetes.io/service-name={self._name}"}
        try:
            async with asyncio.timeout(TIMEOUT_S):
                listed = await self._api.get_json(path, selector, read_timeout_s=TIMEOUT_S)
        except TimeoutError as error:
            raise RoutersUnknown("the API server gave no list of endpoints in time") from error
        except ApiError as error:
            raise RoutersUnknown(
                f"endpoints of {self._service} can't be listed: {error}"
            ) from error
        slices = entries(listed, "items")
        found = self._routers(slices)
        return Routers(found, is_continuous=self._is_continuous(slices))

    @property
    def _service(self) -> str:
        return f"Service {self._namespace}/{self._name}"

    def _routers(self, slices: list[JsonObject]) -> tuple[Router, ...]:
        addresses: dict[str, tuple[str, ...]] = {}
        for item in slices:
            endpoints = entries(item, "endpoints")
            port = self._admin_port(item) if endpoints else 0
            for endpoint in endpoints:
                places = _places(endpoint, port)
                if not places:
                    raise RoutersUnknown(f"an endpoint of {self._service} has no address")
                name = text(section(endpoint, "targetRef"), "uid") or places[0]
                # A pod with addresses of both families stands in a slice of each.
                addresses[name] = tuple(dict.fromkeys((*addresses.get(name, ()), *places)))
        return tuple(Router(name, places) for name, places in sorted(addresses.items()))

    def _admin_port(self, item: JsonObject) -> int:
        for port in entries(item, "ports"):
            number = port.get("port")
            if port.get("name") == ADMIN_PORT and isinstance(number, int):
                return number
        raise RoutersUnknown(
            f"{self._service} has endpoints without a port named {ADMIN_PORT}: name the Service of the "
            "routers' admin ports in --service"
        )

    def _is_continuous(self, slices: list[JsonObject]) -> bool:
        """Returns False when a slice was changed more than once since the last look, so that a change went unseen.

        The API server counts a slice's generation up with each change of its endpoints.
        """
        before, self._generations = self._generations, _generations(slices)
        if before is None:
            return False
        return before.keys() <= self._generations.keys() and all(
            0 < number <= before.get(uid, 0) + 1 for uid, number in self._generations.items()
        )


def _generations(slices: list[JsonObject]) -> dict[str, int]:
    """Returns each slice's generation by its UID; 0 for one without: then every look is one after a gap."""
    found = {}
    for item in slices:
        metadata = section(item, "metadata")
        number = metadata.get("generation")
        found[text(metadata, "uid")] = number if isinstance(number, int) else 0
    return found


def _places(endpoint: Mapping[str, object], port: int) -> list[str]:
    found = endpoint.get("addresses")
    hosts = [host for host in found if isinstance(host, str)] if isinstance(found, list) else []
    return [str(Address(host, port)) for host in hosts]
