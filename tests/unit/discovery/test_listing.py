from __future__ import annotations

from router.discovery.listing import Listing


def test_what_is_known_already_is_told_apart_from_what_is_new_or_other() -> None:
    committed: list[tuple[set[str], list[str]]] = []
    listing: Listing[str, str] = Listing(
        key=str.upper, is_known="ab".__contains__, commit=lambda *told: committed.append(told)
    )

    for record in "acbd":
        listing.add(record)
    assert len(listing) == 4
    assert committed == []
    listing.commit()

    assert committed == [({"A", "B"}, ["c", "d"])]
