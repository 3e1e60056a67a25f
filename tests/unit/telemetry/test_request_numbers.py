import pytest

from router.telemetry.namespace_labels import NamespaceLabels
from router.telemetry.request_numbers import Entry, RequestNumbers, new_histogram, observe


@pytest.fixture
def numbers():
    return RequestNumbers(labels=NamespaceLabels())


def key_of(outcome):
    return outcome.method, outcome.status, outcome.namespace


def test_an_ordinary_request_is_found_by_what_it_says_the_next_time(numbers, make_outcome):
    entry = numbers.entry_of(make_outcome())

    assert numbers.shortcuts[key_of(make_outcome())] is entry
    assert numbers.entry_of(make_outcome()) is entry
    assert len(numbers) == 1


def test_a_namespace_without_a_name_of_its_own_has_its_shortcut_too(make_outcome):
    numbers = RequestNumbers(labels=NamespaceLabels(wanted=()))

    one = numbers.entry_of(make_outcome(namespace="team-a"))
    other = numbers.entry_of(make_outcome(namespace="team-b"))

    assert one is other
    assert set(numbers.shortcuts.values()) == {one}


@pytest.mark.parametrize("facts", [{"method": b"BREW"}, {"status": 777}])
def test_what_strangers_invent_makes_no_shortcut(numbers, make_outcome, facts):
    numbers.entry_of(make_outcome(**facts))

    assert numbers.shortcuts == {}


def test_shortcuts_are_bounded(numbers, make_outcome, monkeypatch):
    monkeypatch.setattr("router.telemetry.request_numbers._MAX_SHORTCUTS", 3)

    for number in range(10):
        numbers.entry_of(make_outcome(namespace=f"ns-{number}"))

    assert len(numbers.shortcuts) <= 3
    assert len(numbers) == 10


def test_shortcuts_stay_the_same_dictionary(numbers, make_outcome):
    """Whoever counts holds on to it."""
    shortcuts = numbers.shortcuts
    numbers.entry_of(make_outcome())
    list(numbers.rows({"elsewhere"}))

    assert numbers.shortcuts is shortcuts


def test_an_observed_value_is_in_its_bucket_and_in_the_sum():
    series = new_histogram((1.0, 2.0))

    observe(series, (1.0, 2.0), 1.5)
    observe(series, (1.0, 2.0), 9.0)

    assert series == [0, 1, 1, 10.5]


def test_a_new_entry_is_zero():
    entry = Entry()

    assert (entry.allowed, entry.not_allowed, any(entry.durations)) == (0, {}, False)
