"""Tests of reading numbers and words as they are written, and of writing them so that they read back the same."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.settings import values
from router.settings.values import BadValueError, Kind, nearest


def refusal(kind: Kind, raw: str | tuple[str, ...]) -> str:
    with pytest.raises(BadValueError) as caught:
        kind.read(raw)
    return str(caught.value)


# --- durations ---


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("180s", 180.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("250ms", 0.25),
        ("180", 180.0),
        ("1.5", 1.5),
        ("0.1h", 360.0),
        ("0", 0.0),
        ("off", 0.0),
        (" 10s\n", 10.0),
        ("010", 10.0),
    ],
)
def test_a_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert values.duration().read(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nan",
        "inf",
        "-1",
        "+5",
        "1_0",
        "1e3",
        "٣",
        "5 m",
        "5d",
        "1h30m",
        "s",
        ".5",
        "5.",
        "0x5",
        "\uff11",
    ],
)
def test_what_python_would_take_for_a_number_but_people_would_not_is_no_duration(text: str) -> None:
    expected = "is not a duration; write 180s, 5m, 1h, 250ms or plain seconds"
    assert refusal(values.duration(), text) == expected


def test_a_duration_below_a_millisecond_is_refused_so_that_it_never_means_no_limit() -> None:
    assert refusal(values.duration(), "0.0001") == "is too short; write at least 1ms, or 0"


def test_where_zero_has_no_meaning_it_is_refused_in_every_spelling() -> None:
    kind = values.duration(zero=False)

    assert refusal(kind, "0s") == "is too short; write at least 1ms"
    assert refusal(kind, "off").startswith("is not a duration")


def test_where_no_time_and_no_end_are_two_things_off_is_no_end() -> None:
    kind = values.duration(off_s=math.inf)

    assert [kind.read(text) for text in ("0", "0s", "off", "false", "no")] == [
        0.0,
        0.0,
        math.inf,
        math.inf,
        math.inf,
    ]
    assert [kind.show(kind.read(text)) for text in ("0", "off", "60s")] == ["0s", "off", "60s"]


def test_a_duration_has_a_longest_value() -> None:
    kind = values.duration(longest_s=3600)

    assert kind.read("60m") == 3600
    assert refusal(kind, "61m") == "is too long; write at most 1h"
    assert refusal(values.duration(), "9" * 16) == "is too long; write at most 87600h"


@given(st.one_of(st.just(0.0), st.floats(min_value=0.001, max_value=values.LONGEST_DURATION_S)))
def test_every_duration_reads_back_as_it_was_shown(seconds: float) -> None:
    kind = values.duration()

    assert kind.read(str(kind.show(seconds))) == seconds


@given(st.text(max_size=12))
def test_no_text_gives_a_duration_that_is_not_finite_and_positive_or_zero(text: str) -> None:
    try:
        seconds = values.duration().read(text)
    except BadValueError:
        return
    assert seconds == 0 or values.SHORTEST_DURATION_S <= seconds <= values.LONGEST_DURATION_S
    assert re.fullmatch(r"[0-9.]+(ms|s|m|h)?|off|no|false", text.strip(values.BLANKS).lower())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (180.0, "180s"),
        (3600.0, "1h"),
        (0.0015, "0.0015s"),
    ],
)
def test_a_duration_is_shown_in_its_usual_form(seconds: float, text: str) -> None:
    assert values.show_duration(seconds) == text


# --- numbers ---


@given(st.integers(min_value=0, max_value=values.LARGEST_INTEGER))
def test_every_number_reads_back_as_it_was_shown(number: int) -> None:
    kind = values.integer()

    assert kind.read(str(kind.show(number))) == number


@pytest.mark.parametrize("text", ["", "1_0", "+5", "-5", "5.0", "0x10", "٣", "1 0", "off", "²"])
def test_only_plain_decimal_digits_are_a_number(text: str) -> None:
    assert refusal(values.integer(), text) == "is not a whole number; write plain decimal digits"


def test_a_number_out_of_range_is_told_its_bound() -> None:
    kind = values.integer(least=1, most=65535)

    assert refusal(kind, "0") == "is too small; write at least 1"
    assert refusal(kind, "65536") == "is too large; write at most 65535"


def test_off_is_zero_where_zero_turns_a_limit_off() -> None:
    assert values.integer(zero_is_off=True).read("off") == 0
    assert values.byte_size(least=0, zero_is_off=True).read("false") == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("64KiB", 65536), ("1MiB", 1048576), ("2GiB", 2147483648)],
)
def test_a_size_is_read_as_bytes(text: str, size: int) -> None:
    assert values.byte_size(least=1).read(text) == size


@pytest.mark.parametrize("text", ["64KB", "64k", "64 KiB", "1.5MiB", "64kib", "-1", ""])
def test_other_units_of_size_are_refused_because_they_mean_different_things(text: str) -> None:
    expected = "is not a size in bytes; write 65536, 64KiB, 1MiB or 1GiB"
    assert refusal(values.byte_size(least=1), text) == expected


def test_a_worker_count_may_be_left_to_the_machine() -> None:
    kind = values.worker_count(most=8)

    assert kind.read("auto") is None
    assert kind.read("8") == 8
    assert refusal(kind, "9") == "is too large; write at most 8"
    assert kind.show(None) == "auto"


# --- words ---


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "True", "ON"])
def test_the_words_for_true(word: str) -> None:
    assert values.boolean().read(word) is True


@pytest.mark.parametrize("word", ["false", "0", "no", "off", "False"])
def test_the_words_for_false(word: str) -> None:
    assert values.boolean().read(word) is False


@pytest.mark.parametrize("word", ["", "2", "y", "t", "enabled", "none"])
def test_no_other_word_is_true_or_false(word: str) -> None:
    assert refusal(values.boolean(), word) == "is neither true nor false; write true or false"


def test_auto_is_neither_true_nor_false_yet() -> None:
    kind = values.truth_or_auto()

    assert [kind.read(word) for word in ("auto", "on", "no")] == [None, True, False]
    assert refusal(kind, "x") == "is neither auto, true nor false; write auto, true or false"


def test_a_choice_that_is_nearly_right_gets_a_suggestion() -> None:
    kind = values.choice("debug", "info", "warning", "error")

    assert kind.read("INFO") == "info"
    assert (
        refusal(kind, "warnin")
        == "is unknown (did you mean warning?); write debug, info, warning or error"
    )
    assert refusal(kind, "x") == "is unknown; write debug, info, warning or error"


@pytest.mark.parametrize("word", ["off", "false", "no", "False"])
def test_off_survives_templating_tools_that_turn_it_into_false(word: str) -> None:
    assert values.choice("off", "optional", "required").read(word) == "off"


def test_a_list_is_written_with_commas_or_as_a_list() -> None:
    kind = values.choices("jwt", "static", "mtls")

    assert kind.read(" jwt, static ") == ("jwt", "static")
    assert kind.read(("jwt", "static")) == ("jwt", "static")
    assert kind.read("jwt,jwt") == ("jwt",)


@pytest.mark.parametrize("raw", ["", " ", ()])
def test_an_empty_text_is_an_empty_list(raw: str | tuple[str, ...]) -> None:
    assert values.texts(metavar="X").read(raw) == ()


@pytest.mark.parametrize("raw", ["a,", ",a", "a,,b", ",", ("a", "")])
def test_an_empty_item_is_refused_so_that_a_slip_never_widens_a_list(
    raw: str | tuple[str, ...],
) -> None:
    expected = "has an empty item; remove the extra comma or the empty entry"
    assert refusal(values.texts(metavar="X"), raw) == expected


def test_a_comma_inside_of_a_yaml_item_is_part_of_it() -> None:
    assert values.texts(metavar="X").read(("a,b",)) == ("a,b",)


def test_a_list_in_the_place_of_one_value_is_refused() -> None:
    assert refusal(values.boolean(), ("true",)) == "is a list; write one value"


ITEMS = st.text(
    alphabet=st.characters(exclude_categories=["C", "Z"], exclude_characters=","), min_size=1
)


@given(st.lists(ITEMS, unique=True, min_size=1))
def test_every_list_reads_back_from_commas_and_from_yaml(items: list[str]) -> None:
    kind = values.texts(metavar="X")

    assert kind.read(",".join(items)) == tuple(items) == kind.read(tuple(items))


def test_text_must_be_printable() -> None:
    kind = values.text(metavar="X")

    assert kind.read("https://issuer") == "https://issuer"
    assert kind.read("") is None
    assert refusal(kind, "a\x00b") == "has control characters; write printable characters only"


# --- slips of the pen ---


def test_the_nearest_word_is_found_across_case_and_underscores() -> None:
    assert nearest("HTTP_BIND", ["http-bind", "https-bind"]) == "http-bind"
    assert nearest("frobnicate", ["http-bind", "https-bind"]) is None


def test_a_message_names_a_value_in_words() -> None:
    assert [values.in_words(shown) for shown in (True, 5, "off", ["a", "b"], [])] == [
        "true",
        "5",
        "off",
        "a,b",
        "(empty)",
    ]


# --- names ---


def test_header_names_are_read_as_a_server_compares_them() -> None:
    kind = values.header_names()
    assert kind.read("X-Auth-Request-*, x_user,X-User") == ("x-auth-request-*", "x-user")


@pytest.mark.parametrize("name", ["*", "x y", "x:", "*-x", "x**", "é"])
def test_what_is_no_name_is_no_header_or_cookie(name: str) -> None:
    for kind in (values.header_names(), values.cookie_names()):
        assert "has an item that is no name" in refusal(kind, name)


@pytest.mark.parametrize("name", ["Host", "content-*", "Transfer_Encoding", "h*"])
def test_a_header_that_requests_need_cannot_be_stripped(name: str) -> None:
    assert "which no request goes without" in refusal(values.header_names(), name)


def test_cookie_names_keep_their_case() -> None:
    assert values.cookie_names().read("_oauth2_proxy*,Sid") == ("_oauth2_proxy*", "Sid")


def test_a_header_s_name_is_one_that_a_proxy_can_mean() -> None:
    kind = values.header_name()
    assert kind.read("X-Auth-Request-Email") == "x-auth-request-email"
    assert kind.read("off") is None
    for wrong in ("X_User", "x user", "-x", "Authorization", "Host", "Cookie", "X-Forwarded-For"):
        with pytest.raises(BadValueError):
            kind.read(wrong)
