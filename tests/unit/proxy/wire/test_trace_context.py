import pytest

from router.proxy.wire.forwarding import crossing_request_head
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import parse_request
from router.proxy.wire.trace_context import (
    CONNECT,
    FIRST_BYTE,
    WAIT,
    Trace,
    TraceHeaders,
    TraceParent,
    parse_traceparent,
)

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"
OURS = b"00-" + TRACE_ID.encode() + b"-aaaaaaaaaaaaaaaa-01"


def head_with(*lines):
    block = "\r\n".join(["GET / HTTP/1.1", "Host: x", *lines, "Accept: */*", "", ""])
    return parse_request(block.encode("latin-1"))


def sent(head):
    """Returns the header lines that the sandbox is sent, without what forwarding adds."""
    crossed = crossing_request_head(
        head,
        target=head.target,
        host=head.host,
        peer=Peer("10.0.0.9", is_tls=False, trusted=()),
        keep_authorization=True,
        origin_policy="keep",
    )
    lines = crossed.decode("latin-1").split("\r\n")[1:-2]
    return [line for line in lines if not line.startswith(("X-Forwarded-", "Via: "))]


# --- one header ------------------------------------------------------------------------------


def test_a_valid_traceparent_tells_its_ids_and_flags():
    assert parse_traceparent(PARENT.encode()) == TraceParent(TRACE_ID, PARENT_ID, 1)


@pytest.mark.parametrize("flags", range(256))
def test_flags_are_any_two_hexadecimal_digits(flags):
    parent = parse_traceparent(f"00-{TRACE_ID}-{PARENT_ID}-{flags:02x}".encode())
    assert parent is not None
    assert parent.flags == flags


@pytest.mark.parametrize("more", ["", "-", "-what-the-future-says"])
def test_a_later_version_may_say_more(more):
    parent = parse_traceparent(f"cc-{TRACE_ID}-{PARENT_ID}-01{more}".encode())
    assert parent == TraceParent(TRACE_ID, PARENT_ID, 1)


@pytest.mark.parametrize(
    "value",
    [
        "",
        TRACE_ID,
        PARENT + "-more",
        PARENT + "\n",
        " " + PARENT,
        PARENT.upper(),
        PARENT.replace("00-", "ff-", 1),
        PARENT.replace("00-", "0-", 1),
        PARENT.replace(TRACE_ID, "0" * 32),
        PARENT.replace(PARENT_ID, "0" * 16),
        PARENT.replace(TRACE_ID, TRACE_ID[:-1]),
        PARENT.replace("-01", "-1"),
        f"{PARENT}, {PARENT}",
    ],
)
def test_anything_else_is_invalid(value):
    assert parse_traceparent(value.encode()) is None


# --- a request's headers ---------------------------------------------------------------------


def test_a_request_without_context_gets_ours_and_nothing_else_changes():
    head = head_with()
    headers = TraceHeaders(head)
    assert (headers.parent, headers.state) == (None, "")
    headers.send(OURS)
    assert sent(head) == ["Host: x", "Accept: */*", f"traceparent: {OURS.decode()}"]


def test_a_valid_context_goes_on_from_us_with_its_state_untouched():
    head = head_with(f"TraceParent:  {PARENT} ", "Tracestate:a=1,b=2 ", "tracestate: c=3")
    headers = TraceHeaders(head)
    assert headers.parent == TraceParent(TRACE_ID, PARENT_ID, 1)
    assert headers.state == "a=1,b=2,c=3"
    headers.send(OURS)
    assert sent(head) == [
        "Host: x",
        f"traceparent: {OURS.decode()}",
        "Tracestate:a=1,b=2 ",
        "tracestate: c=3",
        "Accept: */*",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["traceparent: nonsense", "tracestate: a=1"],
        [f"traceparent: {PARENT}", f"traceparent: {PARENT}", "tracestate: a=1"],
        ["TRACESTATE: a=1", "tRaCeStAtE: b=2"],
        [f"traceparent: {PARENT}", f"tRaCePaReNt: 00-{'1' * 32}-{PARENT_ID}-01"],
    ],
    ids=["invalid", "twice", "state alone", "two that differ"],
)
def test_an_invalid_context_is_replaced_and_its_state_means_nothing(lines):
    head = head_with(*lines)
    headers = TraceHeaders(head)
    assert (headers.parent, headers.state) == (None, "")
    headers.send(OURS)
    assert sent(head) == ["Host: x", "Accept: */*", f"traceparent: {OURS.decode()}"]


def test_headers_that_only_begin_alike_are_not_taken_for_it():
    lines = ["Trace-Id: 1", "traceparent-x: 2", "tracestates: 3"]
    head = head_with(*lines)
    headers = TraceHeaders(head)
    headers.send(OURS)
    assert headers.parent is None
    assert sent(head) == ["Host: x", *lines, "Accept: */*", f"traceparent: {OURS.decode()}"]


def test_a_place_that_a_header_line_had_stays_its_own():
    head = head_with("traceparent: nonsense", "Content-Length: 0")
    TraceHeaders(head).send(OURS)
    assert sent(head) == [
        "Host: x",
        "Content-Length: 0",
        "Accept: */*",
        f"traceparent: {OURS.decode()}",
    ]


# --- steps -----------------------------------------------------------------------------------


def names_of(trace):
    return [step.name for step in trace.steps]


def test_steps_follow_each_other_in_time():
    trace = Trace()
    for name in (WAIT, CONNECT):
        trace.begins(name)
        trace.ends()
    trace.begins(FIRST_BYTE)
    assert names_of(trace) == [WAIT, CONNECT, FIRST_BYTE]
    wait, connect, first_byte = trace.steps
    assert wait.began_at <= wait.ended_at <= connect.began_at <= connect.ended_at
    assert connect.ended_at <= first_byte.began_at
    assert first_byte.ended_at is None


def test_a_wait_that_goes_on_is_one_step():
    trace = Trace()
    trace.begins(WAIT)
    trace.ends()
    began_at = trace.steps[0].began_at
    trace.begins(WAIT)
    assert names_of(trace) == [WAIT]
    assert trace.steps[0].began_at == began_at
    assert trace.steps[0].ended_at is None


def test_every_connect_that_failed_is_a_step_of_its_own():
    trace = Trace()
    trace.begins(CONNECT)
    trace.ends("connect_refused")
    trace.begins(CONNECT)
    trace.ends()
    assert [(step.name, step.error) for step in trace.steps] == [
        (CONNECT, "connect_refused"),
        (CONNECT, ""),
    ]
