import pytest

from router.telemetry.namespace_labels import FORGOTTEN_AFTER_S, NamespaceLabels


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def labels(clock):
    return NamespaceLabels(clock=clock)


@pytest.mark.parametrize(
    ("words", "team_a", "team_b"),
    [
        (("all",), "team-a", "team-b"),
        (("none",), "other", "other"),
        ((), "other", "other"),
        (("team-a",), "team-a", "other"),
    ],
)
def test_the_setting_says_which_namespaces_are_named(words, team_a, team_b):
    labels = NamespaceLabels.of_setting(words)

    assert (labels.label("team-a"), labels.label("team-b")) == (team_a, team_b)


def test_what_the_table_does_not_know_stays_without_a_name():
    assert NamespaceLabels.of_setting(("none",)).label("") == ""


def test_beyond_the_limit_new_ones_share_a_label():
    labels = NamespaceLabels(limit=2)

    found = [labels.label(name) for name in ("a", "b", "c", "a")]

    assert found == ["a", "b", "other", "a"]


def test_a_namespace_is_forgotten_when_it_was_missing_for_long_enough(labels, clock):
    labels.label("a")
    labels.label("b")

    assert labels.forget_missing({"b"}) == []
    clock.now = FORGOTTEN_AFTER_S - 1
    assert labels.forget_missing({"b"}) == []
    clock.now += 1
    assert labels.forget_missing({"b"}) == ["a"]
    assert labels.forget_missing({"b"}) == []


def test_one_that_was_only_away_for_a_moment_is_kept(labels, clock):
    labels.label("a")
    labels.forget_missing(set())
    clock.now = 600.0
    labels.forget_missing({"a"})
    labels.forget_missing(set())

    clock.now += FORGOTTEN_AFTER_S - 1
    assert labels.forget_missing(set()) == []


def test_a_forgotten_one_makes_room_for_another(clock):
    labels = NamespaceLabels(limit=1, clock=clock)
    labels.label("a")
    labels.forget_missing(set())
    clock.now = FORGOTTEN_AFTER_S
    labels.forget_missing(set())

    assert labels.label("b") == "b"


def test_the_forgotten_are_told_to_others_for_a_while_or_until_they_are_back(labels, clock):
    for name in ("a", "b"):
        labels.label(name)
    labels.forget_missing(set())
    clock.now = FORGOTTEN_AFTER_S
    labels.forget_missing(set())

    assert sorted(labels.forgotten) == ["a", "b"]
    labels.label("a")
    assert labels.forgotten == ["b"]
    clock.now += FORGOTTEN_AFTER_S
    labels.forget_missing({"a"})
    assert labels.forgotten == []


def test_its_repr_says_how_many_there_are(labels):
    labels.label("a")
    labels.forget_missing(set())

    assert repr(labels) == "<NamespaceLabels named=1 missing=1>"
