"""The compiled scanner against its reference: over the kept corpus, and over heads that nobody thought of.

Runs in both forms, wherever the scanner was built. FUZZ_SECONDS is for how long (.ci/run: 60); a failure names the head, which
then belongs into corpus/.
"""

import os
import time

import pytest

from router.proxy.wire import request_head, scanning
from router.proxy.wire.head_lines import Action, Crossing, crossings
from router.proxy.wire.header_rules import Kind
from router.proxy.wire.request_head import RequestHead
from tests.fuzz.differential import Differ, compare_request, compare_response
from tests.fuzz.heads import CORPUS, Heads
from tests.fuzz.run import fuzz
from tests.fuzz.scanners import Scanners

REQUESTS = sorted(path.name for path in (CORPUS / "requests").iterdir())
RESPONSES = sorted(path.name for path in (CORPUS / "responses").iterdir())

LEFT_TO_PYTHON = {
    "both_lengths",
    "chunked_with_a_tab",
    "early_hints",
    "expect",
    "length_twice",
    "name_of_256",
    "no_content_with_length",
    "no_host",
    "nominates_a_header_named_close",
    "old",
    "routing_twice",
    "sixty_five_lines",
    "switching",
    "two_hosts",
    "upgrade_required",
    "websocket",
}


@pytest.fixture(scope="module")
def scanners() -> Scanners:
    try:
        return Scanners()
    except ImportError:
        pytest.skip("there is no compiled scanner: run `make compile`")


def head_of(scanners: Scanners, block: bytes, previous: RequestHead | None = None) -> RequestHead:
    head = compare_request(scanners, block, previous)
    assert head is not None
    return head


def compare_requests(scanners: Scanners, heads: Heads, *, count: int) -> None:
    for _ in range(count):
        compare_request(scanners, heads.request())


def block(*lines: str) -> bytes:
    return "\r\n".join(["GET /x HTTP/1.1", *lines, "", ""]).encode("latin-1")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_of_the_corpus_is_read_as_the_reference_reads_it(scanners, name):
    head = compare_request(scanners, (CORPUS / "requests" / name).read_bytes())
    assert (head is None) == (name in LEFT_TO_PYTHON)


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_of_the_corpus_is_read_as_the_reference_reads_it(scanners, name):
    head = compare_response(scanners, (CORPUS / "responses" / name).read_bytes())
    assert (head is None) == (name in LEFT_TO_PYTHON)


def test_heads_that_nobody_thought_of_are_read_as_the_reference_reads_them(scanners):
    seconds = float(os.environ.get("FUZZ_SECONDS", "3"))
    seed = time.time_ns() & 0xFFFFFFFF
    print(f"seed {seed}")
    tally = fuzz(scanners, seed=seed, seconds=seconds)
    print(tally)
    assert tally.taken > (tally.requests + tally.responses) / 10


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (Kind.ORIGIN, (Action.NOTHING, "")),
        (Kind.AUTHORIZATION, (Action.FIRST, "authorization")),
        (Kind.TE, (Action.NOTHING, "")),
        (Kind.SANDBOX_PORT, (Action.ASKED, 1)),
    ],
)
def test_the_fuzzer_finds_a_scanner_that_reads_a_kind_of_line_differently(
    scanners, monkeypatch, kind, action
):
    actions = {**request_head.ACTIONS, kind: action}
    monkeypatch.setattr(scanners, "requests", scanning.request_scanner(actions, request_head.KNOWN))
    with pytest.raises(Differ):
        compare_requests(scanners, Heads(1), count=100_000)


def test_every_prefix_of_a_head_is_left_to_python(scanners):
    whole = (CORPUS / "requests" / "bench_get").read_bytes()
    for end in range(len(whole)):
        assert not scanners.requests.read(RequestHead(), whole[:end], None)


def test_values_that_were_in_the_last_head_are_the_same_objects(scanners):
    lines = ["Host: box", "Authorization: Bearer abc", "X-Sandbox-ID: a", "X-Sandbox-Port: 80"]
    first = head_of(scanners, block(*lines))
    second = head_of(scanners, block(*lines, "Accept: */*"), first)
    assert second.host is first.host
    assert second.authorization is first.authorization
    assert second.asked is first.asked


@pytest.mark.parametrize(
    "lines",
    [
        ["X-Sandbox-ID: b", "X-Sandbox-Port: 80"],
        ["X-Sandbox-ID: a"],
        ["X-Sandbox-ID: a", "X-Sandbox-Port: 80", "X-Sandbox-UID: 1"],
        ["X-Sandbox-Port: 80"],
        [],
    ],
)
def test_what_was_asked_last_is_not_what_is_asked_now(scanners, lines):
    first = head_of(scanners, block("Host: box", "X-Sandbox-ID: a", "X-Sandbox-Port: 80"))
    second = head_of(scanners, block("Host: box", *lines), first)
    assert second.asked != first.asked
    assert second.asked == head_of(scanners, block("Host: box", *lines)).asked


def test_more_invented_names_than_it_remembers_are_still_read_right(scanners):
    for n in range(3000):
        head = head_of(
            scanners, block("Host: box", f"Name-{n}: 1", f"x-sandbox_i{n}: 1", "x_sandbox_id: 1")
        )
        assert head.kinds >> Kind.DROP & 1
    head = head_of(scanners, block("Host: box", "X-SANDBOX-id: a"))
    assert head.asked.sandbox_id == b"a"


def test_a_change_that_is_no_bytes_is_refused_before_anything_is_written(scanners):
    head = head_of(scanners, block("Host: box", "A: b"))
    assert head.scan is not None
    with pytest.raises(TypeError):
        head.scan.crossing(None, crossings({}), b"h", {1: "text"}, b"\r\n")


def test_a_table_of_crossings_that_is_too_short_is_refused(scanners):
    head = head_of(scanners, block("Host: box"))
    assert head.scan is not None
    with pytest.raises(ValueError, match="an entry for each kind"):
        head.scan.crossing(None, b"\0", b"h", None, b"\r\n")


def test_a_head_may_grow_in_every_line(scanners):
    lines = [f"Host{n}:x" for n in range(60)]
    head = head_of(scanners, block("Host:x", *lines))
    assert head.scan is not None
    changes = dict.fromkeys(range(1, 62), b"y" * 2000)
    table = crossings({Kind.HOST: Crossing.HOST})
    crossed = head.scan.crossing(b"GET / HTTP/1.1", table, b"h" * 250, changes, b"Via: x\r\n\r\n")
    assert crossed == b"GET / HTTP/1.1\r\n" + (b"y" * 2000 + b"\r\n") * 61 + b"Via: x\r\n\r\n"


def test_a_kind_that_has_no_room_in_a_set_is_refused(scanners):
    class Kinds(dict):
        def __missing__(self, name):
            return 64

    with pytest.raises(ValueError, match="kind 64"):
        scanners.module.ResponseScanner(Kinds(), [b"a"], [(0, "")], lambda names: frozenset())
