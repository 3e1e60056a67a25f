"""AddressBook: which live pods claim which IP address, so that a recycled address is noticed."""

from __future__ import annotations

from router.discovery.pods import PodRecord

SHARED_HOSTS = frozenset({"127.0.0.1", "::1"})
"""Loopback as local test clusters report it for every pod; no network plugin hands these out."""


class AddressBook:
    """Remembers the claimants (pod UIDs) of each address.

    Almost every address has one: it is kept as a plain string, a tuple only while several pods claim it.
    """

    def __init__(self) -> None:
        self._claimants: dict[str, str | tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._claimants)

    def __repr__(self) -> str:
        contested = [key for key, held in self._claimants.items() if not isinstance(held, str)]
        return f"<AddressBook addresses={len(self)} contested={contested}>"

    def claim(self, pod: PodRecord) -> None:
        """Notes a live pod's addresses; pods on their node's network share theirs rightly and claim nothing."""
        for address in _own_addresses(pod):
            held = self._claimants.get(address)
            if held is None:
                self._claimants[address] = pod.uid
            elif isinstance(held, str):
                if held != pod.uid:
                    self._claimants[address] = (held, pod.uid)
            elif pod.uid not in held:
                self._claimants[address] = (*held, pod.uid)

    def release(self, pod: PodRecord) -> None:
        """Forgets what claim(pod) noted for this very record."""
        for address in _own_addresses(pod):
            held = self._claimants.get(address)
            if held == pod.uid:
                del self._claimants[address]
            elif isinstance(held, tuple):
                left = tuple(uid for uid in held if uid != pod.uid)
                self._claimants[address] = left[0] if len(left) == 1 else left

    def rivals(self, pod: PodRecord, address: str) -> tuple[str, ...]:
        """Returns the UIDs of the other pods that claim `address`."""
        held = self._claimants.get(address)
        if held is None or isinstance(held, str):
            return (
                ()
                if held is None or held == pod.uid or not _is_exclusive(pod, address)
                else (held,)
            )
        return tuple(uid for uid in held if uid != pod.uid) if _is_exclusive(pod, address) else ()


def _is_exclusive(pod: PodRecord, address: str) -> bool:
    return not pod.shares_address and address not in SHARED_HOSTS


def _own_addresses(pod: PodRecord) -> list[str]:
    if not pod.is_live:
        return []
    return [address for address in pod.addresses if _is_exclusive(pod, address)]
