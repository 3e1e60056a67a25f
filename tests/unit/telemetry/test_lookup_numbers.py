import pytest

from router.routing.names import Unresolved
from router.telemetry.lookup_numbers import LookupNumbers
from router.telemetry.metric_labels import DNS_BUCKETS_S


def test_every_way_to_end_is_there_at_zero() -> None:
    histograms = LookupNumbers().histograms()

    assert {how for (how,) in histograms} == {
        "answered",
        "given_up",
        *(why.value for why in Unresolved),
    }
    assert not any(map(any, histograms.values()))


def test_a_lookup_counts_in_the_bucket_of_its_time() -> None:
    numbers = LookupNumbers()
    numbers.ended("answered", 0.003)
    numbers.ended("answered", 99.0)
    series = numbers.histograms()["answered",]

    assert series[DNS_BUCKETS_S.index(0.005)] == 1
    assert series[-2:] == [1, 99.003]
    assert repr(numbers).startswith("<LookupNumbers {'answered': 2,")


def test_an_end_that_nobody_knows_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        LookupNumbers().ended("maybe", 1.0)
