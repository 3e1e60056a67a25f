import pytest

from router.timestamps import FORM, parse_timestamp


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-12-01T00:00:00Z", 1796083200.0),
        ("2026-12-01t00:00:00z", 1796083200.0),
        ("2026-12-01 00:00:00Z", 1796083200.0),
        ("2026-12-01 01:00:00+01:00", 1796083200.0),
        ("2026-11-30T19:00:00-05:00", 1796083200.0),
        ("2026-12-01T00:00:00.5Z", 1796083200.5),
        ("2026-12-01T00:00:00.500000000Z", 1796083200.5),
        ("1970-01-01T00:00:00Z", 0.0),
    ],
)
def test_a_time_in_any_spelling_of_rfc_3339_is_read(text, seconds):
    assert parse_timestamp(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-12-01",
        "2026-12-01T00:00:00",
        "2026-12-01T00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-12-01T24:00:01Z",
        "2026-12-01  00:00:00Z",
        "2026-12-01T00:00:00 Z",
        " 2026-12-01T00:00:00Z",
        "2026-12-01T00:00:00Z\n",
        "2026-12-01T00:00:00.Z",
        "2026-12-01T00:00:00+0100",
        "2026-12-01T00:00:00+25:00",
        "0000-01-01T00:00:00Z",
        "\u0662026-12-01T00:00:00Z",
        "20261201T000000Z",
        "1796083200",
        1796083200,
        1796083200.5,
        True,
        None,
        b"2026-12-01T00:00:00Z",
    ],
)
def test_what_is_no_time_with_date_and_zone_is_refused_with_the_form_to_write(text):
    with pytest.raises(
        ValueError, match=r"^must be a time with its zone, like 2026-12-01T00:00:00Z$"
    ):
        parse_timestamp(text)


def test_the_form_that_messages_show_can_be_read():
    assert parse_timestamp(FORM.rpartition(" ")[2])
