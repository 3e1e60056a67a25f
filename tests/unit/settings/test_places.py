"""Tests of reading addresses, networks, domains, paths, files and URLs."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.settings import places
from router.settings.groups import Address
from router.settings.values import BadValueError, Kind

BIND_RIGHT = "write :8080 (every address), 127.0.0.1:8080, [::1]:8080 or off"


def refusal(kind: Kind, text: str) -> str:
    with pytest.raises(BadValueError) as caught:
        kind.read(text)
    return str(caught.value)


# --- addresses to listen on ---


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("[::1]:8080", Address("::1", 8080)),
        ("localhost:80", Address("localhost", 80)),
        ("off", None),
        ("false", None),
        ("no", None),
    ],
)
def test_an_address_to_listen_on(text: str, address: Address | None) -> None:
    assert places.bind().read(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8080",
        "::1:8080",
        "a:b:80",
        "127.0.0.1",
        ":",
        ":\uff18\uff10",
        ":+80",
        ":8_0",
        "[::1]",
        "unix:/run/x",
    ],
)
def test_what_is_not_an_address_is_told_the_forms(text: str) -> None:
    assert refusal(places.bind(), text) == f"is not an address to listen on; {BIND_RIGHT}"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("example.com:80", 4),
        ("256.0.0.1:80", 4),
        ("*:80", 4),
        ("[127.0.0.1]:80", 6),
        ("[]:80", 6),
        ("[localhost]:80", 6),
    ],
)
def test_a_host_must_be_an_address_of_the_right_family(text: str, version: int) -> None:
    assert (
        refusal(places.bind(), text)
        == f"has a host that is not an IPv{version} address; {BIND_RIGHT}"
    )


def test_a_port_has_a_highest_value() -> None:
    assert refusal(places.bind(), ":65536") == "is too large; write at most 65535"


HOSTS = st.one_of(
    st.just(""), st.just("localhost"), st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str)
)


@given(st.builds(Address, HOSTS, st.integers(min_value=0, max_value=65535)))
def test_every_address_reads_back_as_it_was_shown(address: Address) -> None:
    kind = places.bind()

    assert kind.read(str(kind.show(address))) == address


@given(st.text(max_size=20))
def test_no_text_gives_an_address_that_could_not_be_listened_on(text: str) -> None:
    try:
        address = places.bind().read(text)
    except BadValueError:
        return
    if address is not None:
        assert 0 <= address.port <= 65535
        assert address.host in ("", "localhost") or ipaddress.ip_address(address.host)


# --- networks ---


@given(st.lists(st.one_of(st.ip_addresses().map(ipaddress.ip_network)), unique=True))
def test_every_list_of_networks_reads_back_as_it_was_shown(networks: list[object]) -> None:
    kind = places.network()
    shown = kind.show(tuple(networks))
    assert isinstance(shown, list)

    assert kind.read(tuple(shown)) == tuple(networks) == kind.read(",".join(shown))


def test_a_network_with_host_bits_gets_the_network_that_was_meant() -> None:
    expected = "has a network with host bits set: '10.1.2.3/8'; did you mean 10.0.0.0/8?"
    assert refusal(places.network(), "192.168.0.0/16, 10.1.2.3/8") == expected


@pytest.mark.parametrize("text", ["none", "10.0.0.0/33", "10.0.0", "fe80::%eth0/64", "10.0.0.0/٨"])
def test_what_is_not_a_network_is_named(text: str) -> None:
    expected = f"has an item that is not a network: {text!r}; write 10.0.0.0/8 or fd00::/8"
    assert refusal(places.network(), text) == expected


# --- names ---


@pytest.mark.parametrize("text", ["", "Team", "-a", "a-", "a.b", "a_b", "a" * 64, "a\n-", "é"])
def test_a_namespace_is_an_rfc_1123_label(text: str) -> None:
    expected = (
        f"is not a namespace: {text!r}; write 1 to 63 lower case letters, digits and inner hyphens"
    )
    assert refusal(places.label(), text) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Sandboxes.Example.COM", "sandboxes.example.com"),
        ("example.com.", "example.com"),
        ("localhost", "localhost"),
        ("off", ""),
        ("", ""),
    ],
)
def test_a_domain_is_taken_in_lower_case_without_a_final_dot(text: str, name: str) -> None:
    assert places.domain(optional=True).read(text) == name


@pytest.mark.parametrize(
    "text",
    [
        ".example.com",
        "*.example.com",
        "a..b",
        "example.com:80",
        "10.0.0.1",
        "exämple.com",
        "a b",
        ".",
        "-a.b",
        "\u212a.com",
        ".".join(["a" * 63] * 4),
    ],
)
def test_what_is_not_a_domain_name_is_refused(text: str) -> None:
    expected = "is not a domain name; write a name such as sandboxes.example.com, or off"
    assert refusal(places.domain(optional=True), text) == expected


def test_a_domain_that_is_needed_can_not_be_off() -> None:
    kind = places.domain(optional=False)

    assert kind.read("cluster.local") == "cluster.local"
    assert refusal(kind, "") == "is not a domain name; write a name such as cluster.local"


# --- path prefix ---


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("/sandboxes", "/sandboxes"),
        ("/a/b/", "/a/b"),
        ("/~a_b.c-d", "/~a_b.c-d"),
        ("off", ""),
        ("", ""),
    ],
)
def test_a_path_prefix_has_no_trailing_slash(text: str, prefix: str) -> None:
    assert places.path_prefix().read(text) == prefix


@pytest.mark.parametrize(
    "text",
    [
        "/",
        "//",
        "/a//b",
        "/a//",
        "/..",
        "/a/./b",
        "/a/../b",
        "/a?b",
        "/a#b",
        "/a%2fb",
        "/a b",
        "/é",
    ],
)
def test_a_path_prefix_with_anything_to_interpret_is_refused(text: str) -> None:
    assert refusal(places.path_prefix(), text).startswith(
        "is not a plain path; write whole segments"
    )


def test_a_path_prefix_begins_with_a_slash() -> None:
    assert refusal(places.path_prefix(), "sandboxes").startswith("does not begin with a slash; ")


@given(st.text(alphabet="/abc.%?#", max_size=12))
def test_every_path_prefix_is_off_or_plain_whole_segments(text: str) -> None:
    try:
        prefix = places.path_prefix().read(text)
    except BadValueError:
        return
    assert prefix == "" or (prefix.startswith("/") and not prefix.endswith("/"))
    assert not {".", "..", ""} & set(prefix.split("/")[1:])
    assert places.path_prefix().read(prefix) == prefix


# --- files and URLs ---


def test_a_file_is_a_path_or_off() -> None:
    kind = places.file_path()

    assert kind.read("/etc/router/token") == Path("/etc/router/token")
    assert kind.read("off") is kind.read("") is None
    assert kind.show(None) == "off"
    assert refusal(kind, "/a\x00") == "has control characters; write printable characters only"


@pytest.mark.parametrize(
    "text",
    [
        "https://issuer.example.com/jwks.json",
        "http://localhost:8080/keys",
        "http://127.0.0.1/k",
        "http://[::1]:80/k",
    ],
)
def test_keys_are_fetched_by_https_or_from_this_machine(text: str) -> None:
    assert places.key_url().read(text) == text


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("http://issuer.example.com/", "would fetch keys without TLS"),
        ("http://127.0.0.1.example.com/", "would fetch keys without TLS"),
        ("file:///etc/keys", "is not a URL"),
        ("issuer.example.com", "is not a URL"),
        ("https://", "is not a URL"),
        ("https://a b/", "is not a URL"),
        ("https://[::1/", "is not a URL"),
        ("https://a:99999/", "is not a URL"),
        ("https://a/\tb", "is not a URL"),
        ("https://user:secret@a/", "has a user, a password or a fragment"),
        ("https://a/#b", "has a user, a password or a fragment"),
    ],
)
def test_other_places_for_keys_are_refused(text: str, wrong: str) -> None:
    expected = f"{wrong}; write https://host/path (http only for localhost, 127.0.0.1 or [::1])"
    assert refusal(places.key_url(), text) == expected


# --- origins and pages ---


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://console.example.com", "https://console.example.com"),
        ("HTTPS://Console.Example.com:443/", "https://console.example.com"),
        ("https://console.example.com:8443", "https://console.example.com:8443"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://a.localhost:80", "http://a.localhost"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_an_origin_is_read_as_browsers_write_it(text: str, origin: str) -> None:
    assert places.origins().read(text) == (origin,)


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "null",
        "console.example.com",
        "https://*.example.com",
        "https://a.example/path",
        "https://me@a.example",
        "https://a.example:0",
        "https://a.example:99999",
        "ftp://a.example",
    ],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    assert "no origin" in refusal(places.origins(), text)


def test_an_origin_without_tls_is_on_this_machine() -> None:
    assert "without TLS" in refusal(places.origins(), "http://console.example.com")


def test_a_page_to_sign_in_at_is_a_url() -> None:
    kind = places.page_url()
    assert kind.read("https://login.example/start?a=b") == "https://login.example/start?a=b"
    assert kind.read("http://login.intern/") == "http://login.intern/"
    assert kind.read("off") is None
    for wrong in ("login.example", "javascript:alert(1)", "https://me@a/", "https://a/#b", "/a"):
        refusal(kind, wrong)
