"""The line of an ordinary request is the one that is made field by field."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.proxy.request import Outcome
from router.telemetry.access_log import AccessLog
from router.telemetry.usual_line import MOST_BYTES, UsualLines

TRACEPARENT = b"00-788768bcff2218cf8f7373abe8e394da-1234567812345678-01"


def ordinary(**facts: Any) -> Outcome:
    """Returns a GET that its sandbox answered, and in which nothing needs care; `facts` says otherwise."""
    made = Outcome(
        method=facts.pop("method", b"GET"),
        path=facts.pop("path", b"/api/kernels?session=5f0a"),
        client=facts.pop("client", "203.0.113.77"),
        started_at=1_790_000_000.123456,
    )
    made.status, made.namespace, made.sandbox, made.port = 200, "team-a", "notebook-7", 8888
    made.pod_uid, made.principal, made.total_s = "3b0c6c1e", "alice@example.com", 0.00412
    made.first_byte_s, made.bytes_to_client = 0.003123456, 1_234
    for name, fact in facts.items():
        setattr(made, name, fact)
    return made


def usual(outcome: Outcome) -> bytes | None:
    return UsualLines().line(outcome, "2026-09-21T14:13:20.123Z", "")


def field_by_field(log: AccessLog, outcome: Outcome) -> bytes:
    return log._careful_line(outcome, log._facts(outcome))


texts = st.sampled_from(["", "a", 'say "no"', "back\\slash", "é", "\x7f", "\ud800", "x" * 200])
durations = st.none() | st.floats(min_value=0, max_value=100_000)


@given(
    path=st.binary(max_size=60).map(lambda path: b"/" + path),
    method=st.sampled_from([b"GET", b"POST", b"BREW", b'G"T']),
    client=texts,
    principal=texts,
    namespace=texts,
    asked_namespace=texts,
    sandbox=texts,
    pod_uid=texts,
    token_id=texts,
    key_id=texts,
    code=st.sampled_from(["", "", "client_closed"]),
    error_reason=st.sampled_from(["", "", "ECONNRESET"]),
    upstream_error=st.sampled_from(["", "", "response_cut"]),
    traceparent=st.sampled_from([None, TRACEPARENT, b"00-x"]),
    total_s=st.floats(min_value=0, max_value=100_000),
    wait_s=durations,
    connect_s=durations,
    first_byte_s=durations,
    retries=st.integers(0, 3),
    port=st.integers(0, 65535),
    woke=st.sampled_from([False, False, True]),
)
@settings(max_examples=300)
def test_every_line_says_what_the_one_made_field_by_field_says(**facts: Any) -> None:
    log, outcome = AccessLog(sink=io.BytesIO()), ordinary(**facts)

    line, reference = log.line(outcome), field_by_field(log, outcome)

    assert json.loads(line) == json.loads(reference)
    assert list(json.loads(line)) == list(json.loads(reference))
    assert line.endswith(b"}\n")
    assert line.isascii() or line == reference


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"token_id": "5f0c6c7e"},
        {"token_id": "5f0c6c7e", "key_id": "k1"},
        {"wait_s": 1.5, "connect_s": 0.000009, "total_s": 3_600.25},
        {"method": b"DELETE", "status": 204, "retries": 1},
        {"principal": "", "sandbox": "", "port": 0},
    ],
)
def test_a_request_that_its_sandbox_answered_is_ordinary(facts: dict[str, Any]) -> None:
    line = usual(ordinary(**facts))

    assert line is not None
    assert json.loads(line)["path"] == "/api/kernels"


@pytest.mark.parametrize(
    "facts",
    [
        {"code": "client_closed"},
        {"error_reason": "ECONNRESET"},
        {"upstream_error": "response_cut"},
        {"woke": True},
        {"first_byte_s": None},
        {"method": b"BREW"},
        {"path": b"*"},
        {"path": b"http://user:secret@h/x"},
        {"path": b'/a"b'},
        {"path": b"/a\\b"},
        {"path": b"/a#fragment"},
        {"path": b"/\xc3\xa9"},
        {"path": b"/" + b"a" * MOST_BYTES},
        {"principal": 'say "no"'},
        {"principal": "\x1b[2J"},
        {"principal": "\ud800"},
        {"token_id": "é"},
        {"pod_uid": "\x7f"},
    ],
)
def test_whatever_needs_care_is_left_to_those_who_take_it(facts: dict[str, Any]) -> None:
    assert usual(ordinary(**facts)) is None


def test_what_it_remembers_of_callers_is_bounded() -> None:
    lines = UsualLines()
    for number in range(10_000):
        lines.line(ordinary(client=f"2001:db8::{number:x}"), "", "")

    assert int(repr(lines).removeprefix("<UsualLines known=").removesuffix(">")) <= 4096
