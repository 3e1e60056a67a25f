import enum
import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.telemetry import logs
from router.telemetry.logs import ROOT, TRACEBACK_LIMIT, JsonFormatter, TextFormatter, configure
from router.telemetry.repeats import FIRST, Repeats

RECORDS = logging.getLogger("sandbox_router.tests")


@pytest.fixture(autouse=True)
def logging_as_before():
    root, ours = logging.getLogger(), logging.getLogger(ROOT)
    before = list(root.handlers), root.level, ours.level
    yield
    for handler in root.handlers:
        if isinstance(handler, logs.LogHandler):
            handler.end()
    root.handlers[:], root.level = before[0], before[1]
    ours.setLevel(before[2])


@pytest.fixture
def json_log():
    sink = io.BytesIO()
    configure(level="info", log_format="json", sink=sink)
    return sink


@pytest.fixture
def text_log():
    sink = io.BytesIO()
    configure(level="info", log_format="text", sink=sink)
    return sink


def text_of(sink):
    logs.flush()
    return sink.getvalue().decode()


def records_of(sink):
    return [json.loads(line) for line in text_of(sink).splitlines()]


def only_record(sink):
    [record] = records_of(sink)
    return record


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
    RECORDS.info("said", extra={"fields": {"level": "quiet", "message": "other"}})

    found = only_record(json_log)
    assert (found["level"], found["message"]) == ("info", "said")
    assert (found["field_level"], found["field_message"]) == ("quiet", "other")


def test_what_went_wrong_has_one_key_with_and_without_an_exception(json_log):
    RECORDS.warning("file not read", extra={"fields": {"error": "no such file"}})
    try:
        raise ValueError("a bug")
    except ValueError:
        RECORDS.exception("failed", extra={"fields": {"error": "said beside it"}})

    plain, failed = records_of(json_log)
    assert plain["error"] == "no such file"
    assert (failed["error"], failed["field_error"]) == ("ValueError: a bug", "said beside it")


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

    [line] = text_of(text_log).splitlines()
    assert line.split("Z ", 1)[1] == 'WARNING tests watch ended resource=pods reason="a b" n=1'


def test_no_line_of_a_traceback_can_pass_for_a_record(text_log):
    forged = "boom\n2026-01-01T00:00:00.000Z ERROR   tests forged\x1b[2J\u2028x"

    log_a_failure(forged)

    first, *others = text_of(text_log).splitlines()
    assert first.split("Z ", 1)[1].startswith("ERROR   tests it failed error=")
    assert others
    assert all(line.startswith("  | ") for line in others)
    assert text_of(text_log).replace("\n", "").isprintable()


@given(any_text, any_text, any_text)
def test_whatever_a_record_holds_its_text_is_one_printable_line(message, key, value):
    told = logging.LogRecord("sandbox_router.tests", logging.INFO, "", 0, "%s", (message,), None)
    told.fields = {key: value}

    assert TextFormatter().format(told).isprintable()


# --- set-up ----------------------------------------------------------------------------------


def test_the_level_decides_what_is_said(json_log):
    configure(level="error", log_format="json", sink=json_log)

    RECORDS.warning("too quiet")
    RECORDS.error("loud enough")

    assert only_record(json_log)["message"] == "loud enough"


def test_libraries_are_heard_from_warnings_on(json_log):
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("trouble")

    assert only_record(json_log)["message"] == "trouble"


def test_configuring_again_does_not_say_everything_twice(json_log):
    configure(level="info", log_format="json", sink=json_log)

    RECORDS.info("once")

    assert only_record(json_log)["message"] == "once"


def test_handlers_of_others_stay(json_log):
    others = logging.NullHandler()
    logging.getLogger().addHandler(others)

    configure(level="info", log_format="json", sink=json_log)

    assert others in logging.getLogger().handlers


def test_standard_error_is_the_default(capsys):
    configure(level="info", log_format="json", sink=None)

    RECORDS.info("hello")
    logs.flush()

    assert json.loads(capsys.readouterr().err)["message"] == "hello"
    assert sys.stdout is not sys.stderr


@pytest.mark.parametrize(("level", "log_format"), [("loud", "json"), ("info", "xml")])
def test_an_unknown_level_or_format_is_refused(level, log_format):
    with pytest.raises(ValueError):
        configure(level=level, log_format=log_format)


# --- nobody waits for the log ------------------------------------------------------------------


@pytest.fixture
def undrained_pipe():
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb", buffering=0) as sink:
        yield reader, sink
        os.close(reader)


def test_a_pipe_that_nobody_reads_never_stops_who_logs_and_the_loss_is_counted(undrained_pipe):
    _, sink = undrained_pipe
    configure(level="info", log_format="json", sink=sink)

    for number in range(5000):  # ten megabytes in 5,000 kinds of message
        RECORDS.warning(f"{number} " + "x" * 2000)

    assert sum(logs.lost().values()) > 3000


