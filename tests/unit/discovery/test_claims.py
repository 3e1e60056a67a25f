from __future__ import annotations

from router.discovery.claims import parse_claim
from router.routing.endpoint import SandboxRef
from tests.fakes.cluster_objects import claim


def test_a_claims_status_names_its_sandbox() -> None:
    record = parse_claim(claim("mine", namespace="team-a", uid="u", bound_to="pool-x7k2"))

    assert record.ref == SandboxRef("team-a", "mine")
    assert record.sandbox == SandboxRef("team-a", "pool-x7k2")
    assert record.is_bound_by_status


def test_the_status_outranks_the_annotation() -> None:
    record = parse_claim(claim("mine", bound_to="pool-1", annotated_to="pool-2"))

    assert record.sandbox.name == "pool-1"


def test_the_annotation_alone_is_remembered_as_weaker() -> None:
    record = parse_claim(claim("mine", annotated_to="pool-2"))

    assert record.sandbox.name == "pool-2"
    assert not record.is_bound_by_status


def test_an_unbound_claim_leads_nowhere() -> None:
    assert parse_claim(claim("mine")).sandbox.name == ""
