from __future__ import annotations

import math
from typing import Any

import pytest

from router.discovery.sandboxes import PUBLIC_PORTS_ANNOTATION, SAME_NAME, Intent, parse_sandbox
from tests.fakes.cluster_objects import EXTENSIONS, owner, ready_condition, sandbox

TOKENS = "router.agents.x-k8s.io/tokens-not-before"
PATH_MODE = "router.agents.x-k8s.io/path-mode"


def test_a_running_sandbox_has_no_reason_once_it_is_ready() -> None:
    record = parse_sandbox(sandbox("box", is_ready=True))

    assert (record.traits.intent, record.traits.reason) == (Intent.RUNNING, "")


def test_operating_mode_alone_decides_what_suspended_means() -> None:
    suspended = sandbox("box", mode="Suspended", is_ready=True)
    resumed = sandbox("box", mode="Running", reason="SandboxSuspended")
    resumed["status"]["conditions"].append({"type": "Suspended", "status": "True"})

    assert parse_sandbox(suspended).traits.intent is Intent.SUSPENDED
    assert parse_sandbox(resumed).traits.intent is Intent.RUNNING


def test_replicas_zero_is_how_v1alpha1_said_suspended() -> None:
    item = sandbox("box")
    item["spec"] = {"replicas": 0}

    assert parse_sandbox(item).traits.intent is Intent.SUSPENDED


def test_operating_mode_outranks_replicas() -> None:
    item = sandbox("box", mode="Running")
    item["spec"]["replicas"] = 0

    assert parse_sandbox(item).traits.intent is Intent.RUNNING


@pytest.mark.parametrize("reason", ["SandboxExpired", "PodFailed", "PodSucceeded"])
def test_a_terminal_reason_means_finished(reason: str) -> None:
    record = parse_sandbox(sandbox("box", reason=reason))

    assert (record.traits.intent, record.traits.reason) == (Intent.FINISHED, reason)


@pytest.mark.parametrize(
    "reason",
    ["DependenciesNotReady", "SandboxSuspended", "MultiplePods", "ReconcilerError", "Unheard"],
)
def test_every_other_reason_means_still_starting(reason: str) -> None:
    assert parse_sandbox(sandbox("box", reason=reason)).traits.intent is Intent.RUNNING


@pytest.mark.parametrize("reason", ["SandboxExpired", "PodFailed", "PodSucceeded"])
def test_a_terminal_reason_outranks_suspended(reason: str) -> None:
    record = parse_sandbox(sandbox("box", mode="Suspended", reason=reason))
    old_form = sandbox("box", reason=reason)
    old_form["spec"] = {"replicas": 0}

    assert (record.traits.intent, record.traits.reason) == (Intent.OVER, reason)
    assert parse_sandbox(old_form).traits.intent is Intent.OVER


def test_a_terminal_reason_from_before_a_suspend_lingers_only() -> None:
    item = sandbox("box", mode="Suspended", generation=5)
    item["status"]["conditions"] = [ready_condition(False, "PodFailed", generation=4)]

    assert parse_sandbox(item).traits.intent is Intent.SUSPENDED


def test_a_suspended_sandbox_that_is_being_deleted_will_not_come_back() -> None:
    item = sandbox(
        "box",
        mode="Suspended",
        reason="SandboxSuspended",
        deletionTimestamp="2026-11-01T00:00:00Z",
    )
    record = parse_sandbox(item)

    assert (record.traits.intent, record.traits.reason) == (Intent.OVER, "SandboxDeleting")


def test_a_terminal_reason_from_before_the_last_change_of_the_spec_lingers_only() -> None:
    item = sandbox("box", reason="SandboxExpired", generation=5)
    item["status"]["conditions"] = [ready_condition(False, "SandboxExpired", generation=4)]

    assert parse_sandbox(item).traits.intent is Intent.RUNNING


def test_a_terminal_reason_beside_ready_true_or_unknown_means_nothing() -> None:
    item = sandbox("box")
    item["status"]["conditions"] = [
        {"type": "Ready", "status": "Unknown", "reason": "PodFailed"},
    ]

    assert parse_sandbox(item).traits.intent is Intent.RUNNING


def test_a_sandbox_that_is_being_deleted_will_not_come_back() -> None:
    record = parse_sandbox(sandbox("box", deletionTimestamp="2026-11-01T00:00:00Z"))

    assert (record.traits.intent, record.traits.reason) == (Intent.FINISHED, "SandboxDeleting")


def test_a_claim_that_controls_the_sandbox_is_known_by_uid_and_a_pool_is_not_a_claim() -> None:
    claimed = owner("SandboxClaim", "c", "claim-uid", group=EXTENSIONS)
    pooled = owner("SandboxWarmPool", "p", "pool-uid", group=EXTENSIONS)

    assert parse_sandbox(sandbox("box", controlled_by=claimed)).traits.claim_uid == "claim-uid"
    assert parse_sandbox(sandbox("box", controlled_by=pooled)).traits.claim_uid == ""


def test_a_claim_of_the_sandboxs_own_name_needs_no_uid() -> None:
    claimed = owner("SandboxClaim", "box", "claim-uid", group=EXTENSIONS)

    assert parse_sandbox(sandbox("box", controlled_by=claimed)).traits.claim_uid == SAME_NAME


def test_sandboxes_with_equal_traits_share_them() -> None:
    assert parse_sandbox(sandbox("a")).traits is parse_sandbox(sandbox("b")).traits


