"""Names of hosts, where a table holds addresses alone."""

from __future__ import annotations

import time

import pytest

from router.routing.names import AddressesOnly, NameNotResolved, Unresolved


async def test_a_table_of_addresses_follows_no_name() -> None:
    resolver = AddressesOnly()
    with pytest.raises(NameNotResolved, match=r"box\.example") as caught:
        await resolver.resolve("box.example", deadline=time.monotonic() + 1)
    assert caught.value.why is Unresolved.UNKNOWN
    resolver.forget("box.example")
    await resolver.close()
