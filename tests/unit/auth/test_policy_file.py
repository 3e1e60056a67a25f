"""The policy file: what it says, and where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.auth.policy import CurrentPolicy, NotBefore, PrincipalMatch
from router.auth.policy_file import parse_policy, watch_policy
from router.auth.principal import Grant

WHOLE = b"""
rules:
  - principal: {subject: alice@example.com}
    sandboxes:
      - {namespace: team-a, name: "*", ports: [8888], methods: [GET, POST]}
  - principal: {group: admins, issuer: "https://issuer.example"}
    sandboxes:
      - {namespace: "*", name: "*"}
revoked: [9f1c0c1e, 77aa01b2, 0123, 1e5]
not-before:
  - {issuer: "https://issuer.example", time: "2026-12-01T00:00:00Z"}
  - {subject: bob, time: 2026-12-01T01:00:00+01:00}
"""


def test_the_example_of_the_contract_is_read() -> None:
    policy = parse_policy(WHOLE)

    first, second = policy.rules
    assert first.principal == PrincipalMatch(subject="alice@example.com")
    assert first.grants == (
        Grant("team-a", "*", "", frozenset({8888}), frozenset({b"GET", b"POST"})),
    )
    assert (first.number, first.line, second.number, second.line) == (1, 3, 2, 6)
    assert second.principal == PrincipalMatch(group="admins", issuer="https://issuer.example")
    assert policy.not_before == (
        NotBefore("https://issuer.example", "", 1796083200.0),
        NotBefore("", "bob", 1796083200.0),
    )


def test_ids_that_look_like_numbers_stay_as_they_are_written() -> None:
    assert parse_policy(WHOLE).revoked == {"9f1c0c1e", "77aa01b2", "0123", "1e5"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("[]", "line 1: the document must be a mapping"),
        (
            "rules: []\nrule: []",
            "line 2: the document has the key `rule` (did you mean `rules`?), which is not one of",
        ),
        ("rules:", "line 1: rules must be a list, not `null`"),
        ("rules: [\n", "line 2: did not find expected"),
        ("rules: []\nrules: []", "line 2: `rules` is given twice"),
        ("rules: &r []\nrevoked: *r", "aliases are not supported"),
        ("rules: []\n? [a]\n: b", "line 2: keys must be plain words"),
        ("rules: !!python/name:os.system []", "line 1: YAML tags"),
        ("rules:\n- principal: {subject: a}", "line 2: rules[0] `sandboxes` is missing"),
        ("rules:\n- sandboxes: []", "line 2: rules[0] `principal` is missing"),
        (
            "rules:\n- principal: {}\n  sandboxes: []",
            "line 2: rules[0].principal must name at least one",
        ),
        (
            "rules:\n- principal: {user: a}\n  sandboxes: []",
            "line 2: rules[0].principal has the key `user`, which is not one of",
        ),
        (
            "rules:\n- principal: {subject: ''}\n  sandboxes: []",
            "line 2: rules[0].principal.subject must be a text that is not empty, not ''",
        ),
        (
            "rules:\n- principal: {subject: [a]}\n  sandboxes: []",
            "line 2: rules[0].principal.subject must be a text that is not empty, not a list",
        ),
        (
            "rules:\n- principal: alice\n  sandboxes: []",
            "line 2: rules[0].principal must be a mapping",
        ),
        (
            "rules:\n- principal: {subject: a}\n  sandboxes:\n"
            "  - namespace: a\n    name: b\n    ports: [0]",
            "line 6: rules[0].sandboxes[0].ports must hold whole numbers from 1 to 65535, not `0`",
        ),
        (
            "rules:\n- principal: {subject: a}\n  sandboxes:\n"
            "  - namespace: Team_A\n    name: b\n    prots: [1]",
            "line 6: rules[0].sandboxes[0] has the key `prots` (did you mean `ports`?)",
        ),
        (
            "rules:\n- principal: {subject: a}\n  sandboxes:\n  - namespace: Team_A\n    name: b",
            "line 4: rules[0].sandboxes[0].namespace must be an RFC 1123 label in lower case, or *, not `Team_A`",
        ),
        (
            "rules:\n- principal: {mode: token_review}\n  sandboxes: []",
            "line 2: rules[0].principal.mode must be one of jwt, token-review, mtls, forwarded, not `token_review` (did you mean `token-review`?)",
        ),
        (
            "rules:\n- principal: {mode: static}\n  sandboxes: []",
            "rules[0].principal.mode must be one of jwt, token-review, mtls, forwarded, not `static`",
        ),
        (
            "rules:\n- principal: {identity: a, kind: san}\n  sandboxes: []",
            "rules[0].principal.kind must be one of uri, dns, cn, not `san`",
        ),
        (
            "rules:\n- principal: {subject: a, kind: cn}\n  sandboxes: []",
            "rules[0].principal.kind needs `identity` beside it",
        ),
        (
            "rules:\n- principal: {identity: a, subject: a}\n  sandboxes: []",
            "rules[0].principal.identity can't stand beside `subject`: a token has a subject",
        ),
        (
            "rules:\n- principal: {identity: a, mode: jwt}\n  sandboxes: []",
            "rules[0].principal.identity can't stand beside `mode: jwt`: only a certificate",
        ),
        (
            "rules:\n- principal: {group: a, mode: mtls}\n  sandboxes: []",
            "rules[0].principal.group can't stand beside `mode: mtls`",
        ),
        (
            "rules:\n- principal: {subject: a}\n  sandboxes:\n  - namespace: a",
            "line 4: rules[0].sandboxes[0] `name` is missing",
        ),
        ("revoked: abc", "line 1: revoked must be a list"),
        ("revoked:\n- a\n- [b]", "line 3: revoked[1] must be a text"),
        (
            "not-before:\n- {time: 2026-12-01T00:00:00Z}",
            "line 2: not-before[0] must name an issuer or a subject",
        ),
        ("not-before:\n- {subject: a}", "line 2: not-before[0] `time` is missing"),
        (
            "not-before:\n- {subject: a, time: 2026-12-01}",
            "line 2: not-before[0].time must be a time",
        ),
        (
            "not-before:\n- {subject: a, time: '2026-12-01T00:00:00'}",
            "line 2: not-before[0].time must be a time with its zone, like 2026-12-01T00:00:00Z, not `2026-12-01T00:00:00`",
        ),
        (
            "not-before:\n- {subject: a, time: '2026-13-01T00:00:00Z'}",
            "line 2: not-before[0].time must be a time",
        ),
        ("\x00", "is not valid YAML"),
    ],
)
def test_a_fault_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_policy(text.encode())

    assert message in str(caught.value)


def test_all_faults_are_named_at_once() -> None:
    text = b"rules:\n- principal: {}\n  sandboxes: [{namespace: A, name: b}]\nrevoked: 5\n"

    with pytest.raises(ValueError) as caught:
        parse_policy(text)

    lines = [fault.partition(":")[0] for fault in str(caught.value).split("; ")]
    assert lines[:3] == ["line 2", "line 3", "line 4"]


def test_a_long_list_of_faults_is_cut() -> None:
    with pytest.raises(ValueError, match="and 10 more"):
        parse_policy(b"revoked:\n" + b"- []\n" * 30)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_whatever_the_bytes_are_the_answer_is_a_policy_or_a_value_error(content: bytes) -> None:
    try:
        policy = parse_policy(content)
    except ValueError:
        return

    assert policy.rules == ()


def test_words_that_yaml_takes_for_something_else_stay_words() -> None:
    text = b"rules:\n- principal: {subject: 2026-12-01}\n  sandboxes: [{namespace: no, name: 123}]"

    [rule] = parse_policy(text).rules

    assert rule.principal.subject == "2026-12-01"
    assert rule.grants == (Grant("no", "123"),)


@pytest.mark.parametrize("port", ["0x50", "8_888", "+80", "080000000", "80.0", "eighty"])
def test_a_port_is_plain_digits(port: str) -> None:
    text = f"rules:\n- principal: {{subject: a}}\n  sandboxes: [{{namespace: a, name: b, ports: [{port}]}}]"

    with pytest.raises(ValueError, match="ports must hold"):
        parse_policy(text.encode())


@pytest.mark.parametrize("opening", [b"[", b"{a: ", b"- "])
def test_deep_nesting_is_an_error_and_not_a_crash(opening: bytes) -> None:
    with pytest.raises(ValueError):
        parse_policy(b"rules: " + opening * 5000)


async def test_a_changed_file_is_put_in_force_and_a_bad_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(b"revoked: [one]")
    current = CurrentPolicy()
    watched = watch_policy(current, path)
    watched.load_once()
    path.write_bytes(b"revoked: [two]")
    await watched.poll()
    path.write_bytes(b"revoked: two")

    await watched.poll()

    assert current.policy.revoked == {"two"}
    assert "line 1" in watched.last_error


@pytest.mark.parametrize(
    ("identity", "kind"),
    [
        ("spiffe://prod/admin", "uri"),
        ("urn:example:admin", "uri"),
        ("build.example.com", "dns"),
        ("*.example.com", "dns"),
        ("alice", "cn"),
        ("Alice Example", "cn"),
        ("alice@example.com", "cn"),
        ("system:node:one", "cn"),
    ],
)
def test_an_identity_is_one_kind_of_a_certificates_names_by_its_spelling(
    identity: str, kind: str
) -> None:
    text = f"rules:\n- principal: {{identity: '{identity}'}}\n  sandboxes: []"

    [rule] = parse_policy(text.encode()).rules

    assert rule.principal == PrincipalMatch(identity=identity, kind=kind)


def test_a_rule_may_say_another_kind_than_the_spelling_does() -> None:
    text = b"rules:\n- principal: {identity: build.example.com, kind: cn}\n  sandboxes: []"

    [rule] = parse_policy(text).rules

    assert rule.principal == PrincipalMatch(identity="build.example.com", kind="cn")


def test_dns_names_are_the_same_in_any_case() -> None:
    text = b"rules:\n- principal: {identity: Build.Example.com}\n  sandboxes: []"

    [rule] = parse_policy(text).rules

    assert rule.principal == PrincipalMatch(identity="build.example.com", kind="dns")


@pytest.mark.parametrize(("said", "wakes"), [("true", True), ("false", False)])
def test_a_grant_in_the_file_says_whether_it_wakes(said: str, wakes: bool) -> None:
    policy = parse_policy(
        b"rules:\n  - principal: {subject: a}\n"
        b"    sandboxes: [{namespace: t, name: b, wake: " + said.encode() + b"}]\n"
    )
    (rule,) = policy.rules

    assert [grant.wake for grant in rule.grants] == [wakes]


@pytest.mark.parametrize("said", ["yes", '"true"', "1", "True"])
def test_a_right_to_wake_is_said_by_true_and_by_nothing_else(said: str) -> None:
    text = f"rules:\n  - principal: {{subject: a}}\n    sandboxes: [{{namespace: t, name: b, wake: {said}}}]\n"

    with pytest.raises(ValueError, match="wake must be true or false"):
        parse_policy(text.encode())
