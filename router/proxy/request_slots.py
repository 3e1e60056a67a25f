"""RequestSlots: the places of limits that a request takes, and gives back when it has ended."""

from __future__ import annotations

from router.proxy.options import ProxyOptions
from router.proxy.request import Request
from router.proxy.slots import Slots
from router.routing.elsewhere import Elsewhere
from router.routing.endpoint import Endpoint


class RequestSlots:
    """Knows which limits concern a request, those of the pod's other workers included."""

    def __init__(
        self,
        options: ProxyOptions,
        *,
        requests_elsewhere: Elsewhere,
        tunnels_elsewhere: Elsewhere,
        connects_elsewhere: Elsewhere,
    ) -> None:
        self.requests_by_sandbox = Slots(
            limit=options.max_requests_per_sandbox,
            refusal="This sandbox has too many open requests (max-requests-per-sandbox).",
            elsewhere=requests_elsewhere,
        )
        self.tunnels_by_client = Slots(
            limit=options.max_tunnels_per_client,
            refusal="This client has too many open tunnels (max-tunnels-per-client).",
            elsewhere=tunnels_elsewhere,
        )
        self.connects_by_sandbox = Slots(
            limit=options.connect_per_sandbox,
            refusal="This sandbox has too many open TCP connections (connect-per-sandbox).",
            elsewhere=connects_elsewhere,
        )
        self.is_on = bool(options.max_requests_per_sandbox or options.max_tunnels_per_client)
        """Whether requests other than for raw connections take any."""

    def __repr__(self) -> str:
        return f"<RequestSlots on={self.is_on}>"

    def take(self, request: Request, endpoint: Endpoint) -> None:
        """Takes the places that the request needs; once, however often it is dialled for. Raises TooManyRequests."""
        if request.slots is not None:
            return
        taken = request.slots = []
        wanted = [(self.requests_by_sandbox, str(endpoint.ref))]
        if request.head.upgrade is not None:
            wanted.append((self.tunnels_by_client, request.outcome.client))
        if request.is_raw:
            wanted.append((self.connects_by_sandbox, str(endpoint.ref)))
        for slots, key in wanted:
            slot = slots.take(key)
            if slot is not None:
                taken.append(slot)