def test_records_of_several_threads_arrive_whole(json_log):
    def log_some(number):
        for _ in range(FIRST):
            RECORDS.info(f"message of {number}")

    threads = [threading.Thread(target=log_some, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    said = Counter(record["message"] for record in records_of(json_log))
    assert said == {f"message of {number}": FIRST for number in range(8)}


def test_nothing_is_lost_at_the_end_of_a_process_that_just_logged():
    program = (
        "import logging, sys\n"
        "from router.telemetry.logs import configure\n"
        "configure(level='info', log_format='json')\n"
        "for number in range(200):\n"
        "    logging.getLogger('sandbox_router.x').warning(f'{number} ' + 'x' * 3000)\n"
        "sys.exit(3)\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)

    assert ended.returncode == 3
    lines = ended.stderr.splitlines()
    assert [json.loads(line)["message"].split()[0] for line in lines] == [
        str(number) for number in range(200)
    ]


def test_a_process_whose_log_nobody_reads_ends_all_the_same():
    program = (
        "import logging\n"
        "from router.telemetry.logs import configure\n"
        "configure(level='info', log_format='json')\n"
        "for number in range(200):\n"
        "    logging.getLogger('sandbox_router.x').warning(f'{number} ' + 'x' * 3000)\n"
    )

    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)

    with process:
        assert process.wait(timeout=60) == 0


# --- repeated messages -------------------------------------------------------------------------


def test_a_message_that_comes_again_and_again_is_counted_and_the_count_is_said(json_log):
    for _ in range(FIRST + 340):
        RECORDS.warning("handshake failed", extra={"fields": {"reason": "not_tls"}})
    [handler] = [h for h in logging.getLogger().handlers if isinstance(h, logs.LogHandler)]

    handler.end()

    *said, count = records_of(json_log)
    assert [record["message"] for record in said] == ["handshake failed"] * FIRST
    assert count["message"].startswith("handshake failed ... and 340 more in the last ")
    assert (count["level"], count["logger"], count["more"]) == (
        "warning",
        "sandbox_router.tests",
        340,
    )
    assert logs.lost()["repeated",] == 340


def test_the_count_is_said_though_nothing_more_is_logged():
    sink, now = io.BytesIO(), [0.0]
    handler = logs.LogHandler(
        sink=sink, repeats=Repeats(first=1, window_s=0.02), clock=lambda: now[0]
    )
    handler.setFormatter(JsonFormatter())
    record = logging.LogRecord("sandbox_router.tests", logging.INFO, "", 0, "again", None, None)

    handler.handle(record)
    handler.handle(record)
    now[0] = 1.0

    deadline = time.monotonic() + 10
    while b"1 more" not in sink.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    handler.end()
    assert b"again ... and 1 more in the last" in sink.getvalue()


def test_who_asks_for_debug_gets_every_record(json_log):
    configure(level="debug", log_format="json", sink=json_log)

    for _ in range(3 * FIRST):
        RECORDS.debug("detail")

    assert len(records_of(json_log)) == 3 * FIRST


def test_a_record_that_does_not_fit_its_own_message_is_said_and_stops_nothing(json_log):
    [handler] = [h for h in logging.getLogger().handlers if isinstance(h, logs.LogHandler)]

    # Past the logger, whose other handlers here would fail the test.
    handler.handle(logging.LogRecord("lib", logging.INFO, "", 0, "%d of %d", ("one",), None))

    found = only_record(json_log)
    assert found["message"] == "a log record can't be formatted"
    assert found["template"] == "%d of %d"


def test_its_repr_shows_what_was_left_out(json_log):
    [handler] = [h for h in logging.getLogger().handlers if isinstance(h, logs.LogHandler)]

    assert repr(handler).startswith("<LogHandler <Repeats kinds=0 left_out=0> <LineWriter")


# --- what Python itself says -------------------------------------------------------------------


def test_what_python_itself_would_print_are_records_too():
    program = (
        "import sys, threading, warnings\n"
        "from router.telemetry.logs import configure, take_all\n"
        "configure(level='info', log_format='json')\n"
        "take_all()\n"
        "warnings.warn('an old way', stacklevel=1)\n"
        "class Bad:\n"
        "    def __del__(self):\n"
        "        raise ValueError('in the end')\n"
        "bad = Bad()\n"
        "del bad\n"
        "def fail():\n"
        "    raise KeyError('x')\n"
        "thread = threading.Thread(target=fail, name='worker-7')\n"
        "thread.start()\n"
        "thread.join()\n"
        "raise OSError('no more')\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)

    warned, unraisable, thread, uncaught = (json.loads(line) for line in ended.stderr.splitlines())
    assert "an old way" in warned["message"]
    assert unraisable["error"] == "ValueError: in the end"
    assert "Bad.__del__" in unraisable["in"]
    assert (thread["error"], thread["thread"]) == ("KeyError: 'x'", "worker-7")
    assert (uncaught["level"], uncaught["error"]) == ("critical", "OSError: no more")
    assert ended.returncode == 1
