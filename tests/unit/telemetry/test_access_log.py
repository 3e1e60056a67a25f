import asyncio
import io
import json
import logging
import os
import re
import select
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.proxy.request import Outcome
from router.proxy.wire.trace_context import parse_traceparent
from router.telemetry.access_log import PATH_LIMIT, TEXT_LIMIT, AccessLog, trace_id_of

TRACEPARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"

FIELDS = [
    *("time", "method", "path", "status", "code", "total_s", "wait_s", "connect_s"),
    *("first_byte_s", "bytes_from_client", "bytes_to_client", "client", "principal"),
    *("namespace", "sandbox", "port", "pod_uid", "trace_id", "retries", "upstream_error"),
]


@pytest.fixture
async def log():
    access_log = AccessLog(sink=io.BytesIO())
    yield access_log
    await access_log.close()


@pytest.fixture
async def text_log():
    access_log = AccessLog(sink=io.BytesIO(), log_format="text")
    yield access_log
    await access_log.close()


def assert_is_one_safe_line(line: bytes) -> None:
    assert line.endswith(b"\n")
    assert line[:-1].decode().isprintable()
    assert len(line) <= select.PIPE_BUF


async def test_a_line_tells_everything_about_a_request(log, make_outcome):
    line = log.line(
        make_outcome(
            method=b"POST",
            path=b"/execute",
            started_at=1_790_000_000.25,
            status=502,
            code="sandbox_unreachable",
            total_s=1.5,
            wait_s=0.25,
            connect_s=1.0,
            first_byte_s=0.125,
            bytes_from_client=12,
            bytes_to_client=345,
            retries=2,
            upstream_error="connect_refused",
            error_reason="[Errno 111] 10.1.2.3:8888",
            traceparent=TRACEPARENT,
        )
    )

    assert json.loads(line) == {
        "time": "2026-09-21T14:13:20.250Z",
        "method": "POST",
        "path": "/execute",
        "status": 502,
        "code": "sandbox_unreachable",
        "total_s": 1.5,
        "wait_s": 0.25,
        "connect_s": 1.0,
        "first_byte_s": 0.125,
        "bytes_from_client": 12,
        "bytes_to_client": 345,
        "client": "192.0.2.7",
        "principal": "alice",
        "namespace": "team-a",
        "sandbox": "box",
        "port": 8888,
        "pod_uid": "0b5c",
        "trace_id": TRACE_ID,
        "retries": 2,
        "upstream_error": "connect_refused",
        "error_reason": "[Errno 111] 10.1.2.3:8888",
    }


async def test_every_line_has_the_same_fields_in_the_same_order(log, make_outcome):
    plain = list(json.loads(log.line(make_outcome())))
    careful = list(json.loads(log.line(make_outcome(principal="é" * 999))))

    assert plain == careful == FIELDS


async def test_a_step_that_never_happened_has_no_duration(log, make_outcome):
    found = json.loads(log.line(make_outcome()))

    assert (found["wait_s"], found["connect_s"], found["first_byte_s"]) == (None, None, None)


async def test_durations_are_seconds_to_the_microsecond(log, make_outcome):
    assert json.loads(log.line(make_outcome(total_s=1.23456789)))["total_s"] == 1.234567


async def test_the_query_is_never_written(log, make_outcome):
    for path in (
        b"/download?token=s3cret&x=/other?y",
        b"/download#s3cret",
        "/download#s3cr\xe9t".encode(),
    ):
        line = log.line(make_outcome(path=path))

        assert json.loads(line)["path"] == "/download"
        assert b"s3cr" not in line


@pytest.mark.parametrize(
    "at", [0.0, 0.9999, 1_790_000_000.0, 1_790_000_000.999, 1_790_000_000.9999, 4e9 + 0.5]
)
async def test_the_time_is_utc_with_milliseconds(log, make_outcome, at):
    expected = datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%S.")

    found = json.loads(log.line(make_outcome(started_at=at)))["time"]

    assert found == f"{expected}{int(at % 1 * 1000):03d}Z"


async def test_lines_out_of_order_keep_their_own_times(log, make_outcome):
    times = [
        json.loads(log.line(make_outcome(started_at=1_790_000_000.5 - back)))["time"]
        for back in (0, 60, 0, 1)
    ]

    assert [time[11:19] for time in times] == ["14:13:20", "14:12:20", "14:13:20", "14:13:19"]


