from __future__ import annotations

from typing import Any

from router.discovery.aliases import AliasTable
from router.discovery.claims import ClaimRecord, parse_claim
from router.discovery.sandboxes import SandboxRecord, parse_sandbox
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from tests.fakes.cluster_objects import EXTENSIONS, claim, owner, sandbox

MINE = SandboxRef("default", "mine")


class Aliases:
    """An AliasTable with Sandboxes beside it, and the index that shows what it did."""

    def __init__(self) -> None:
        self.index = EndpointIndex(waiting_room=1, waiting_room_per_namespace=1)
        self.sandboxes: dict[SandboxRef, SandboxRecord] = {}
        self.table = AliasTable(index=self.index, sandbox=self.sandboxes.get)
        for name in ("pool-1", "pool-2"):
            ref = SandboxRef("default", name)
            self.index.upsert(
                Endpoint(ref=ref, uid=name, state=State.READY, addresses=("10.0.0.1",))
            )

    def sandbox(self, name: str, *, claimed_by: str = "") -> None:
        controlled_by = (
            owner("SandboxClaim", "c", claimed_by, group=EXTENSIONS) if claimed_by else None
        )
        record = parse_sandbox(sandbox(name, controlled_by=controlled_by))
        self.sandboxes[record.ref] = record
        self.table.sandbox_changed(record.ref)

    def leads_to(self, ref: SandboxRef = MINE) -> str | None:
        found = self.index.find(ref)
        return None if found is None else found.ref.name


def mine(**shape: Any) -> ClaimRecord:
    return parse_claim(claim("mine", **{"uid": "claim-1", **shape}))


def test_a_claims_name_leads_to_its_sandbox() -> None:
    aliases = Aliases()

    aliases.table.upsert(mine(bound_to="pool-1"))

    assert aliases.leads_to() == "pool-1"


def test_a_claim_that_is_bound_anew_leads_to_the_new_sandbox() -> None:
    aliases = Aliases()
    aliases.table.upsert(mine(bound_to="pool-1", version=1))

    aliases.table.upsert(mine(bound_to="pool-2", version=2))

    assert aliases.leads_to() == "pool-2"


def test_a_claim_that_lost_its_binding_or_is_gone_leads_nowhere() -> None:
    aliases = Aliases()
    aliases.table.upsert(mine(bound_to="pool-1", version=1))
    aliases.table.upsert(mine(version=2))
    assert aliases.leads_to() is None

    aliases.table.upsert(mine(bound_to="pool-1", version=3))
    aliases.table.remove(mine(version=4))
    assert aliases.leads_to() is None


def test_a_sandbox_that_serves_another_claim_is_not_led_to() -> None:
    aliases = Aliases()
    aliases.table.upsert(mine(bound_to="pool-1"))

    aliases.sandbox("pool-1", claimed_by="claim-2")
    assert aliases.leads_to() is None

    aliases.sandbox("pool-1", claimed_by="claim-1")
    assert aliases.leads_to() == "pool-1"


def test_an_annotation_alone_counts_once_the_sandbox_confirms_it() -> None:
    aliases = Aliases()
    aliases.table.upsert(mine(annotated_to="pool-1"))
    assert aliases.leads_to() is None

    aliases.sandbox("pool-1")
    assert aliases.leads_to() is None

    aliases.sandbox("pool-1", claimed_by="claim-1")
    assert aliases.leads_to() == "pool-1"


def test_late_events_of_a_predecessor_change_nothing() -> None:
    aliases = Aliases()
    aliases.table.upsert(mine(uid="claim-1", bound_to="pool-1", version=1))
    aliases.table.upsert(mine(uid="claim-2", bound_to="pool-2", version=5))

    aliases.table.remove(mine(uid="claim-1", version=3))
    aliases.table.upsert(mine(uid="claim-1", bound_to="pool-1", version=2))

    assert aliases.leads_to() == "pool-2"


def test_an_event_after_the_end_revives_nothing() -> None:
    aliases = Aliases()
    aliases.table.upsert(mine(bound_to="pool-1", version=1))
    aliases.table.remove(mine(version=3))

    aliases.table.upsert(mine(bound_to="pool-1", version=2))

    assert aliases.leads_to() is None


def test_a_list_replaces_the_claims_of_its_namespace_alone() -> None:
    aliases = Aliases()
    elsewhere = parse_claim(claim("far", namespace="team-b", bound_to="box"))
    aliases.table.upsert(mine(bound_to="pool-1"))
    aliases.table.upsert(elsewhere)

    aliases.table.listing("default").commit()

    assert aliases.leads_to() is None
    assert len(aliases.table) == 1


def test_a_claim_of_the_same_name_as_its_sandbox_needs_no_alias() -> None:
    aliases = Aliases()

    aliases.table.upsert(mine(bound_to="mine"))

    assert aliases.index.alias_count() == 0


def test_an_alias_of_another_table_gives_way_to_our_own_first_list_and_no_later_one() -> None:
    aliases = Aliases()
    stray, elsewhere = SandboxRef("default", "stray"), SandboxRef("team-b", "stray")
    pool = SandboxRef("default", "pool-1")
    for alias in (stray, elsewhere):
        aliases.index.set_alias(alias, pool)
    listing = aliases.table.listing("default")
    listing.add(mine(bound_to="pool-1"))
    listing.commit()
    assert aliases.leads_to() == "pool-1"
    assert aliases.leads_to(stray) is None
    assert aliases.leads_to(elsewhere) == "pool-1", "another scope keeps what it has"
