"""The sandboxes file's form, and what is said about mistakes in it."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.discovery.sandboxes_file import parse_sandboxes
from router.routing.endpoint import NO_PORTS, Endpoint, SandboxRef, State


def parse(text: str | bytes) -> tuple[Endpoint, ...]:
    content = text.encode() if isinstance(text, str) else text
    return parse_sandboxes(content, source="boxes.yaml", default_namespace="default")


def one(**fields: str) -> Endpoint:
    entry = {"name": "box", "host": "10.0.0.1", **fields}
    inner = ", ".join(f"{key}: {value}" for key, value in entry.items())
    (endpoint,) = parse(f"sandboxes:\n  - {{{inner}}}\n")
    return endpoint


def mistakes(text: str | bytes) -> list[str]:
    with pytest.raises(ValueError) as caught:
        parse(text)
    return str(caught.value).split("\n")


def test_the_example_of_the_documentation_is_read_as_it_says() -> None:
    endpoints = parse(
        """
sandboxes:
  - name: box-a
    host: 127.0.0.1
  - name: box-b
    namespace: team-b
    host: 10.1.2.3
    uid: 3b0c6c1e-0000-4000-8000-000000000001
    ports: {8888: 40001}
    state: ready
"""
    )

    assert endpoints[0].ref == SandboxRef("default", "box-a")
    assert endpoints[0].addresses == ("127.0.0.1",)
    assert endpoints[0].ports is NO_PORTS
    assert str(uuid.UUID(endpoints[0].uid)) == endpoints[0].uid
    assert endpoints[1] == Endpoint(
        SandboxRef("team-b", "box-b"),
        "3b0c6c1e-0000-4000-8000-000000000001",
        State.READY,
        ("10.1.2.3",),
        ports={8888: 40001},
    )


def test_an_empty_list_is_no_sandboxes() -> None:
    assert parse("sandboxes: []") == ()


@pytest.mark.parametrize("state", ["starting", "suspended", "finished"])
def test_only_a_ready_sandbox_has_an_address(state: str) -> None:
    endpoint = one(state=state)
    assert (endpoint.state, endpoint.addresses) == (State(state), ())


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ('"FD00:0::1"', "fd00::1"),
        ("localhost", "localhost"),
        ("sandbox_1", "sandbox_1"),
        ("a.b-c.example.com.", "a.b-c.example.com."),
    ],
)
def test_a_host_is_an_address_or_a_name(host: str, address: str) -> None:
    assert one(host=host).addresses == (address,)


def test_a_made_uid_stays_while_the_entry_does_and_changes_with_what_is_dialled() -> None:
    assert one().uid == one(state="suspended").uid == one(namespace="default").uid
    changed = [
        one(host="10.0.0.2"),
        one(name="box-2"),
        one(namespace="team-a"),
        one(ports="{80: 81}"),
        one(ports="{80: 82}"),
    ]
    assert len({endpoint.uid for endpoint in [one(), *changed]}) == 6


def test_an_entry_says_what_annotations_say_in_a_cluster() -> None:
    assert one(**{"public-ports": "3000"}).wishes.public_ports == {3000}
    assert one(**{"public-ports": '"3000,8080"'}).wishes.public_ports == {3000, 8080}
    endpoint = one(**{"path-mode": "keep", "tokens-not-before": "2026-12-01T00:00:00Z"})

    assert (endpoint.wishes.path_mode, endpoint.tokens_not_before) == ("keep", 1796083200.0)
    assert (one().wishes.path_mode, one().tokens_not_before) == ("", 0.0)
    assert one(**{"tokens-not-before": "1970-01-01 00:00:00Z"}).tokens_not_before == 1.0
    assert endpoint.uid == one().uid


def test_names_are_taken_as_they_are_written() -> None:
    assert one(name="1e3").ref.name == "1e3"
    assert one(name="on").ref.name == "on"
    assert one(uid="2026-01-01").uid == "2026-01-01"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "boxes.yaml:1: expected `sandboxes:`"),
        ("- name: box", "boxes.yaml:1: expected `sandboxes:`"),
        ("sandboxes:", "boxes.yaml:1: `sandboxes` must be a list"),
        ("\nother: 1\n", "boxes.yaml:2: unknown key `other` (known: sandboxes)"),
        ("sandboxs: []", "boxes.yaml:1: unknown key `sandboxs` (did you mean `sandboxes`?)"),
        ("sandboxes: []\nsandboxes: []", "boxes.yaml:2: `sandboxes` is given twice"),
        ("sandboxes:\n  - box", "boxes.yaml:2: a sandbox must be a mapping"),
        ("sandboxes:\n  - name: box\n", "boxes.yaml:2: `host` is missing"),
        ("sandboxes:\n  - host: h\n", "boxes.yaml:2: `name` is missing"),
        (
            "sandboxes:\n  - name: box\n    hots: 10.0.0.1",
            "boxes.yaml:3: unknown key `hots` (did you mean `host`?)",
        ),
        (
            "sandboxes:\n  - name: box\n    name: bax\n    host: h",
            "boxes.yaml:3: `name` is given twice",
        ),
        ("sandboxes:\n  - name: Box\n    host: h", "boxes.yaml:2: `name: Box` must be an RFC 1123"),
        ("sandboxes:\n  - {name: box, host: h, namespace: }", "`namespace` must be plain text"),
        ("sandboxes:\n  - {name: [a], host: h}", "`name` must be plain text"),
        ("sandboxes:\n  - {name: !!binary aGk=, host: h}", "`name` must be plain text"),
        ("sandboxes:\n  - {name: box, host: 'h:80'}", "without a port (see `ports`)"),
        ("sandboxes:\n  - {name: box, host: '[::1]'}", "`host: [::1]` must be an IP address"),
        ("sandboxes:\n  - {name: box, host: 127.1}", "`host: 127.1` must be"),
        ("sandboxes:\n  - {name: box, host: 0x7f000001}", "`host: 0x7f000001` must be"),
        ("sandboxes:\n  - {name: box, host: 010.0.0.1}", "`host: 010.0.0.1` must be"),
        ("sandboxes:\n  - {name: box, host: 'a\\nb'}", "`host: a\\\\nb` must be"),
        ("sandboxes:\n  - {name: box, host: h, uid: ''}", "`uid: ` must be 1 to 253"),
        ("sandboxes:\n  - {name: box, host: h, uid: 'a b'}", "`uid: a b` must be 1 to 253"),
        (
            "sandboxes:\n  - {name: box, host: h, state: running}",
            "must be one of ready, starting, suspended, finished",
        ),
        (
            "sandboxes:\n  - {name: box, host: h, public-ports: all}",
            "boxes.yaml:2: `public-ports: all` must be ports with commas like 3000 or 3000,8080",
        ),
        (
            "sandboxes:\n  - {name: box, host: h, path-mode: Keep}",
            "boxes.yaml:2: `path-mode: Keep` must be strip or keep",
        ),
        (
            "sandboxes:\n  - {name: box, host: h, tokens-not-before: 2026-12-01}",
            "`tokens-not-before: 2026-12-01` must be a time with its zone",
        ),
        ("sandboxes:\n  - {name: box, host: h, ports: [80]}", "`ports` must be a mapping"),
        ("sandboxes:\n  - {name: box, host: h, ports: {80: 0}}", "`0` in `ports` must be"),
        ("sandboxes:\n  - {name: box, host: h, ports: {http: 80}}", "`http` in `ports` must be"),
        ("sandboxes:\n  - {name: box, host: h, ports: {80: 1_0}}", "`1_0` in `ports` must be"),
        ("sandboxes:\n  - {name: box, host: h, ports: {80: 1, 80: 2}}", "port 80 is mapped twice"),
        ("\nsandboxes: ]\n", "boxes.yaml:2: not valid YAML: "),
        ("a: 1\n---\nb: 2", "boxes.yaml:2: not valid YAML"),
        (b"sandboxes: \xff", "boxes.yaml: not valid YAML"),
        (b"sandboxes: \x00", "boxes.yaml: not valid YAML"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_to_do(text: str | bytes, expected: str) -> None:
    assert expected in mistakes(text)[0]


def test_a_sandbox_that_is_listed_twice_is_refused_with_both_lines() -> None:
    text = "sandboxes:\n  - {name: box, host: a}\n  - {name: box, namespace: default, host: b}"
    assert mistakes(text) == ["boxes.yaml:3: default/box is listed on line 2 already"]


def test_every_mistake_is_told_at_once_up_to_a_page() -> None:
    few = "sandboxes:\n  - {name: A, host: h}\n  - {name: b, hosts: h}"
    assert [line.split(":")[1] for line in mistakes(few)] == ["2", "3", "3"]

    many = mistakes("sandboxes:\n" + "  - {name: A, host: h}\n" * 30)
    assert len(many) == 21
    assert many[-1] == "and 10 more"


def test_an_endless_alias_is_a_mistake_like_any_other() -> None:
    assert "must be a mapping" in mistakes("sandboxes: &all\n  - *all\n")[0]


@given(st.text(alphabet="sandboxe: \n-[]{}&*!|>'\"#,1", max_size=60) | st.binary(max_size=60))
def test_any_content_is_read_or_refused_with_the_files_name(content: str | bytes) -> None:
    try:
        parse(content)
    except ValueError as error:
        told = str(error).split("\n")
    else:
        told = []
    assert all(line.startswith("boxes.yaml:") for line in told)
