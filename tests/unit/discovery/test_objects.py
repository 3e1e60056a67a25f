from __future__ import annotations

import pytest

from router.discovery.objects import condition, controller, entries, section, text, version


@pytest.mark.parametrize("junk", [None, 7, "x", [1], True])
def test_what_is_no_object_reads_as_an_empty_one(junk: object) -> None:
    assert section({"key": junk}, "key") == {}


@pytest.mark.parametrize("junk", [None, 7, "x", {}, [1, "x", None]])
def test_what_is_no_list_of_objects_reads_as_an_empty_one(junk: object) -> None:
    assert entries({"key": junk}, "key") == []


@pytest.mark.parametrize("junk", [None, 7, {}, []])
def test_what_is_no_string_reads_as_an_empty_one(junk: object) -> None:
    assert text({"key": junk}, "key") == ""


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("7", 7),
        ("0", 0),
        ("", 0),
        ("x7", 0),
        ("-7", 0),
        ("1_0", 0),
        ("\u0667", 0),
        (7, 0),
        (None, 0),
    ],
)
def test_only_plain_decimal_versions_order_events(value: object, number: int) -> None:
    assert version({"resourceVersion": value}) == number


def test_an_object_without_owners_has_no_controller() -> None:
    assert controller({}, "agents.x-k8s.io") == ("", "", "")


def test_the_condition_of_a_type_is_found_among_others() -> None:
    status = {"conditions": [{"type": "A"}, {"type": "Ready", "status": "True"}]}

    assert condition(status, "Ready") == {"type": "Ready", "status": "True"}
    assert condition(status, "B") == {}
