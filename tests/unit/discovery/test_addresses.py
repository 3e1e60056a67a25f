from __future__ import annotations

from typing import Any

import pytest

from router.discovery.addresses import AddressBook
from router.discovery.pods import PodRecord, parse_pod
from tests.fakes.cluster_objects import pod, sandbox

BOX = sandbox("box")


def claimant(uid: str, **shape: Any) -> PodRecord:
    return parse_pod(pod("box", of=BOX, uid=uid, **{"address": "10.0.0.1", **shape}))


def test_a_pod_alone_at_its_address_has_no_rivals() -> None:
    book = AddressBook()
    book.claim(claimant("a"))

    assert book.rivals(claimant("a"), "10.0.0.1") == ()
    assert book.rivals(claimant("b"), "10.0.0.1") == ("a",)


def test_pods_at_one_address_are_each_others_rivals() -> None:
    book = AddressBook()
    for uid in ("a", "b", "c", "b"):
        book.claim(claimant(uid))

    assert book.rivals(claimant("b"), "10.0.0.1") == ("a", "c")


def test_who_releases_an_address_is_nobodys_rival_any_more() -> None:
    book = AddressBook()
    for uid in ("a", "b", "c"):
        book.claim(claimant(uid))

    book.release(claimant("a"))
    book.release(claimant("c"))

    assert book.rivals(claimant("b"), "10.0.0.1") == ()
    assert book.rivals(claimant("x"), "10.0.0.1") == ("b",)


def test_nothing_is_left_when_all_have_released() -> None:
    book = AddressBook()
    book.claim(claimant("a", address=("10.0.0.1", "fd00::1")))
    assert len(book) == 2

    book.release(claimant("a", address=("10.0.0.1", "fd00::1")))

    assert len(book) == 0


def test_a_late_release_of_another_pod_takes_nothing_away() -> None:
    book = AddressBook()
    book.claim(claimant("a"))

    book.release(claimant("b"))

    assert book.rivals(claimant("x"), "10.0.0.1") == ("a",)


@pytest.mark.parametrize(
    "shape",
    [{"is_deleting": True}, {"phase": "Succeeded"}, {"phase": "Failed"}, {"host_network": True}],
)
def test_pods_that_have_no_address_of_their_own_claim_none(shape: dict[str, Any]) -> None:
    book = AddressBook()

    book.claim(claimant("a", **shape))

    assert book.rivals(claimant("b"), "10.0.0.1") == ()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_loopback_of_a_local_test_cluster_is_shared(address: str) -> None:
    book = AddressBook()
    book.claim(claimant("a", address=address))

    assert book.rivals(claimant("b", address=address), address) == ()
