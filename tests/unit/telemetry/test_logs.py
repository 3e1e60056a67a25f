import enum
import io
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.telemetry.logs import ROOT, TRACEBACK_LIMIT, JsonFormatter, TextFormatter, configure

RECORDS = logging.getLogger("sandbox_router.tests")


@pytest.fixture(autouse=True)
def logging_as_before():
    root, ours = logging.getLogger(), logging.getLogger(ROOT)
    before = list(root.handlers), root.level, ours.level
    yield
    root.handlers[:], root.level = before[0], before[1]
    ours.setLevel(before[2])


@pytest.fixture
def json_log():
    stream = io.StringIO()
    configure(level="info", log_format="json", stream=stream)
    return stream


@pytest.fixture
def text_log():
    stream = io.StringIO()
    configure(level="info", log_format="text", stream=stream)
    return stream


def only_record(stream):
    [line] = stream.getvalue().splitlines()
    return json.loads(line)


def log_a_failure(message):
    try:
        raise ValueError(message)
    except ValueError:
        RECORDS.exception("it failed")


# --- JSON ------------------------------------------------------------------------------------


def test_a_record_is_one_json_object(json_log):
    RECORDS.warning("watch ended early", extra={"fields": {"resource": "pods", "tries": 3}})

    found = only_record(json_log)
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning",
        "logger": "sandbox_router.tests",
        "message": "watch ended early",
        "resource": "pods",
        "tries": 3,
    }


def test_an_exception_has_its_sentence_and_its_traceback(json_log):
    log_a_failure("no such thing")

    found = only_record(json_log)
    assert found["error"] == "ValueError: no such thing"
    assert "test_logs.py" in found["traceback"]


def test_an_exception_without_text_is_named(json_log):
    log_a_failure("")

    assert only_record(json_log)["error"] == "ValueError"


def test_a_long_traceback_keeps_its_end(json_log):
    log_a_failure("x" * 100_000 + "the end")

    found = only_record(json_log)
    assert len(found["traceback"]) == TRACEBACK_LIMIT
    assert found["traceback"].endswith("the end\n")


def test_a_field_cannot_replace_what_the_record_says(json_log):
    RECORDS.info("said", extra={"fields": {"level": "quiet", "message": "other", "error": "e"}})

    found = only_record(json_log)
    assert (found["level"], found["message"]) == ("info", "said")
    assert (found["level_"], found["message_"], found["error_"]) == ("quiet", "other", "e")


class Colour(enum.Enum):
    RED = "red"


def test_fields_of_any_type_become_json(json_log):
    fields = {
        "enum": Colour.RED,
        "bytes": b"\xff\n",
        "nothing": None,
        "yes": True,
        "number": 1.5,
        "endless": float("inf"),
        "set": {1},
        "tuple": ("a", 2),
        "nested": {"a": {"b": [1]}},
        "object": ValueError("v"),
        5: "key",
    }

    RECORDS.info("all", extra={"fields": fields})

    found = only_record(json_log)
    assert found["enum"] == "red"
    assert found["bytes"] == r"\xff\n"
    assert found["nothing"] is None
    assert found["yes"] is True
    assert found["number"] == 1.5
    assert found["endless"] == "inf"
    assert found["set"] == [1]
    assert found["tuple"] == ["a", 2]
    assert found["nested"] == {"a": {"b": [1]}}
    assert found["object"] == "v"
    assert found["5"] == "key"


def test_a_field_that_contains_itself_ends(json_log):
    endless = []
    endless.append(endless)

    RECORDS.info("loop", extra={"fields": {"endless": endless, "many": list(range(9999))}})

    assert len(only_record(json_log)["many"]) == 100


def test_fields_that_are_no_mapping_are_left_out(json_log):
    RECORDS.info("odd", extra={"fields": "text"})

    assert only_record(json_log)["message"] == "odd"


def test_arguments_of_foreign_messages_are_filled_in(json_log):
    logging.getLogger("some.library").warning("%s of %d", "one", 2)

    assert only_record(json_log)["message"] == "one of 2"


any_text = st.text(st.characters(exclude_categories=[]), max_size=60)


@given(any_text, any_text, any_text)
def test_whatever_a_record_holds_it_is_one_ascii_line(message, key, value):
    """Not through the logger: what pytest captures of it must be encodable for its workers."""
    told = logging.LogRecord("sandbox_router.tests", logging.INFO, "", 0, "%s", (message,), None)
    told.fields = {key: value}
    try:
        raise ValueError(value)
    except ValueError:
        failure = sys.exc_info()
    failed = logging.LogRecord("sandbox_router.tests", logging.ERROR, "", 0, "no", None, failure)

    for record in (told, failed):
        line = JsonFormatter().format(record)
        assert line.isascii()
        assert line.isprintable()
        json.loads(line)


# --- text ------------------------------------------------------------------------------------


def test_the_text_form_is_one_line_for_people(text_log):
    RECORDS.warning("watch ended", extra={"fields": {"resource": "pods", "reason": "a b", "n": 1}})

    [line] = text_log.getvalue().splitlines()
    assert line.split("Z ", 1)[1] == 'WARNING tests watch ended resource=pods reason="a b" n=1'


def test_no_line_of_a_traceback_can_pass_for_a_record(text_log):
    forged = "boom\n2026-01-01T00:00:00.000Z ERROR   tests forged\x1b[2J\u2028x"

    log_a_failure(forged)

    first, *others = text_log.getvalue().splitlines()
    assert first.split("Z ", 1)[1].startswith("ERROR   tests it failed error=")
    assert others
    assert all(line.startswith("  | ") for line in others)
    assert text_log.getvalue().replace("\n", "").isprintable()


@given(any_text, any_text, any_text)
def test_whatever_a_record_holds_its_text_is_one_printable_line(message, key, value):
    told = logging.LogRecord("sandbox_router.tests", logging.INFO, "", 0, "%s", (message,), None)
    told.fields = {key: value}

    assert TextFormatter().format(told).isprintable()


# --- set-up ----------------------------------------------------------------------------------


def test_the_level_decides_what_is_said(json_log):
    configure(level="error", log_format="json", stream=json_log)

    RECORDS.warning("too quiet")
    RECORDS.error("loud enough")

    assert only_record(json_log)["message"] == "loud enough"


def test_libraries_are_heard_from_warnings_on(json_log):
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("trouble")

    assert only_record(json_log)["message"] == "trouble"


def test_configuring_again_does_not_say_everything_twice(json_log):
    configure(level="info", log_format="json", stream=json_log)

    RECORDS.info("once")

    assert only_record(json_log)["message"] == "once"


def test_handlers_of_others_stay(json_log):
    others = logging.NullHandler()
    logging.getLogger().addHandler(others)

    configure(level="info", log_format="json", stream=json_log)

    assert others in logging.getLogger().handlers


def test_standard_error_is_the_default(capsys):
    configure(level="info", log_format="json", stream=None)

    RECORDS.info("hello")

    assert json.loads(capsys.readouterr().err)["message"] == "hello"
    assert sys.stdout is not sys.stderr


@pytest.mark.parametrize(("level", "log_format"), [("loud", "json"), ("info", "xml")])
def test_an_unknown_level_or_format_is_refused(level, log_format):
    with pytest.raises(ValueError):
        configure(level=level, log_format=log_format)