# --- nothing from outside breaks a line ------------------------------------------------------

HOSTILE = [
    "a\nb",
    "\r\n{}",
    "\x1b]0;title\x07",
    "\x9b2J",
    "\x7f\x08",
    "a\u2028b",
    "\u202e",
    "\ud800",
    '"},{"status":200',
    "\\",
]


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("field", ["principal", "client", "error_reason", "pod_uid", "sandbox"])
async def test_hostile_text_stays_inside_its_field(make_outcome, log_format, hostile, field):
    log = AccessLog(sink=io.BytesIO(), log_format=log_format)

    line = log.line(make_outcome(**{field: hostile}))

    assert_is_one_safe_line(line)
    if log_format == "json":
        found = json.loads(line)
        assert found["status"] == 200
        assert found[field].isprintable()
    await log.close()


async def test_hostile_bytes_in_a_path_are_percent_encoded(log, make_outcome):
    line = log.line(make_outcome(path=b'/\xff\x1b[31m\x7f\n"\\ \xe2\x80\xa8'))

    assert_is_one_safe_line(line)
    assert json.loads(line)["path"] == "/%FF%1B[31m%7F%0A%22%5C%20%E2%80%A8"


async def test_a_foreign_name_is_readable(log, make_outcome):
    line = log.line(make_outcome(principal="zoë@example.com"))

    assert '"zoë@example.com"'.encode() in line


async def test_an_invented_method_is_written_safely(log, make_outcome):
    line = log.line(make_outcome(method=b"G\nT\xff" + b"X" * 900))

    assert_is_one_safe_line(line)
    assert json.loads(line)["method"].startswith(r"G\nT")


async def test_long_values_are_cut(log, make_outcome):
    found = json.loads(log.line(make_outcome(path=b"/" + b"p" * 9000, error_reason="e" * 9000)))

    assert len(found["path"]) == PATH_LIMIT
    assert len(found["error_reason"]) == TEXT_LIMIT
    assert found["path"].endswith("...")


@pytest.mark.parametrize("filler", ["\\", '"', "€", "\U0001f600"])
async def test_a_line_of_longest_values_fits_one_undivided_write(log, make_outcome, filler):
    texts = ("client", "principal", "namespace", "sandbox", "pod_uid", "error_reason", "code")

    line = log.line(make_outcome(path=b"/" + b"\xff" * 9000, **dict.fromkeys(texts, filler * 9000)))

    assert_is_one_safe_line(line)
    assert json.loads(line)["status"] == 200


any_text = st.text(st.characters(exclude_categories=[]), max_size=400)


@given(
    method=st.binary(min_size=1, max_size=20),
    path=st.binary(max_size=400),
    client=any_text,
    principal=any_text,
    reason=any_text,
    traceparent=st.none() | st.binary(max_size=60),
    log_format=st.sampled_from(["json", "text"]),
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_request_its_line_is_one_line(
    method, path, client, principal, reason, traceparent, log_format
):
    outcome = Outcome(method=method, path=path, client=client, started_at=1.0)
    outcome.principal = principal
    outcome.error_reason = reason
    outcome.traceparent = traceparent
    log = AccessLog(sink=io.BytesIO(), log_format=log_format)

    line = log.line(outcome)

    assert_is_one_safe_line(line)
    if log_format == "json":
        assert list(json.loads(line))[: len(FIELDS)] == FIELDS


# --- the form for people ---------------------------------------------------------------------


async def test_the_text_form_begins_with_what_happened(text_log, make_outcome):
    line = text_log.line(
        make_outcome(path=b"/a?b", bytes_to_client=7, error_reason="two words", retries=1)
    )

    assert line == (
        b"2026-09-21T14:13:20.250Z GET /a 200 0.004s team-a/box:8888 bytes_to_client=7"
        b' client=192.0.2.7 principal=alice pod_uid=0b5c retries=1 error_reason="two words"\n'
    )


async def test_the_text_form_of_a_request_that_named_nothing(text_log, make_outcome):
    line = text_log.line(
        make_outcome(status=400, namespace="", sandbox="", port=0, principal="", pod_uid="")
    )

    assert line == b"2026-09-21T14:13:20.250Z GET / 400 0.004s -/-:- client=192.0.2.7\n"


async def test_a_value_cannot_pretend_to_be_two(text_log, make_outcome):
    line = text_log.line(make_outcome(principal="mallory status=200", client='a"b'))

    assert b'principal="mallory status=200"' in line
    assert b'client="a\\"b"' in line


def test_the_namespace_is_the_one_that_was_asked_for_whether_or_not_it_exists(make_outcome):
    for known in ("", "team-a"):
        line = AccessLog(sink=io.BytesIO()).line(
            make_outcome(namespace=known, asked_namespace="team-b")
        )
        assert json.loads(line)["namespace"] == "team-b"


# --- the trace -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "traceparent", [TRACEPARENT, TRACEPARENT.replace(b"00-", b"cc-", 1) + b"-what-the-future-says"]
)
def test_a_valid_traceparent_gives_its_trace_id(traceparent):
    assert trace_id_of(traceparent) == TRACE_ID


