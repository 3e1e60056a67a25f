from __future__ import annotations

from router.discovery.tombstones import Tombstones


def test_an_event_from_before_the_end_is_late_and_a_later_one_is_not() -> None:
    tombstones = Tombstones()
    tombstones.add("uid", 7)

    assert tombstones.is_late("uid", 6)
    assert tombstones.is_late("uid", 7)
    assert not tombstones.is_late("uid", 8)
    assert not tombstones.is_late("other", 1)


def test_a_version_that_is_no_number_is_late() -> None:
    tombstones = Tombstones()
    tombstones.add("uid", 0)

    assert tombstones.is_late("uid", 0)


def test_the_latest_end_counts() -> None:
    tombstones = Tombstones()
    tombstones.add("uid", 7)
    tombstones.add("uid", 5)

    assert tombstones.is_late("uid", 6)


def test_what_was_discarded_is_alive() -> None:
    tombstones = Tombstones()
    tombstones.add("uid", 7)

    tombstones.discard("uid")

    assert "uid" not in tombstones
    assert not tombstones.is_late("uid", 1)


def test_the_oldest_is_forgotten_first() -> None:
    tombstones = Tombstones(capacity=2)
    for uid in ("a", "b", "a", "c"):
        tombstones.add(uid, 1)

    assert "a" in tombstones
    assert "b" not in tombstones
    assert len(tombstones) == 2
