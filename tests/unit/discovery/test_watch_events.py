from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.discovery.watch_events import read_event, without_managed_fields
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


# --- what is left out -----------------------------------------------------------------------

HOSTILE = st.text(alphabet='ab"\\[]{},: \u00e9', max_size=12) | st.sampled_from(
    [
        ',"managedFields":[',
        '}]},"spec":{',
        '}],"name":"',
        "x}]",
        '\\"managedFields":[',
        '"}]},"spec":{"hostNetwork":true',
    ]
)
FIELDS = st.recursive(
    st.just({}), lambda inner: st.dictionaries(HOSTILE.map("f:".__add__), inner, max_size=3)
)
MANAGED = st.lists(
    st.fixed_dictionaries({"manager": HOSTILE, "operation": HOSTILE, "fieldsV1": FIELDS}),
    max_size=3,
)


@given(
    managed=MANAGED,
    labels=st.dictionaries(HOSTILE, HOSTILE, max_size=3),
    name=HOSTILE,
    is_custom=st.booleans(),
)
def test_whatever_a_tenant_writes_nothing_but_the_managed_fields_is_left_out(
    managed: list[Any], labels: dict[str, str], name: str, is_custom: bool
) -> None:
    metadata: dict[str, Any] = {"name": name, "labels": labels, "ownerReferences": [{"uid": name}]}
    spec = {"containers": [{"env": [{"name": name}], "name": name}], "annotations": labels}
    item = {
        "metadata": metadata | {"managedFields": managed} if managed else metadata,
        "spec": spec,
        "status": {"conditions": [{"type": name}]},
    }
    # Custom resources come with their keys sorted, Kubernetes' own kinds in the order of their fields.
    option = orjson.OPT_SORT_KEYS if is_custom else 0
    line = orjson.dumps({"type": "ADDED", "object": item}, option=option)

    left = orjson.loads(without_managed_fields(line))

    assert left == {"type": "ADDED", "object": item | {"metadata": metadata}}


@pytest.mark.parametrize("is_custom", [True, False])
def test_managed_fields_are_not_decoded(is_custom: bool) -> None:
    metadata = {"labels": {}, "managedFields": [{"manager": "kubelet"}], "name": "box"}
    if not is_custom:
        metadata = {"name": "box", "labels": {}, "managedFields": [{"manager": "kubelet"}]}
    line = orjson.dumps({"type": "ADDED", "object": {"metadata": metadata, "spec": {}}})

    assert read_event(line).item == {"metadata": {"name": "box", "labels": {}}, "spec": {}}


def test_an_object_in_another_order_is_left_as_it_is() -> None:
    line = b'{"type":"ADDED","object":{"metadata":{"uid":"u","managedFields":[{}],"zone":1}}}'

    assert without_managed_fields(line) is line
    assert read_event(line).item["metadata"]["managedFields"] == [{}]
