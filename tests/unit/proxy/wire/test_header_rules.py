"""Which header crosses: by name alone, however it is spelt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.wire import header_rules as headers
from router.proxy.wire.header_rules import (
    REQUEST_KINDS,
    RESPONSE_KINDS,
    Kind,
    KindTable,
    may_be_trailer,
    nominated,
)

HOP_BY_HOP = (
    "Connection",
    "TE",
    "Upgrade",
    "Transfer-Encoding",
    "Content-Length",
    "Keep-Alive",
    "Proxy-Connection",
    "Proxy-Authorization",
    "Proxy-Authenticate",
    "Proxy-Authentication-Info",
)
VOUCHED_FOR = (
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Client-Cert",
    "X-Sandbox-ID",
    "X-Sandbox-Namespace",
    "X-Sandbox-Port",
    "X-Sandbox-UID",
    "X-Sandbox-Pod-IP",
    "X-Sandbox-Timeout",
    "X-Sandbox-Token",
    "X-Sandbox-Router-Error",
)
# What a Connection header must never take out: framing, identity, routing, and what browsers rely on.
SECURITY = (
    *HOP_BY_HOP,
    *VOUCHED_FOR,
    "Host",
    "Authorization",
    "Cookie",
    "Set-Cookie",
    "Origin",
    "Referer",
    "Content-Type",
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Frame-Options",
    "X-CSRF-Token",
    "X-XSRF-Token",
    "WWW-Authenticate",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Protocol",
    "Sec-Fetch-Site",
    "Cross-Origin-Opener-Policy",
    "Access-Control-Allow-Origin",
    "X-Forwarded-Port",
    "X-Sandbox-Whatever-Comes",
    "Traceparent",
    "Via",
)
OF_THE_APP = ("Accept", "User-Agent", "X-Api-Key", "Date", "X_Custom", "Trailer")

TOKEN_BYTES = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
tokens = st.lists(st.sampled_from(TOKEN_BYTES), min_size=1, max_size=20).map(bytes)


def spellings(names: tuple[str, ...]) -> st.SearchStrategy[bytes]:
    """Names in any mixture of upper and lower case."""

    def cased(name: str) -> st.SearchStrategy[bytes]:
        letters = [st.sampled_from([c.upper(), c.lower()]) for c in name]
        return st.tuples(*letters).map(lambda cs: "".join(cs).encode())

    return st.sampled_from(names).flatmap(cased)


@given(spellings((*HOP_BY_HOP, *VOUCHED_FOR, "Host", "Authorization")))
def test_a_name_that_needs_a_decision_is_known_in_any_case(name: bytes) -> None:
    assert REQUEST_KINDS[name] != Kind.FORWARD


@pytest.mark.parametrize("name", OF_THE_APP)
def test_an_app_header_crosses_both_ways(name: str) -> None:
    assert REQUEST_KINDS[name.encode()] == Kind.FORWARD
    assert RESPONSE_KINDS[name.encode()] == Kind.FORWARD


@given(
    tokens.filter(
        lambda name: (
            b"_" not in name
            and name.lower() not in headers._REQUEST
            and not name.lower().startswith(headers.CLAIM_PREFIXES)
        )
    )
)
def test_whatever_is_in_no_table_crosses(name: bytes) -> None:
    assert REQUEST_KINDS[name] == Kind.FORWARD


@given(
    st.sampled_from([n for n in (*HOP_BY_HOP, *VOUCHED_FOR) if "-" in n]).flatmap(
        lambda name: st.tuples(st.just(name), st.sets(st.integers(0, name.count("-") - 1)))
    )
)
def test_a_name_with_underscores_never_passes_for_the_real_one(case: tuple[str, set[int]]) -> None:
    name, places = case
    parts = name.split("-")
    spelt = parts[0] + "".join(
        ("_" if at in places else "-") + part for at, part in enumerate(parts[1:])
    )
    kind = REQUEST_KINDS[spelt.encode()]
    assert kind != Kind.FORWARD
    if places:
        assert kind == Kind.DROP, "nor is its value believed"


def test_an_answer_cannot_pose_as_the_routers_own() -> None:
    for name in (b"X-Sandbox-Router-Error", b"x_sandbox_router_error", b"X-Sandbox_Router-Error"):
        assert RESPONSE_KINDS[name] == Kind.DROP


def test_routing_kinds_stand_in_the_order_of_what_is_asked() -> None:
    kinds = [REQUEST_KINDS[name.encode()] for name in VOUCHED_FOR if name.startswith("X-Sandbox")]
    assert kinds[:6] == list(range(Kind.SANDBOX_ID, Kind.SANDBOX_TIMEOUT + 1))


def test_every_kind_is_below_the_count_that_tables_are_made_with() -> None:
    values = [v for k, v in vars(Kind).items() if isinstance(v, int) and k != "COUNT"]
    assert sorted(values) == list(range(Kind.COUNT))


@pytest.mark.parametrize("prefix", headers.CLAIM_PREFIXES)
def test_a_family_of_claims_is_known_by_how_its_names_begin(prefix: bytes) -> None:
    assert REQUEST_KINDS[prefix.title() + b"whatever"] == Kind.CLAIM
    assert REQUEST_KINDS[prefix.replace(b"-", b"_") + b"whatever"] == Kind.DROP
    assert nominated([prefix + b"whatever"]) == frozenset()
    assert not may_be_trailer(prefix + b"whatever")
    assert RESPONSE_KINDS[prefix + b"whatever"] == Kind.FORWARD


# --- what Connection may take out -----------------------------------------------------------


@pytest.mark.parametrize("name", SECURITY)
def test_a_protected_name_is_never_nominated(name: str) -> None:
    assert nominated([name.lower().encode()]) == frozenset()


@given(st.lists(st.one_of(tokens, spellings(SECURITY)).map(bytes.lower)))
def test_nominating_leaves_every_protected_name_alone(names: list[bytes]) -> None:
    protected = {name.lower().encode() for name in SECURITY}
    assert not nominated(names) & protected


def test_any_other_name_may_be_nominated() -> None:
    assert nominated([b"x-hop", b"authorization", b"x-other"]) == {b"x-hop", b"x-other"}


# --- trailers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *HOP_BY_HOP,
        *VOUCHED_FOR,
        "Host",
        "Authorization",
        "Cookie",
        "Set-Cookie",
        "Content-Encoding",
        "Content-Type",
        "Content-Range",
        "Trailer",
        "Location",
        "Cache-Control",
        "content_length",
        "X_Forwarded_For",
        "Sec-WebSocket-Accept",
    ],
)
def test_what_controls_the_message_is_no_trailer(name: str) -> None:
    assert not may_be_trailer(name.encode())
    assert not may_be_trailer(name.upper().encode())


@pytest.mark.parametrize("name", [b"X-Checksum", b"grpc-status", b"Server-Timing", b"ETag"])
def test_metadata_may_be_a_trailer(name: bytes) -> None:
    assert may_be_trailer(name)


# --- the memo -------------------------------------------------------------------------------


def test_a_client_that_invents_names_cannot_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_MEMO_LIMIT", 8)
    table = KindTable({b"te": Kind.TE}, lookalikes=frozenset())
    for number in range(100):
        assert table[b"X-%d" % number] == Kind.FORWARD
    assert len(table) == 8
    assert table[b"TE"] == Kind.TE, "a full memo still answers"


def test_a_long_name_is_not_remembered() -> None:
    table = KindTable({b"te": Kind.TE}, lookalikes=frozenset())
    assert table[b"X" * 65] == Kind.FORWARD
    assert len(table) == 0


@pytest.mark.parametrize("name", [b"Client-Cert", b"client-cert-chain", b"Client_Cert"])
def test_a_strangers_certificate_headers_do_not_cross(name: bytes) -> None:
    assert REQUEST_KINDS[name] == Kind.DROP


def test_a_spelling_is_classified_once() -> None:
    table = KindTable({b"te": Kind.TE}, lookalikes=frozenset())
    assert table[b"Te"] == Kind.TE
    assert dict(table) == {b"Te": Kind.TE}
