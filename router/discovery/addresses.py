"""AddressBook: which live pods claim which IP address, so that a recycled address is noticed."""

from __future__ import annotations

from router.discovery.multimap import MultiMap
from router.discovery.pods import PodRecord

SHARED_HOSTS = frozenset({"127.0.0.1", "::1"})
"""Loopback as local test clusters report it for every pod; no network plugin hands these out."""


class AddressBook:
    """Remembers the claimants (pod UIDs) of each address; almost every address has one."""

    def __init__(self) -> None:
        self._claimants: MultiMap[str, str] = MultiMap()

    def __len__(self) -> int:
        return len(self._claimants)

    def __repr__(self) -> str:
        return f"<AddressBook {self._claimants!r}>"

    def claim(self, pod: PodRecord) -> None:
        """Notes a live pod's addresses; pods on their node's network share theirs rightly and claim nothing."""
        for address in _own_addresses(pod):
            self._claimants.add(address, pod.uid)

    def release(self, pod: PodRecord) -> None:
        """Forgets what claim(pod) noted for this very record."""
        for address in _own_addresses(pod):
            self._claimants.discard(address, pod.uid)

    def rivals(self, pod: PodRecord, address: str) -> tuple[str, ...]:
        """Returns the UIDs of the other pods that claim `address`."""
        if self._claimants.is_only(address, pod.uid) or not _is_exclusive(pod, address):
            return ()
        return tuple(uid for uid in self._claimants.get(address) if uid != pod.uid)


def _is_exclusive(pod: PodRecord, address: str) -> bool:
    return not pod.traits.shares_address and address not in SHARED_HOSTS


def _own_addresses(pod: PodRecord) -> list[str]:
    if not pod.traits.is_live:
        return []
    return [address for address in pod.addresses if _is_exclusive(pod, address)]