def test_the_legacy_annotation_names_the_pod() -> None:
    item = sandbox("box", annotations={"agents.x-k8s.io/pod-name": "warm-1"})

    assert parse_sandbox(item).traits.pod_name == "warm-1"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-12-01T00:00:00Z", 1796083200.0),
        ("2026-12-01 00:00:00Z", 1796083200.0),
        ("1970-01-01T00:00:00Z", 1.0),
        ("2026-12-01T01:00:00.5+01:00", 1796083200.5),
    ],
)
def test_tokens_not_before_is_an_rfc3339_time(value: str, seconds: float) -> None:
    assert (
        parse_sandbox(sandbox("box", annotations={TOKENS: value})).traits.tokens_not_before
        == seconds
    )


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yesterday",
        "2026-12-01",
        "2026-12-01T00:00:00",
        "2026-13-01T00:00:00Z",
        " 2026-12-01T00:00:00Z",
        "2026-12-01T00:00:00Z\n",
        "1796083200",
        7,
    ],
)
def test_tokens_not_before_that_cannot_be_read_refuses_every_token(value: str) -> None:
    traits = parse_sandbox(sandbox("box", annotations={TOKENS: value})).traits

    assert traits.tokens_not_before == math.inf
    (told,) = traits.unreadable
    assert f"tokens-not-before is {value!r};" in told


def test_of_an_annotation_that_cannot_be_read_only_the_beginning_is_kept() -> None:
    traits = parse_sandbox(sandbox("box", annotations={TOKENS: "x" * 1000})).traits

    (told,) = traits.unreadable
    assert "'" + "x" * 63 + ";" in told


@pytest.mark.parametrize(("value", "mode"), [("keep", "keep"), ("strip", "strip"), (None, "")])
def test_a_sandbox_says_what_becomes_of_its_path(value: str | None, mode: str) -> None:
    traits = parse_sandbox(sandbox("box", annotations={PATH_MODE: value})).traits  # type: ignore[dict-item]

    assert (traits.wishes.path_mode, traits.unreadable) == (mode, ())


@pytest.mark.parametrize("value", ["Keep", "", " keep", 7, ["keep"]])
def test_a_path_mode_that_is_none_counts_for_nothing_and_is_told(value: Any) -> None:
    traits = parse_sandbox(sandbox("box", annotations={PATH_MODE: value})).traits

    assert traits.wishes.path_mode == ""
    assert traits.unreadable == (
        f"the router's own path-mode counts: the annotation {PATH_MODE} is {value!r}; "
        "it must be strip or keep",
    )


def test_every_annotation_that_cannot_be_read_is_told() -> None:
    item = sandbox("box", annotations={TOKENS: "yesterday", PATH_MODE: "Keep"})

    assert len(parse_sandbox(item).traits.unreadable) == 2


def test_without_the_annotation_no_token_is_too_old() -> None:
    assert parse_sandbox(sandbox("box")).traits.tokens_not_before == 0.0


@pytest.mark.parametrize("junk", [None, 7, "x", []])
def test_a_spec_and_status_of_any_shape_are_survived(junk: object) -> None:
    item = sandbox("box")
    item["spec"] = item["status"] = item["metadata"]["annotations"] = junk

    assert parse_sandbox(item).traits.intent is Intent.RUNNING


# --- waking ---------------------------------------------------------------------------------

WAKE = "router.agents.x-k8s.io/wake"


def test_an_owner_asks_for_waking_by_one_word_alone() -> None:
    assert not parse_sandbox(sandbox("box")).traits.wishes.wakes_on_request
    asked = parse_sandbox(sandbox("box", annotations={WAKE: "on-request"}))
    assert asked.traits.wishes.wakes_on_request
    assert asked.traits.unreadable == ()


@pytest.mark.parametrize("value", ["", "On-Request", "true", "on request", "always"])
def test_any_other_word_means_never_and_is_told(value: str) -> None:
    slipped = parse_sandbox(sandbox("box", annotations={WAKE: value})).traits
    assert not slipped.wishes.wakes_on_request
    [told] = slipped.unreadable
    assert WAKE in told
    assert "must be on-request" in told


def test_when_a_sandbox_ends_matters_while_it_is_suspended() -> None:
    def ending(mode: str, at: object) -> float:
        item = sandbox("box", mode=mode)
        item["spec"]["shutdownTime"] = at
        return parse_sandbox(item).shutdown_at

    assert ending("Suspended", "2026-12-01T00:00:00Z") == 1796083200.0
    assert ending("Running", "2026-12-01T00:00:00Z") == 0.0
    assert ending("Suspended", None) == ending("Suspended", "soon") == 0.0


@pytest.mark.parametrize(
    ("value", "ports"),
    [("3000", {3000}), ("3000,8080", {3000, 8080}), ("3000, 8080", {3000, 8080}), ("1", {1})],
)
def test_an_owner_opens_ports_to_everybody(value: str, ports: set[int]) -> None:
    record = parse_sandbox(sandbox("box", annotations={PUBLIC_PORTS_ANNOTATION: value}))
    assert record.traits.wishes.public_ports == ports
    assert record.traits.unreadable == ()


@pytest.mark.parametrize(
    "value",
    [
        "",
        "*",
        "all",
        "0",
        "65536",
        "3000,",
        "3000;8080",
        "3000-3010",
        "+80",
        "٣٠٠٠",
        3000,
        ["3000"],
    ],
)
def test_one_slip_and_no_port_is_open(value: object) -> None:
    record = parse_sandbox(sandbox("box", annotations={PUBLIC_PORTS_ANNOTATION: value}))
    assert record.traits.wishes.public_ports == frozenset()
    (told,) = record.traits.unreadable
    assert told.startswith("no port is public: ")
