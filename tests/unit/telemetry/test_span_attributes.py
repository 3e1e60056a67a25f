import ipaddress
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace.span import TraceState

from router.proxy.request import Outcome
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import parse_request
from router.telemetry import span_attributes

STRANGER = Peer("203.0.113.7", is_tls=False, trusted=())
TRUSTED = Peer("10.0.0.1", is_tls=False, trusted=[ipaddress.ip_network("10.0.0.0/8")])


def head_of(*lines, host="router.example:8080", version="1.1"):
    return parse_request(
        "\r\n".join([f"GET / HTTP/{version}", f"Host: {host}", *lines, "", ""]).encode()
    )


def attributes(outcome, *lines, peer=STRANGER, **head):
    return span_attributes.of_request(head_of(*lines, **head), peer, outcome)


def test_a_plain_request_says_what_the_conventions_ask_for(make_outcome):
    outcome = make_outcome(
        path=b"/api/run?token=secret", bytes_from_client=3, bytes_to_client=5, first_byte_s=0.001
    )
    assert attributes(outcome) == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "url.path": "/api/run",
        "network.protocol.version": "1.1",
        "client.address": "192.0.2.7",
        "server.address": "router.example",
        "server.port": 8080,
        "sandbox.namespace": "team-a",
        "sandbox.name": "box",
        "sandbox.port": 8888,
        "sandbox.pod_uid": "0b5c",
        "sandbox_router.bytes_from_client": 3,
        "sandbox_router.bytes_to_client": 5,
    }


def test_what_never_happened_is_left_out(make_outcome):
    outcome = make_outcome(status=0, namespace="", sandbox="", port=0, pod_uid="")
    names = attributes(outcome).keys()
    assert not [name for name in names if name.startswith("sandbox.")]
    assert "http.response.status_code" not in names


def test_the_namespace_is_the_one_that_was_asked_for(make_outcome):
    outcome = make_outcome(namespace="", asked_namespace="nobody-knows")
    assert attributes(outcome)["sandbox.namespace"] == "nobody-knows"


def test_who_called_is_not_told(make_outcome):
    outcome = make_outcome(principal="alice@example.com")
    said = attributes(outcome, "Authorization: Bearer s3cret", "Cookie: a=s3cret")
    assert "alice" not in repr(said)
    assert "s3cret" not in repr(said)


@pytest.mark.parametrize(
    ("host", "address", "port"),
    [
        ("router.example", "router.example", None),
        ("router.example:80", "router.example", 80),
        ("router.example:", "router.example", None),
        ("192.0.2.1:8080", "192.0.2.1", 8080),
        ("[2001:db8::1]", "2001:db8::1", None),
        ("[2001:db8::1]:8443", "2001:db8::1", 8443),
    ],
)
def test_the_host_header_is_the_servers_address_and_port(make_outcome, host, address, port):
    said = attributes(make_outcome(), host=host)
    assert (said["server.address"], said.get("server.port")) == (address, port)


def test_a_trusted_proxy_is_believed_about_host_and_scheme(make_outcome):
    lines = ("X-Forwarded-Host: public.example, inner", "X-Forwarded-Proto: https")
    said = attributes(make_outcome(), *lines, peer=TRUSTED)
    assert (said["server.address"], said["url.scheme"]) == ("public.example", "https")
    assert "server.port" not in said


def test_a_stranger_is_not_believed_about_host_and_scheme(make_outcome):
    lines = ("X-Forwarded-Host: public.example", "X-Forwarded-Proto: https")
    said = attributes(make_outcome(), *lines)
    assert (said["server.address"], said["url.scheme"]) == ("router.example", "http")


def test_a_tls_listener_means_https(make_outcome):
    peer = Peer("203.0.113.7", is_tls=True, trusted=())
    assert attributes(make_outcome(), peer=peer)["url.scheme"] == "https"


def test_an_old_client_is_known_by_its_version(make_outcome):
    assert attributes(make_outcome(), version="1.0")["network.protocol.version"] == "1.0"


