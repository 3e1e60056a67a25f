import pytest

from router.discovery.list_way import ListWay
from router.kube.api_client import ApiError


@pytest.mark.parametrize("status", [400, 405, 406, 415, 422, 501])
def test_a_server_that_knows_no_streams_is_never_asked_for_one_again(status: int) -> None:
    way = ListWay()

    assert way.is_refused(ApiError(status, "no"))
    way.is_complete()
    assert not way.is_stream


def test_a_server_that_fails_to_stream_is_asked_for_pages_once() -> None:
    way = ListWay()

    assert way.is_refused(ApiError(500, "no"))
    assert not way.is_stream
    way.is_complete()
    assert way.is_stream


@pytest.mark.parametrize("status", [0, 401, 403, 404, 410, 503])
def test_what_pages_would_meet_too_says_nothing_of_streams(status: int) -> None:
    way = ListWay()

    assert not way.is_refused(ApiError(status, "no"))
    assert not way.is_refused(ApiError(status, "no"))
    assert way.is_stream


def test_streams_that_are_throttled_again_and_again_give_way_to_pages() -> None:
    way = ListWay()

    assert not way.is_refused(ApiError(429, "later"))
    assert way.is_stream
    assert not way.is_refused(ApiError(429, "later"))
    assert not way.is_stream


def test_two_streams_without_an_end_give_way_to_pages_until_a_list_is_complete() -> None:
    way = ListWay()
    way.begins()
    assert way.is_stream
    way.begins()
    assert not way.is_stream
    assert repr(way) == "<ListWay pages broken=2>"
    way.is_complete()
    assert way.is_stream


def test_a_server_that_marks_no_end_is_never_asked_for_a_stream_again() -> None:
    way = ListWay()
    way.has_no_end()
    way.is_complete()

    assert not way.is_stream
