"""Names of hosts: what whoever dials asks of a resolver, and how it says that a name leads nowhere."""

from __future__ import annotations

import enum
from typing import Protocol


class Unresolved(enum.Enum):
    """Why a name has no address to dial."""

    UNKNOWN = "unknown"
    """DNS says that there is no such name, or that it has no address."""
    REFUSED = "refused"
    """It leads to an address that can't be a sandbox's; asking again changes nothing."""
    UNANSWERED = "unanswered"
    """Nobody could be asked, or nobody answered in time."""


class NameNotResolved(Exception):
    """A name has no address to dial; `why` says which kind of failure it is, the text what happened."""

    def __init__(self, why: Unresolved, detail: str) -> None:
        self.why = why
        super().__init__(detail)


class Resolver(Protocol):
    """Finds the addresses behind a name."""

    async def resolve(self, name: str, *, deadline: float) -> list[str]:
        """Returns at least one address, all of them fit to be dialled. Raises NameNotResolved.

        Takes until `deadline` (seconds of time.monotonic()) at most.
        """
        ...

    def forget(self, name: str) -> None:
        """Hears that the addresses of a name did not answer: what is remembered of it may be out of date."""


class AddressesOnly:
    """The Resolver of a table that holds IP addresses alone: a name there leads nowhere."""

    def __repr__(self) -> str:
        return "<AddressesOnly>"

    async def resolve(self, name: str, *, deadline: float) -> list[str]:
        """Raises NameNotResolved."""
        raise NameNotResolved(Unresolved.UNKNOWN, f"{name} is not an IP address")

    def forget(self, name: str) -> None:
        """Has nothing to forget."""

    async def close(self) -> None:
        """Has nothing to end."""
