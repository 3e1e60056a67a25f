from __future__ import annotations

import pytest

from router.discovery.watch_events import read_event
from router.discovery.watch_lines import BrokenWatchError
from router.kube.api_client import ApiError


def test_an_event_has_its_kind_its_object_and_the_version_that_it_brings() -> None:
    event = read_event(b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}')

    assert event == ("ADDED", {"metadata": {"resourceVersion": "7"}}, "7")
    assert not event.ends_list


@pytest.mark.parametrize(
    ("kind", "annotations", "ends"),
    [
        ("BOOKMARK", '{"k8s.io/initial-events-end":"true"}', True),
        ("BOOKMARK", '{"k8s.io/initial-events-end":"false"}', False),
        ("BOOKMARK", "null", False),
        ("ADDED", '{"k8s.io/initial-events-end":"true"}', False),
    ],
)
def test_only_the_servers_own_mark_ends_a_streamed_list(
    kind: str, annotations: str, ends: bool
) -> None:
    line = f'{{"type":"{kind}","object":{{"metadata":{{"annotations":{annotations}}}}}}}'

    assert read_event(line.encode()).ends_list is ends


def test_an_error_event_is_the_error_that_it_tells_of() -> None:
    with pytest.raises(ApiError) as raised:
        read_event(b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"old"}}')

    assert raised.value.is_expired


@pytest.mark.parametrize(
    "line",
    [b"", b"no JSON", b"[1]", b'"x"', b'{"type":"ADDED"}', b'{"type":"ADDED","object":7}', b"\xff"],
)
def test_what_is_no_event_breaks_the_watch(line: bytes) -> None:
    with pytest.raises(BrokenWatchError):
        read_event(line)
