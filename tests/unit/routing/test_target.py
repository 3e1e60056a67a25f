"""What a request says about its destination, by header, host and path."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import (
    AmbiguousTarget,
    BadRequest,
    InvalidNamespace,
    InvalidPodIp,
    InvalidPort,
    InvalidSandboxId,
    Misdirected,
    MissingSandboxId,
    RouterError,
)
from router.routing import target as target_module
from router.routing.endpoint import SandboxRef
from router.routing.target import Asked, NamedBy, Target, TargetParser, forwarded_target

BASE = "sandboxes.example.com"
NO_HOST = b"router.internal:8080"


def parser(
    *, base_domain: str = "", path_prefix: str = "", proxy_timeout_s: float = 180.0
) -> TargetParser:
    return TargetParser(
        base_domain=base_domain,
        path_prefix=path_prefix,
        default_port=8888,
        default_namespace="default",
        proxy_timeout_s=proxy_timeout_s,
    )


HEADERS_ONLY = parser()
BY_HOST = parser(base_domain=BASE)
BY_PATH = parser(path_prefix="/s/boxes")
BY_ALL = parser(base_domain=BASE, path_prefix="/s/boxes")


def by_header(asked: Asked) -> Target:
    return HEADERS_ONLY.parse(asked, NO_HOST, b"/")


def on(label: str) -> bytes:
    return f"{label}.{BASE}".encode()


# --- by header ------------------------------------------------------------------------------


def test_an_id_alone_means_the_default_namespace_and_port() -> None:
    assert by_header(Asked(b"box-a")) == Target(SandboxRef("default", "box-a"), 8888)


def test_namespace_and_port_are_taken_from_their_headers() -> None:
    assert by_header(Asked(b"box", b"team-a", b"3000")) == Target(SandboxRef("team-a", "box"), 3000)


def test_an_empty_namespace_header_means_the_default_namespace() -> None:
    assert by_header(Asked(b"box", b"")).ref == SandboxRef("default", "box")


def test_no_id_is_missing_with_the_detail_that_clients_match_on() -> None:
    with pytest.raises(MissingSandboxId) as caught:
        by_header(Asked(namespace=b"team-a", port=b"80"))
    assert caught.value.detail == "X-Sandbox-ID header is required."


NOT_LABELS = [
    b"SB1",
    b"foo.evil.com",
    b"foo/bar",
    b"a" * 64,
    b"-a",
    b"a-",
    b"a_b",
    b"a@evil",
    b"a b",
    b" a",
    b"a\n",
    b"a\x00",
    "böx".encode(),
    "\uff41".encode(),
    b"a/../b",
    b"*",
]


@pytest.mark.parametrize("value", [*NOT_LABELS, b""])
def test_an_id_that_is_no_label_is_invalid_even_when_empty(value: bytes) -> None:
    with pytest.raises(InvalidSandboxId):
        by_header(Asked(value))


@pytest.mark.parametrize("value", NOT_LABELS)
def test_a_namespace_that_is_no_label_is_invalid(value: bytes) -> None:
    with pytest.raises(InvalidNamespace):
        by_header(Asked(b"box", value))


NOT_PORTS = [
    b"",
    b"0",
    b"00000",
    b"65536",
    b"99999",
    b"100000",
    b"8_888",
    b"+80",
    b"-80",
    b"8 0",
    b" 80",
    b"80\n",
    b"0x50",
    b"1e3",
    b"80.0",
    b"http",
    "\u0668\u0668\u0668\u0668".encode(),
    "\uff18\uff10".encode(),
]


@pytest.mark.parametrize("value", NOT_PORTS)
def test_a_port_that_is_not_plain_digits_in_range_is_invalid(value: bytes) -> None:
    with pytest.raises(InvalidPort):
        by_header(Asked(b"box", None, value))


@given(st.binary(max_size=80))
def test_whatever_is_accepted_as_an_id_is_an_rfc_1123_label(value: bytes) -> None:
    try:
        name = by_header(Asked(value)).ref.name
    except InvalidSandboxId:
        return
    assert name.encode() == value
    assert len(name) <= 63
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)


@given(st.integers(min_value=-10, max_value=70_000))
def test_a_decimal_port_is_accepted_exactly_in_range(port: int) -> None:
    asked = Asked(b"box", None, str(port).encode())
    if 1 <= port <= 65535:
        assert by_header(asked).port == port
    else:
        with pytest.raises(InvalidPort):
            by_header(asked)


# --- conditions and hints -------------------------------------------------------------------


def test_a_uid_is_kept_as_the_precondition_it_is() -> None:
    assert by_header(Asked(b"box", uid=b"3b0c6c1e-0000-4000-8000-1")).uid == (
        "3b0c6c1e-0000-4000-8000-1"
    )
    assert by_header(Asked(b"box", uid=b"")).uid == ""


@pytest.mark.parametrize("value", [b"a b", b"a\x7f", b"\xe9", b"x" * 254, b" "])
def test_a_uid_of_other_than_visible_ascii_is_a_bad_request(value: bytes) -> None:
    with pytest.raises(BadRequest):
        by_header(Asked(b"box", uid=value))


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        (b"10.1.2.3", "10.1.2.3"),
        (b"FD00:0:0::1", "fd00::1"),
        (b"::ffff:10.1.2.3", "10.1.2.3"),
    ],
)
def test_a_pod_ip_is_kept_in_canonical_form(value: bytes, canonical: str) -> None:
    assert by_header(Asked(b"box", pod_ip=value)).pod_ip == canonical


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"pod.example.com",
        b"127.0.0.1",
        b"::1",
        b"::ffff:127.0.0.1",
        b"169.254.169.254",
        b"::ffff:169.254.169.254",
        b"fe80::1%eth0",
        b"2130706433",
        b"0177.0.0.1",
        b"224.0.0.1",
        b"0.0.0.0",
        b"10.0.0.1, 10.0.0.2",
    ],
)
def test_a_pod_ip_that_no_pod_has_is_refused_with_the_detail_that_clients_match_on(
    value: bytes,
) -> None:
    with pytest.raises(InvalidPodIp) as caught:
        by_header(Asked(b"box", pod_ip=value))
    assert caught.value.detail == "Invalid target IP address."


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"30", 30.0),
        (b"0.5", 0.5),
        (b"180", 180.0),
        (b"181", 180.0),
        (b"9" * 31, 180.0),
        (b"0", None),
        (b"0.000", None),
        (b"", None),
        (b"-1", None),
        (b"+1", None),
        (b"1_0", None),
        (b"1e3", None),
        (b"nan", None),
        (b"inf", None),
        (b"30s", None),
        (b" 30", None),
        (b"30\n", None),
        (b"1.", None),
        (b".5", None),
        ("\u0663\u0660".encode(), None),
        (b"9" * 400, None),
    ],
)
def test_a_timeout_is_a_plain_positive_decimal_capped_or_else_the_default(
    value: bytes, seconds: float | None
) -> None:
    assert by_header(Asked(b"box", timeout=value)).timeout_s == seconds


def test_a_timeout_is_not_capped_when_the_routers_own_is_off() -> None:
    unlimited = parser(proxy_timeout_s=0.0)
    assert unlimited.parse(Asked(b"box", timeout=b"3600"), b"", b"/").timeout_s == 3600.0


# --- by host --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "ref", "port"),
    [
        (on("8888-box"), ("default", "box"), 8888),
        (on("3000-box--team-a"), ("team-a", "box"), 3000),
        (on("80-a--b--c"), ("c", "a--b"), 80),
        (on("80-8080-box"), ("default", "8080-box"), 80),
        (on("8888-box") + b":8443", ("default", "box"), 8888),
        (on("8888-box") + b":", ("default", "box"), 8888),
        (on("8888-box") + b".", ("default", "box"), 8888),
        (on("8888-box") + b".:80", ("default", "box"), 8888),
        (b"8888-BOX--Team-A.Sandboxes.EXAMPLE.com", ("team-a", "box"), 8888),
    ],
)
def test_a_host_in_front_of_the_base_domain_names_a_sandbox(
    host: bytes, ref: tuple[str, str], port: int
) -> None:
    assert BY_HOST.parse(Asked(), host, b"/") == Target(
        SandboxRef(*ref), port, named_by=NamedBy.HOST
    )


NOT_SANDBOX_HOSTS = [
    b"",
    BASE.encode(),
    b"." + BASE.encode(),
    on("www"),
    on("api"),
    on("admin"),
    on("box"),
    on("8888"),
    on("8888-"),
    on("-box"),
    on("0-box"),
    on("65536-box"),
    on("8_8-box"),
    on("+80-box"),
    on("8888--box"),
    on("8888-box--"),
    on("8888-box---team"),
    on("8888-" + "a" * 64),
    on("a.8888-box"),
    on("8888-box") + b"..",
    on("8888-box") + b":http",
    on("8888-box") + b":123456",
    on("8888-box") + b"\n",
    b" " + on("8888-box"),
    b"user@" + on("8888-box"),
    on("8888-box") + b".evil.com",
    b"8888-box.evil.com",
    b"8888-box." + BASE.encode().replace(b".", b"x"),
    b"8888-boxsandboxes.example.com",
    b"[::1]:8080",
    b"10.0.0.1",
    "8888-böx".encode() + b"." + BASE.encode(),
]


@pytest.mark.parametrize("host", NOT_SANDBOX_HOSTS)
def test_a_host_that_names_no_sandbox_is_misdirected(host: bytes) -> None:
    with pytest.raises(Misdirected):
        BY_HOST.parse(Asked(), host, b"/")


@pytest.mark.parametrize("host", NOT_SANDBOX_HOSTS)
def test_a_host_that_names_no_sandbox_is_fine_when_headers_do(host: bytes) -> None:
    assert BY_HOST.parse(Asked(b"box"), host, b"/").named_by is NamedBy.HEADER


def test_a_host_never_routes_without_a_base_domain() -> None:
    with pytest.raises(MissingSandboxId):
        HEADERS_ONLY.parse(Asked(), on("8888-box"), b"/")
    assert HEADERS_ONLY.parse(Asked(b"other"), on("8888-box"), b"/").ref.name == "other"


def test_headers_that_agree_with_the_host_are_no_matter() -> None:
    asked = Asked(b"box", b"team-a", b"3000")
    target = BY_HOST.parse(asked, on("3000-box--team-a"), b"/")
    assert target == Target(SandboxRef("team-a", "box"), 3000, named_by=NamedBy.HOST)


def test_absent_headers_do_not_contradict_the_host_by_their_defaults() -> None:
    assert BY_HOST.parse(Asked(b"box"), on("3000-box--team-a"), b"/").port == 3000


DISAGREEING = [
    Asked(b"other"),
    Asked(b"box", b"team-b"),
    Asked(b"box", b""),
    Asked(b"box", b"team-a", b"80"),
    Asked(namespace=b"team-b"),
    Asked(port=b"80"),
]


@pytest.mark.parametrize("asked", DISAGREEING)
def test_a_header_that_disagrees_with_the_host_is_ambiguous(asked: Asked) -> None:
    with pytest.raises(AmbiguousTarget):
        BY_HOST.parse(asked, on("3000-box--team-a"), b"/")


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (Asked(b"BOX"), InvalidSandboxId),
        (Asked(namespace=b"A"), InvalidNamespace),
        (Asked(port=b"x"), InvalidPort),
    ],
)
def test_a_malformed_header_beside_a_host_is_still_malformed(
    asked: Asked, error: type[RouterError]
) -> None:
    with pytest.raises(error):
        BY_HOST.parse(asked, on("3000-box--team-a"), b"/")


LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@given(name=LABELS, namespace=LABELS, port=st.integers(1, 65535))
def test_every_sandbox_has_a_host_that_names_it(name: str, namespace: str, port: int) -> None:
    if "--" in namespace:
        namespace = namespace.replace("--", "x")
    host = on(f"{port}-{name}--{namespace}")
    assert BY_HOST.parse(Asked(), host, b"/").ref == SandboxRef(namespace, name)


# --- by path --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_target", "root", "forwarded"),
    [
        (b"/s/boxes/team-a/box/3000/", b"/s/boxes/team-a/box/3000", b"/"),
        (b"/s/boxes/team-a/box/3000", b"/s/boxes/team-a/box/3000", b"/"),
        (b"/s/boxes/team-a/box/3000?x=1", b"/s/boxes/team-a/box/3000", b"/?x=1"),
        (b"/s/boxes/team-a/box/3000/?", b"/s/boxes/team-a/box/3000", b"/?"),
        (
            b"/s/boxes/team-a/box/3000/a%2Fb//c/../d?q=/x#f",
            b"/s/boxes/team-a/box/3000",
            b"/a%2Fb//c/../d?q=/x#f",
        ),
        (b"/s/boxes/team-a/box/3000//evil.com/", b"/s/boxes/team-a/box/3000", b"//evil.com/"),
        (b"/s/boxes/team-a/box/3000/\xff\xe9", b"/s/boxes/team-a/box/3000", b"/\xff\xe9"),
    ],
)
def test_a_path_names_a_sandbox_and_the_rest_is_forwarded_byte_for_byte(
    request_target: bytes, root: bytes, forwarded: bytes
) -> None:
    target = BY_PATH.parse(Asked(), NO_HOST, request_target)

    assert target == Target(
        SandboxRef("team-a", "box"), 3000, named_by=NamedBy.PATH, path_root=root
    )
    assert forwarded_target(target, request_target) == forwarded


def test_a_target_that_headers_named_is_forwarded_unchanged() -> None:
    target = BY_PATH.parse(Asked(b"box"), NO_HOST, b"/other?x")
    assert forwarded_target(target, b"/other?x") == b"/other?x"
    assert forwarded_target(target, b"*") == b"*"


@pytest.mark.parametrize(
    ("request_target", "error"),
    [
        (b"/s/boxes", BadRequest),
        (b"/s/boxes/", BadRequest),
        (b"/s/boxes?x", BadRequest),
        (b"/s/boxes/team-a", BadRequest),
        (b"/s/boxes/team-a/box", BadRequest),
        (b"/s/boxes/team-a/box?/3000/", BadRequest),
        (b"/s/boxes//box/3000/", InvalidNamespace),
        (b"/s/boxes/Team/box/3000/", InvalidNamespace),
        (b"/s/boxes/../box/3000/", InvalidNamespace),
        (b"/s/boxes/team%2Da/box/3000/", InvalidNamespace),
        (b"/s/boxes/team-a//3000/", InvalidSandboxId),
        (b"/s/boxes/team-a/b%6Fx/3000/", InvalidSandboxId),
        (b"/s/boxes/team-a/box/", InvalidPort),
        (b"/s/boxes/team-a/box/http/", InvalidPort),
        (b"/s/boxes/team-a/box/0", InvalidPort),
        (b"/s/boxes/team-a/box/3000;x/", InvalidPort),
        (b"/s/boxes/team-a/box/3000#x", InvalidPort),
    ],
)
def test_a_malformed_path_under_the_prefix_is_refused_with_the_form(
    request_target: bytes, error: type[BadRequest]
) -> None:
    with pytest.raises(BadRequest) as caught:
        BY_PATH.parse(Asked(), NO_HOST, request_target)

    assert type(caught.value) is error
    assert "/s/boxes/<namespace>/<name>/<port>/<rest>" in caught.value.detail
    if error is not BadRequest:
        assert caught.value.detail.startswith(error.default_detail)


def test_a_malformed_path_under_the_prefix_is_the_apps_own_when_headers_or_host_name_it() -> None:
    by_headers = BY_ALL.parse(Asked(b"box"), NO_HOST, b"/s/boxes/index.html")
    by_host = BY_ALL.parse(Asked(), on("80-box"), b"/s/boxes/index.html")

    assert by_headers.named_by is NamedBy.HEADER
    assert by_host.named_by is NamedBy.HOST
    assert by_headers.path_root == by_host.path_root == b""


@pytest.mark.parametrize(
    "request_target", [b"/s/boxesteam-a/box/80/", b"/s/box/team-a/box/80/", b"/", b"*", b""]
)
def test_a_path_outside_the_prefix_names_nothing(request_target: bytes) -> None:
    with pytest.raises(MissingSandboxId):
        BY_PATH.parse(Asked(), NO_HOST, request_target)


@pytest.mark.parametrize("asked", DISAGREEING)
def test_a_header_that_disagrees_with_the_path_is_ambiguous(asked: Asked) -> None:
    with pytest.raises(AmbiguousTarget):
        BY_PATH.parse(asked, NO_HOST, b"/s/boxes/team-a/box/3000/")


def test_headers_that_agree_with_the_path_are_no_matter() -> None:
    asked = Asked(b"box", b"team-a", b"3000", timeout=b"5")
    target = BY_PATH.parse(asked, NO_HOST, b"/s/boxes/team-a/box/3000/")
    assert (target.named_by, target.timeout_s) == (NamedBy.PATH, 5.0)


def test_host_and_path_that_name_different_sandboxes_are_ambiguous() -> None:
    with pytest.raises(AmbiguousTarget):
        BY_ALL.parse(Asked(), on("3000-other--team-a"), b"/s/boxes/team-a/box/3000/")
    agreeing = BY_ALL.parse(Asked(), on("3000-box--team-a"), b"/s/boxes/team-a/box/3000/")
    assert agreeing.named_by is NamedBy.PATH


def test_a_path_never_routes_without_a_prefix() -> None:
    with pytest.raises(MissingSandboxId):
        HEADERS_ONLY.parse(Asked(), NO_HOST, b"/s/boxes/team-a/box/3000/")


@given(rest=st.binary(max_size=60).filter(lambda rest: b" " not in rest))
def test_any_rest_is_forwarded_byte_for_byte(rest: bytes) -> None:
    request_target = b"/s/boxes/team-a/box/3000/" + rest
    target = BY_PATH.parse(Asked(), NO_HOST, request_target)
    assert forwarded_target(target, request_target) == b"/" + rest


# --- whether a sandbox is named at all ------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "host", "request_target", "named"),
    [
        (Asked(), NO_HOST, b"/healthz", False),
        (Asked(namespace=b"team-a", port=b"80"), NO_HOST, b"/healthz", False),
        (Asked(b"box"), NO_HOST, b"/healthz", True),
        (Asked(b""), NO_HOST, b"/healthz", True),
        (Asked(), on("80-box"), b"/healthz", True),
        (Asked(), on("api"), b"/healthz", False),
        (Asked(), NO_HOST, b"/s/boxes/team-a/box/80/healthz", True),
        (Asked(), NO_HOST, b"/s/boxes/nonsense", True),
    ],
)
def test_a_request_names_a_sandbox_by_header_host_or_path(
    asked: Asked, host: bytes, request_target: bytes, named: bool
) -> None:
    assert BY_ALL.names_sandbox(asked, host, request_target) is named


# --- the whole ------------------------------------------------------------------------------

MAYBE = st.none() | st.sampled_from([b"", b"box", b"team-a", b"3000", b"10.0.0.1"]) | st.binary()


@given(
    asked=st.builds(Asked, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE),
    host=st.sampled_from([b"", on("api"), on("3000-box"), on("3000-box--team-a")]) | st.binary(),
    request_target=st.sampled_from([b"/", b"/s/boxes/team-a/box/3000", b"/s/boxes/x"])
    | st.binary(),
)
def test_any_request_gets_the_same_valid_target_or_error_every_time(
    asked: Asked, host: bytes, request_target: bytes
) -> None:
    def outcome() -> Target | type[RouterError]:
        try:
            return BY_ALL.parse(asked, host, request_target)
        except RouterError as error:
            return type(error)

    first = outcome()
    assert outcome() == first
    if isinstance(first, Target):
        assert 1 <= first.port <= 65535
        assert forwarded_target(first, request_target).startswith(
            b"/" if first.path_root else request_target
        )


def test_the_memo_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module, "_MEMO_ENTRIES", 3)
    small = parser(base_domain=BASE)

    for number in range(10):
        small.parse(Asked(b"box-%d" % number), NO_HOST, b"/")
    small.parse(Asked(b"long", timeout=b"9" * 10_000), NO_HOST, b"/")
    small.parse(Asked(b"long"), b"x" * 10_000, b"/")

    assert repr(small).endswith("memo=1>")


def test_a_prefix_with_a_trailing_slash_and_a_base_domain_with_dots_mean_the_same() -> None:
    lenient = parser(base_domain=f".{BASE.upper()}.", path_prefix="/s/boxes/")

    assert lenient.parse(Asked(), on("80-box"), b"/").named_by is NamedBy.HOST
    by_path = lenient.parse(Asked(), b"", b"/s/boxes/team-a/box/80/x")
    assert by_path.path_root == b"/s/boxes/team-a/box/80"