@pytest.mark.parametrize("method", [b"PROPFIND", b"get", b"X" * 300])
def test_invented_methods_make_no_new_names(make_outcome, method):
    said = attributes(make_outcome(method=method))
    assert said["http.request.method"] == "_OTHER"
    assert method.decode().startswith(said["http.request.method_original"].removesuffix("..."))
    assert len(said["http.request.method_original"]) <= 32
    assert span_attributes.span_name(method) == "HTTP sandbox"


def test_the_name_of_a_span_is_its_method_and_what_it_is_for():
    assert span_attributes.span_name(b"DELETE") == "DELETE sandbox"


# --- how it ended ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "error_type"),
    [
        ({"status": 200}, None),
        ({"status": 404}, None),
        ({"status": 403, "code": "forbidden"}, None),
        ({"status": 499, "code": "client_closed"}, None),
        ({"status": 200, "code": "client_closed"}, None),
        ({"status": 101, "is_tunnel": True, "code": "tunnel_idle"}, None),
        ({"status": 500}, "500"),
        ({"status": 504, "code": "sandbox_timeout"}, "sandbox_timeout"),
        ({"status": 200, "code": "response_cut"}, "response_cut"),
        ({"status": 101, "is_tunnel": True, "code": "tunnel_cut"}, "tunnel_cut"),
    ],
)
def test_only_failures_of_the_server_are_errors(make_outcome, facts, error_type):
    outcome = make_outcome(**facts)
    said = attributes(outcome)
    assert said.get("error.type") == error_type
    assert span_attributes.is_error(outcome) == (error_type is not None)
    assert said.get("sandbox_router.code", "") == facts.get("code", "")
    assert ("sandbox_router.is_tunnel" in said) == bool(facts.get("is_tunnel"))


def test_retries_are_told_when_there_were_any(make_outcome):
    assert "sandbox_router.retries" not in attributes(make_outcome())
    assert attributes(make_outcome(retries=2))["sandbox_router.retries"] == 2


def test_the_reason_of_an_error_is_bounded_and_printable(make_outcome):
    assert span_attributes.description(make_outcome()) is None
    text = span_attributes.description(make_outcome(error_reason="a\x1b\n" * 1000))
    assert text.isprintable()
    assert len(text) == 256


@given(
    method=st.binary(max_size=50),
    path=st.binary(max_size=3000),
    client=st.text(max_size=400),
    host=st.binary(max_size=400),
    reason=st.text(max_size=400),
)
def test_whatever_bytes_a_request_is_made_of_its_span_is_printable_and_bounded(
    method, path, client, host, reason
):
    head = head_of()
    head.forwarded_host = host
    outcome = Outcome(method=method, path=path, client=client, started_at=0.0)
    outcome.error_reason = reason
    said = span_attributes.of_request(head, TRUSTED, outcome)
    texts = [value for value in said.values() if isinstance(value, str)]
    texts.append(span_attributes.description(outcome) or "")
    assert all(text.isprintable() and len(text) <= 1024 for text in texts)
    assert all(len(value) <= 256 for name, value in said.items() if name == "client.address")
    "".join(texts).encode()


# --- tracestate ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "entries"),
    [
        ("", []),
        ("a=1", [("a", "1")]),
        ("vendor@system=x, ,b=2\t", [("vendor@system", "x"), ("b", "2")]),
        ("a=1,a=2", []),
        ("A=1", []),
        ("a=", []),
        ("a", []),
        ("a=1=2", []),
        ("a=é", []),
        (",".join(f"k{n}=1" for n in range(33)), []),
    ],
)
def test_a_tracestate_is_taken_as_a_whole_or_not_at_all(state, entries):
    assert span_attributes.state_entries(state) == entries


_entry = st.from_regex(r"[a-z0-9@_\-*/]{1,20}=[\x20-\x7e]{0,20}", fullmatch=True)


@given(st.one_of(st.text(max_size=80), st.lists(_entry, max_size=5).map(",".join)))
def test_the_sdk_finds_nothing_to_warn_of_in_what_was_taken(state):
    entries = span_attributes.state_entries(state)
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    sdk = logging.getLogger("opentelemetry.trace.span")
    sdk.addHandler(handler)
    try:
        taken = TraceState(entries)
    finally:
        sdk.removeHandler(handler)
    assert records == []
    assert list(taken.items()) == entries
