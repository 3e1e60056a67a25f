from __future__ import annotations

from router.discovery.recent_versions import RecentVersions


def test_an_event_from_before_the_latest_is_late_and_a_later_one_is_not() -> None:
    versions: RecentVersions[str] = RecentVersions()
    versions.note("key", 7)

    assert versions.is_late("key", 6)
    assert not versions.is_late("key", 7)
    assert not versions.is_late("key", 8)
    assert not versions.is_late("other", 1)
    assert versions.latest("key") == 7


def test_a_version_that_is_no_number_is_never_late() -> None:
    versions: RecentVersions[str] = RecentVersions()
    versions.note("key", 7)

    assert not versions.is_late("key", 0)


def test_what_was_forgotten_may_begin_anew() -> None:
    versions: RecentVersions[str] = RecentVersions()
    versions.note("key", 7)

    versions.clear()

    assert not versions.is_late("key", 1)


def test_what_changed_least_recently_is_forgotten_first() -> None:
    versions: RecentVersions[str] = RecentVersions(capacity=2)
    for key in ("a", "b", "a", "c"):
        versions.note(key, 5)

    assert versions.is_late("a", 1)
    assert not versions.is_late("b", 1)
    assert len(versions) == 2
