from router.telemetry.metric_family import Family, Kind, Source
from router.telemetry.metric_labels import OTHER

COUNTER = Family("x_total", Kind.COUNTER, "", ("a", "b"), (("1", "2"), ("3",)))


def test_a_counter_with_closed_labels_has_every_series_from_the_start():
    assert list(COUNTER.zero_series()) == [("1", "3"), ("2", "3")]


def test_what_grows_with_use_or_is_the_operating_systems_has_none():
    growing = Family("x_total", Kind.COUNTER, "", ("a",), (None,))
    process = Family("x_total", Kind.COUNTER, "", source=Source.PROCESS)
    gauge = Family("x", Kind.GAUGE, "", ("a",), (("1",),))

    assert [list(family.zero_series()) for family in (growing, process, gauge)] == [[], [], []]


def test_a_value_outside_of_its_set_is_other():
    assert COUNTER.closed(0, "2") == "2"
    assert COUNTER.closed(0, "9") == OTHER
    assert Family("x", Kind.GAUGE, "", ("a",), (None,)).closed(0, "9") == "9"
