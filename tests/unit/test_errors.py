"""Tests that the errors keep the contract that clients match on, and that docs/errors.md says what they say."""

from __future__ import annotations

import re
from http import HTTPStatus

import pytest

from router import errors
from router.error_table import every_error
from router.errors import RouterError

ALL = sorted(every_error(), key=lambda kind: kind.__name__)

CONTRACT = {
    "bad_request": 400,
    "missing_sandbox_id": 400,
    "invalid_sandbox_id": 400,
    "invalid_namespace": 400,
    "invalid_port": 400,
    "invalid_pod_ip": 400,
    "ambiguous_target": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "sandbox_not_found": 404,
    "sandbox_replaced": 404,
    "router_path_not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "sandbox_suspended": 409,
    "sandbox_finished": 410,
    "body_too_large": 413,
    "uri_too_long": 414,
    "misdirected": 421,
    "too_many_requests": 429,
    "wake_limited": 429,
    "headers_too_large": 431,
    "internal_error": 500,
    "method_not_supported": 501,
    "grpc_not_supported": 501,
    "sandbox_unreachable": 502,
    "bad_response": 502,
    "sandbox_not_ready": 503,
    "sandbox_waking": 503,
    "wake_unavailable": 503,
    "index_stale": 503,
    "auth_unavailable": 503,
    "overloaded": 503,
    "draining": 503,
    "cross_origin": 403,
    "sandbox_timeout": 504,
    "version_not_supported": 505,
}


def test_the_tree_has_exactly_the_codes_and_statuses_that_clients_know() -> None:
    assert {kind.code: kind.status for kind in ALL} == CONTRACT


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (errors.MissingSandboxId(), "X-Sandbox-ID header is required."),
        (errors.InvalidSandboxId(), "Invalid sandbox ID format."),
        (errors.InvalidNamespace(), "Invalid namespace format."),
        (errors.InvalidPort(), "Invalid port format."),
        (errors.InvalidPodIp(), "Invalid target IP address."),
        (errors.SandboxUnreachable.of("box"), "Could not connect to the backend sandbox: box"),
        (errors.SandboxTimeout.of("box"), "Timed out waiting for the backend sandbox: box"),
    ],
)
def test_the_details_that_existing_clients_match_on_are_kept(
    error: RouterError, detail: str
) -> None:
    assert error.detail == detail == str(error)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_states_its_facts(kind: type[RouterError]) -> None:
    error = kind(reason="why")

    assert HTTPStatus(kind.status)
    assert re.fullmatch(r"[a-z_]+", kind.code)
    assert error.detail == kind.default_detail != ""
    assert error.reason == "why"
    assert "why" not in error.detail
    assert kind.advice.endswith(".")


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_waiting_is_advised_only_where_trying_again_can_help(kind: type[RouterError]) -> None:
    assert kind.retry_after_s is None or kind.retryable


def test_a_detail_may_say_more() -> None:
    assert errors.BadRequest("Two Host headers.").detail == "Two Host headers."
