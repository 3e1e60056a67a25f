"""SignsOfLife: which ports of a pod answered lately, and at which address: what tells a dead host from a silent port."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from router.auth.authorizer import PoolKey

_LATELY_S: Final = 30.0
_PATIENT: Final = 0.5
"""After which part of the time to connect another port of a quiet pod is asked; and how much of it that may take."""
_ASKING: Final = 0.4
_MAX_PODS: Final = 16_384
_MAX_PORTS: Final = 64
_MAX_DIALS: Final = 4096


class Dialled(NamedTuple):
    """What the last dial of a pod's port came to."""

    ago_s: float
    failure: str
    """A reason from UPSTREAM_ERRORS, "" when the connection was accepted."""


class SignsOfLife:
    """Remembers, bounded, what was seen when pods were dialled. A refused port is a sign of life too."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ports: dict[str, dict[int, float]] = {}
        """By pod, when each port answered last."""
        self._address: dict[str, str] = {}
        self._dials: dict[PoolKey, tuple[float, str]] = {}
        """When each port was dialled last and what that came to, the latest at the end."""

    def __repr__(self) -> str:
        return f"<SignsOfLife pods={len(self._ports)}>"

    def answered(self, key: PoolKey, address: str = "") -> None:
        """Notes that the port accepted or refused a connection; `address` is where it accepted one."""
        pod, _, port = key
        ports = self._ports.get(pod)
        if ports is None:
            if len(self._ports) >= _MAX_PODS:
                self.forget(next(iter(self._ports)))
            ports = self._ports[pod] = {}
        elif port not in ports and len(ports) >= _MAX_PORTS:
            del ports[next(iter(ports))]
        ports[port] = self._clock()
        if address:
            self._address[pod] = address

    def dialled(self, key: PoolKey, failure: str = "") -> None:
        """Notes what a dial came to, for people who ask."""
        self._dials.pop(key, None)
        self._dials[key] = (self._clock(), failure)
        if len(self._dials) > _MAX_DIALS:
            del self._dials[next(iter(self._dials))]

    def last_seen(self, key: PoolKey) -> Dialled | None:
        """Returns what the last dial of the port came to, None when none is remembered."""
        noted = self._dials.get(key)
        return None if noted is None else Dialled(self._clock() - noted[0], noted[1])

    def silent(self, key: PoolKey) -> None:
        """Notes that a connection to the port was neither accepted nor refused."""
        self._ports.get(key[0], {}).pop(key[2], None)

    def is_alive(self, pod: str) -> bool:
        """Returns True when some port of the pod answered lately and was not silent since."""
        since = self._clock() - _LATELY_S
        return any(at >= since for at in self._ports.get(pod, {}).values())

    def port_to_ask(self, key: PoolKey) -> int | None:
        """Returns another port of the pod that answered once, when none has lately; None when there is nothing to ask."""
        pod, _, port = key
        if self.is_alive(pod):
            return None
        others = [(at, other) for other, at in self._ports.get(pod, {}).items() if other != port]
        return max(others)[1] if others else None

    async def ask(self, key: PoolKey, address: str, connect_timeout_s: float) -> None:
        """Notes whether a port accepts or refuses a connection, which carries nothing; waits first, as a dial beside it may do."""
        await asyncio.sleep(connect_timeout_s * _PATIENT)
        try:
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        except OSError:
            return  # no descriptor is left: that says nothing about the host
        try:
            sock.setblocking(False)
            async with asyncio.timeout(connect_timeout_s * _ASKING):
                await asyncio.get_running_loop().sock_connect(sock, (address, key[2]))
        except ConnectionRefusedError:
            self.answered(key)
        except OSError:
            self.silent(key)
        else:
            self.answered(key)
        finally:
            sock.close()

    def address_of(self, pod: str) -> str:
        """Returns the address that accepted a connection last, "" for none."""
        return self._address.get(pod, "")

    def forget(self, pod: str) -> None:
        """Forgets a pod that left the table."""
        self._ports.pop(pod, None)
        self._address.pop(pod, None)
