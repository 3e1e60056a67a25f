"""SwitchWaker: wakes a sandbox by asking the demo, which starts its process; a Waker as the one that asks Kubernetes is."""

from __future__ import annotations

import asyncio

import aiohttp

from router.proxy.ports import WakeFailed
from router.routing.endpoint import Endpoint

ANSWER_S = 5.0


class SwitchWaker:
    """A proxy.ports.Waker over the demo's Unix socket."""

    def __init__(self, switch: str) -> None:
        """`switch` is the path of the socket."""
        self._switch = switch

    def __repr__(self) -> str:
        return f"<SwitchWaker {self._switch}>"

    async def wake(self, endpoint: Endpoint) -> bool:
        """Returns True when the sandbox's process was started for this, False when it was there. Raises WakeFailed."""
        namespace, name = endpoint.ref
        connector = aiohttp.UnixConnector(path=self._switch)
        try:
            async with (
                asyncio.timeout(ANSWER_S),
                aiohttp.ClientSession(connector=connector) as session,
                session.post(f"http://demo/wake/{namespace}/{name}") as response,
            ):
                said = (await response.text()).strip()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise WakeFailed(f"the demo did not answer: {error!r}", concerns_all=True) from error
        if response.status != 200:
            raise WakeFailed(f"the demo refuses: {response.status} {said}", concerns_all=False)
        return said == "started"