@pytest.mark.parametrize(
    "traceparent",
    [
        b"",
        TRACEPARENT.upper(),
        TRACEPARENT + b"\n",
        b" " + TRACEPARENT,
        TRACEPARENT + b"-more",
        TRACEPARENT + b"00",
        TRACEPARENT.replace(b"00-", b"ff-", 1),
        TRACEPARENT.replace(b"4bf9", b"4bg9"),
        TRACEPARENT[:-1],
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01",
        TRACEPARENT.replace(b"00-", b"cc-", 1) + b"\x1b",
    ],
)
def test_anything_else_gives_none(traceparent):
    assert trace_id_of(traceparent) == ""


# --- where lines go --------------------------------------------------------------------------


async def test_lines_go_to_standard_output_by_itself(capfdbinary, make_outcome):
    log = AccessLog()

    log.write(make_outcome())
    await log.close()

    [line] = capfdbinary.readouterr().out.splitlines()
    assert json.loads(line)["path"] == "/"


async def test_drops_are_counted(make_outcome, caplog):
    reader, writer = os.pipe()
    os.close(reader)
    log = AccessLog(sink=writer)

    log.write(make_outcome())
    with caplog.at_level(logging.ERROR):
        await log.close()
    os.close(writer)

    assert log.dropped == 1


async def test_workers_that_share_a_pipe_do_not_mix_their_lines(make_outcome):
    reader, writer = os.pipe()
    logs = [AccessLog(sink=writer) for _ in range(4)]
    for number, log in enumerate(logs):
        for _ in range(300):
            log.write(make_outcome(principal=f"worker-{number}", path=b"/" + b"x" * 500))
    os.close(writer)
    closing = asyncio.gather(*(log.close(timeout_s=10) for log in logs))

    with open(reader, "rb") as file:
        lines = await asyncio.to_thread(file.readlines)
    await closing

    principals = [json.loads(line)["principal"] for line in lines]
    assert {name: principals.count(name) for name in set(principals)} == {
        f"worker-{number}": 300 for number in range(4)
    }


async def test_its_repr_says_what_is_pending(log):
    assert re.fullmatch(r"<AccessLog json <LineWriter pending=0B .*>>", repr(log))


@given(
    version=st.sampled_from([b"00", b"01", b"ff", b"0g"]),
    trace_id=st.text("0123456789abcdefG-", min_size=31, max_size=33) | st.just("0" * 32),
    parent_id=st.text("0123456789abcdef-", min_size=15, max_size=17) | st.just("0" * 16),
    flags=st.sampled_from(["00", "01", "0-", "1"]),
)
def test_a_trace_id_read_by_position_is_the_one_that_the_general_parser_finds(
    version, trace_id, parent_id, flags
):
    header = version + f"-{trace_id}-{parent_id}-{flags}".encode()
    parent = parse_traceparent(header)
    assert trace_id_of(header) == ("" if parent is None else parent.trace_id)


def test_a_request_that_a_public_port_let_in_says_so_and_no_other_mentions_it(make_outcome):
    log = AccessLog(sink=io.BytesIO())
    outcome = make_outcome()
    assert b"public" not in log.line(outcome)
    outcome.authz = "public"
    assert json.loads(log.line(outcome))["public"] is True


def test_a_request_that_woke_its_sandbox_says_so_and_no_other_mentions_it(make_outcome):
    log = AccessLog(sink=io.BytesIO())
    outcome = make_outcome()
    assert b"woke" not in log.line(outcome)
    outcome.woke = True
    assert json.loads(log.line(outcome))["woke"] is True
