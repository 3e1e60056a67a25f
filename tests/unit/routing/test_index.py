"""The table of sandboxes: what is found, what loses its route, who is woken."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.errors import SandboxNotReady
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import HELD_BACK, EndpointIndex
from router.routing.waiting import Waiter

BOX = SandboxRef("team-a", "box")
OTHER = SandboxRef("team-a", "other")
FOREIGN = SandboxRef("team-b", "box")
CLAIM = SandboxRef("team-a", "claim")


class Clock:
    """Time that moves only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def index(clock: Clock) -> EndpointIndex:
    return EndpointIndex(waiting_room=8, waiting_room_per_namespace=6, clock=clock)


def ready(ref: SandboxRef = BOX, uid: str = "uid-1", address: str = "10.0.0.1") -> Endpoint:
    return Endpoint(ref, uid, State.READY, (address,))


def starting(ref: SandboxRef = BOX, uid: str = "uid-1") -> Endpoint:
    return Endpoint(ref, uid, State.STARTING, reason="DependenciesNotReady")


class Bell:
    """Counts its rings."""

    def __init__(self) -> None:
        self.rings = 0

    def __call__(self) -> None:
        self.rings += 1


# --- finding --------------------------------------------------------------------------------


def test_an_unknown_name_is_none(index: EndpointIndex) -> None:
    assert index.find(BOX) is None


def test_a_sandbox_is_found_by_its_namespace_and_name_alone(index: EndpointIndex) -> None:
    index.upsert(ready(BOX, "uid-1"))
    index.upsert(ready(FOREIGN, "uid-2", "10.0.0.2"))

    assert index.find(BOX).uid == "uid-1"
    assert index.find(FOREIGN).uid == "uid-2"
    assert index.find(OTHER) is None


def test_a_sandbox_that_cannot_be_dialled_is_found_with_its_state(index: EndpointIndex) -> None:
    index.upsert(Endpoint(BOX, "", State.SUSPENDED, reason="SandboxSuspended"))
    assert index.find(BOX).state is State.SUSPENDED


# --- who loses a route ----------------------------------------------------------------------


def test_the_same_endpoint_again_retires_nothing_and_keeps_the_one_in_memory(
    index: EndpointIndex,
) -> None:
    first = ready()
    index.upsert(first)

    assert index.upsert(ready()) == ()
    assert index.find(BOX) is first


@pytest.mark.parametrize(
    "new",
    [
        ready(uid="uid-2"),
        ready(address="10.0.0.9"),
        replace(ready(), addresses=("10.0.0.1", "fd00::1")),
        replace(ready(), ports={8888: 40001}),
        starting(),
        Endpoint(BOX, "", State.SUSPENDED),
        Endpoint(BOX, "uid-1", State.FINISHED),
    ],
)
def test_another_pod_address_port_or_state_retires_the_old_route(
    index: EndpointIndex, new: Endpoint
) -> None:
    index.upsert(ready())

    assert index.upsert(new) == (ready(),)
    assert index.find(BOX) == new


@pytest.mark.parametrize(
    "new",
    [
        replace(ready(), reason="DependenciesReady"),
        replace(ready(), sandbox_uid="sandbox-1"),
        replace(ready(), tokens_not_before=5.0),
    ],
)
def test_news_that_change_no_route_retire_nothing(index: EndpointIndex, new: Endpoint) -> None:
    index.upsert(ready())

    assert index.upsert(new) == ()
    assert index.find(BOX) == new


def test_what_had_no_route_retires_nothing(index: EndpointIndex) -> None:
    assert index.upsert(starting()) == ()
    assert index.upsert(ready()) == ()
    index.upsert(starting(OTHER))
    assert index.remove(OTHER) == ()


def test_removing_a_sandbox_retires_its_route(index: EndpointIndex) -> None:
    index.upsert(ready())

    assert index.remove(BOX) == (ready(),)
    assert index.find(BOX) is None
    assert index.remove(BOX) == ()


def test_a_late_delete_of_a_predecessor_does_no_harm(index: EndpointIndex) -> None:
    index.upsert(ready(uid="uid-1"))
    index.upsert(ready(uid="uid-2", address="10.0.0.2"))

    assert index.remove(BOX, uid="uid-1") == ()
    assert index.find(BOX).uid == "uid-2"
    assert index.remove(BOX, uid="uid-2") == (ready(uid="uid-2", address="10.0.0.2"),)


def test_a_new_pod_at_a_recycled_address_is_another_route(index: EndpointIndex) -> None:
    old = ready(uid="uid-1", address="10.0.0.1")
    index.upsert(old)

    assert index.upsert(ready(uid="uid-2", address="10.0.0.1")) == (old,)
    assert not index.is_current(old)


def test_only_the_pod_that_the_table_routes_to_is_current(index: EndpointIndex) -> None:
    index.upsert(ready())

    assert index.is_current(ready())
    assert index.is_current(replace(ready(), reason="said otherwise"))
    assert not index.is_current(ready(uid="uid-0"))
    assert not index.is_current(ready(address="10.0.0.9"))
    assert not index.is_current(ready(OTHER))
    index.upsert(starting())
    assert not index.is_current(ready())
    assert not index.is_current(starting())


# --- listings -------------------------------------------------------------------------------


def test_a_listing_replaces_the_table_and_retires_what_it_lacks_or_changes(
    index: EndpointIndex,
) -> None:
    index.upsert(ready(BOX, "uid-1", "10.0.0.1"))
    index.upsert(ready(OTHER, "uid-2", "10.0.0.2"))
    index.upsert(ready(FOREIGN, "uid-3", "10.0.0.3"))
    listing = [ready(BOX, "uid-1", "10.0.0.1"), ready(OTHER, "uid-9", "10.0.0.9")]

    retired = index.replace(listing)

    assert set(retired) == {ready(OTHER, "uid-2", "10.0.0.2"), ready(FOREIGN, "uid-3", "10.0.0.3")}
    assert set(index) == set(listing)


def test_a_listing_of_some_namespaces_leaves_the_others_alone(index: EndpointIndex) -> None:
    index.upsert(ready(BOX))
    index.upsert(ready(FOREIGN, "uid-3", "10.0.0.3"))

    retired = index.replace([], namespaces=frozenset({"team-a", "team-c"}))

    assert retired == (ready(BOX),)
    assert [endpoint.ref for endpoint in index] == [FOREIGN]


def test_a_listing_with_a_stray_changes_nothing(index: EndpointIndex) -> None:
    index.upsert(ready(BOX))

    with pytest.raises(ValueError, match="team-b/box"):
        index.replace([ready(FOREIGN)], namespaces=frozenset({"team-a"}))
    with pytest.raises(ValueError, match="team-b/box"):
        index.replace_aliases({FOREIGN: BOX}, namespaces=frozenset({"team-a"}))

    assert [endpoint.ref for endpoint in index] == [BOX]


def test_a_listing_that_repeats_a_name_means_the_last(index: EndpointIndex) -> None:
    index.replace([ready(uid="uid-1"), ready(uid="uid-2")])
    assert index.find(BOX).uid == "uid-2"
    assert index.size() == 1


# --- aliases --------------------------------------------------------------------------------


def test_a_claims_name_leads_to_its_sandbox_whichever_is_known_first(
    index: EndpointIndex,
) -> None:
    index.set_alias(CLAIM, BOX)
    assert index.find(CLAIM) is None
    index.upsert(ready())
    assert index.find(CLAIM) == ready()
    index.remove(BOX)
    assert index.find(CLAIM) is None


def test_a_sandbox_of_that_name_wins_over_a_claim(index: EndpointIndex) -> None:
    index.upsert(ready(BOX))
    index.set_alias(CLAIM, BOX)
    index.upsert(ready(CLAIM, "uid-7", "10.0.0.7"))

    assert index.find(CLAIM).uid == "uid-7"
    index.remove(CLAIM)
    assert index.find(CLAIM).uid == "uid-1"


def test_an_alias_leads_to_sandboxes_and_never_to_aliases(index: EndpointIndex) -> None:
    index.upsert(ready(BOX))
    index.set_alias(CLAIM, BOX)
    index.set_alias(OTHER, CLAIM)

    assert index.find(OTHER) is None


def test_an_alias_can_be_pointed_elsewhere_and_removed(index: EndpointIndex) -> None:
    index.upsert(ready(BOX))
    index.upsert(ready(OTHER, "uid-2", "10.0.0.2"))
    index.set_alias(CLAIM, BOX)
    index.set_alias(CLAIM, OTHER)
    assert index.find(CLAIM).uid == "uid-2"

    index.remove_alias(CLAIM, ref=BOX)
    assert index.find(CLAIM).uid == "uid-2"
    index.remove_alias(CLAIM)
    index.remove_alias(CLAIM)

    assert index.find(CLAIM) is None
    assert index.alias_count() == 0


def test_an_alias_listing_replaces_its_namespaces(index: EndpointIndex) -> None:
    index.upsert(ready(BOX))
    elsewhere = SandboxRef("team-b", "claim")
    index.set_alias(CLAIM, BOX)
    index.set_alias(elsewhere, FOREIGN)

    fresh = SandboxRef("team-a", "fresh")
    index.replace_aliases({fresh: BOX}, namespaces=frozenset({"team-a"}))
    assert (index.find(CLAIM), index.find(fresh)) == (None, ready())
    assert index.alias_count() == 2

    index.replace_aliases({})
    assert index.alias_count() == 0


def test_names_are_the_one_asked_for_then_its_own_then_its_claims(index: EndpointIndex) -> None:
    endpoint = ready(BOX)
    index.upsert(endpoint)
    assert index.names(endpoint, BOX) == (BOX,)

    second = SandboxRef("team-a", "claim-2")
    index.set_alias(CLAIM, BOX)
    index.set_alias(second, BOX)

    assert index.names(endpoint, BOX) == (BOX, CLAIM, second)
    assert index.names(endpoint, second) == (second, BOX, CLAIM)


def test_a_name_that_leads_to_another_sandbox_is_none_of_its_names(index: EndpointIndex) -> None:
    endpoint = ready(BOX)
    index.upsert(endpoint)
    index.set_alias(CLAIM, BOX)
    index.upsert(ready(CLAIM, "uid-7", "10.0.0.7"))

    assert index.names(endpoint, CLAIM) == (BOX,)
    index.remove_alias(CLAIM)
    assert index.names(endpoint, CLAIM) == (BOX,)


# --- eviction -------------------------------------------------------------------------------


def test_a_dead_host_loses_its_route_and_counts_as_starting(index: EndpointIndex) -> None:
    index.upsert(ready())

    assert index.evict(ready(), "10.0.0.1") == (ready(),)

    held = index.find(BOX)
    assert (held.state, held.addresses, held.reason) == (State.STARTING, (), HELD_BACK)
    assert held.uid == "uid-1"
    assert (index.ready_count(), index.held_count(), index.evictions) == (0, 1, 1)
    assert not index.is_current(ready())


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        (ready(uid="uid-0"), "10.0.0.1"),
        (ready(address="10.0.0.9"), "10.0.0.9"),
        (ready(OTHER), "10.0.0.1"),
    ],
)
def test_a_host_that_the_table_no_longer_routes_to_is_not_evicted(
    index: EndpointIndex, endpoint: Endpoint, address: str
) -> None:
    index.upsert(ready())

    assert index.evict(endpoint, address) == ()
    assert index.find(BOX) == ready()


def test_a_route_is_evicted_once(index: EndpointIndex) -> None:
    index.upsert(ready())
    index.evict(ready(), "10.0.0.1")

    assert index.evict(ready(), "10.0.0.1") == ()
    assert index.remove(BOX) == ()


def test_an_evicted_route_is_given_back_after_a_while(index: EndpointIndex, clock: Clock) -> None:
    index.upsert(ready())
    index.evict(ready(), "10.0.0.1", hold_s=5.0)
    index.set_alias(CLAIM, BOX)
    assert index.hold_ends_in_s(BOX) == index.hold_ends_in_s(CLAIM) == 5.0

    clock.now += 4.9
    assert index.find(CLAIM).state is State.STARTING
    clock.now += 0.1

    assert index.find(CLAIM) == ready()
    assert index.hold_ends_in_s(BOX) is None
    assert (index.ready_count(), index.held_count()) == (1, 0)


def test_facts_count_an_overdue_hold_as_given_back(index: EndpointIndex, clock: Clock) -> None:
    index.upsert(ready())
    index.evict(ready(), "10.0.0.1", hold_s=5.0)
    clock.now += 5.0

    assert list(index) == [ready()]
    assert index.ready_count() == 1


@pytest.mark.parametrize("by_listing", [False, True])
def test_an_evicted_route_stays_so_while_discovery_repeats_itself(
    index: EndpointIndex, clock: Clock, by_listing: bool
) -> None:
    index.upsert(ready())
    index.evict(ready(), "10.0.0.1", hold_s=5.0)
    repeated = replace(ready(), tokens_not_before=7.0)

    retired = index.replace([repeated]) if by_listing else index.upsert(repeated)

    assert retired == ()
    assert index.find(BOX).state is State.STARTING
    assert index.find(BOX).tokens_not_before == 7.0
    clock.now += 5.0
    assert index.find(BOX) == repeated


@pytest.mark.parametrize(
    "new",
    [ready(uid="uid-2"), ready(address="10.0.0.9"), starting(), Endpoint(BOX, "", State.SUSPENDED)],
)
@pytest.mark.parametrize("by_listing", [False, True])
def test_news_of_the_pod_end_an_eviction(
    index: EndpointIndex, clock: Clock, new: Endpoint, by_listing: bool
) -> None:
    index.upsert(ready())
    index.evict(ready(), "10.0.0.1")

    assert (index.replace([new]) if by_listing else index.upsert(new)) == ()
    assert index.find(BOX) == new
    clock.now += 60.0
    assert index.find(BOX) == new


def test_a_removed_sandbox_is_not_given_back(index: EndpointIndex, clock: Clock) -> None:
    index.upsert(ready())
    index.evict(ready(), "10.0.0.1")
    index.remove(BOX, uid="uid-1")
    clock.now += 60.0

    assert index.find(BOX) is None
    assert (list(index), index.ready_count(), index.held_count()) == ([], 0, 0)


# --- waiting --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "new", [ready(), Endpoint(BOX, "", State.SUSPENDED), Endpoint(BOX, "", State.FINISHED)]
)
def test_a_waiter_is_woken_once_when_the_state_changes(index: EndpointIndex, new: Endpoint) -> None:
    index.upsert(starting())
    bell = Bell()
    index.wait(BOX, bell)

    index.upsert(new)
    index.remove(BOX)

    assert bell.rings == 1
    assert index.waiting() == 0


def test_a_waiter_sees_the_table_as_it_has_become(index: EndpointIndex) -> None:
    index.upsert(starting())
    seen: list[Endpoint | None] = []
    index.wait(BOX, lambda: seen.append(index.find(BOX)))

    index.replace([ready()])

    assert seen == [ready()]


def test_a_waiter_is_woken_when_its_sandbox_is_removed(index: EndpointIndex) -> None:
    index.upsert(starting())
    bell = Bell()
    index.wait(BOX, bell)

    index.replace([])

    assert bell.rings == 1


def test_a_change_that_does_not_matter_wakes_nobody(index: EndpointIndex) -> None:
    index.upsert(starting(uid="uid-1"))
    bell = Bell()
    index.wait(BOX, bell)

    index.upsert(starting(uid="uid-2"))
    index.upsert(ready(OTHER))
    index.upsert(ready(FOREIGN))
    index.set_alias(BOX, OTHER)

    assert bell.rings == 0


def test_a_waiter_of_a_claims_name_is_woken_when_its_sandbox_changes(
    index: EndpointIndex,
) -> None:
    index.upsert(starting(BOX))
    index.set_alias(CLAIM, BOX)
    bell = Bell()
    index.wait(CLAIM, bell)

    index.upsert(ready(BOX))

    assert bell.rings == 1


def test_a_claim_that_a_sandbox_of_its_name_hides_wakes_nobody(index: EndpointIndex) -> None:
    index.upsert(starting(BOX))
    index.upsert(starting(CLAIM))
    index.set_alias(CLAIM, BOX)
    bell = Bell()
    index.wait(CLAIM, bell)

    index.upsert(ready(BOX))

    assert bell.rings == 0


def test_a_waiter_of_an_unknown_name_is_woken_when_an_alias_appears(index: EndpointIndex) -> None:
    index.upsert(ready(BOX))
    bell = Bell()
    index.wait(CLAIM, bell)

    index.set_alias(CLAIM, OTHER)
    assert bell.rings == 0
    index.set_alias(CLAIM, BOX)

    assert bell.rings == 1


def test_a_waiter_of_an_evicted_sandbox_is_woken_when_its_route_is_given_back(
    index: EndpointIndex, clock: Clock
) -> None:
    index.upsert(ready())
    index.evict(ready(), "10.0.0.1")
    bell = Bell()
    index.wait(BOX, bell)

    clock.now += 60.0
    index.find(BOX)

    assert bell.rings == 1


def test_a_cancelled_waiter_is_not_woken(index: EndpointIndex) -> None:
    bell = Bell()
    waiter = index.wait(BOX, bell)
    waiter.cancel()
    waiter.cancel()

    index.upsert(ready())

    assert bell.rings == 0
    assert index.waiting() == 0


def test_the_room_is_bounded_for_each_namespace_too(index: EndpointIndex) -> None:
    for _ in range(6):
        index.wait(BOX, Bell())
    with pytest.raises(SandboxNotReady):
        index.wait(OTHER, Bell())
    for _ in range(2):
        index.wait(FOREIGN, Bell())
    with pytest.raises(SandboxNotReady):
        index.wait(SandboxRef("team-c", "box"), Bell())


# --- facts ----------------------------------------------------------------------------------


def test_facts_tell_size_readiness_and_namespaces(index: EndpointIndex) -> None:
    index.upsert(ready(BOX))
    index.upsert(starting(OTHER))
    index.upsert(ready(FOREIGN))

    assert (index.size(), index.ready_count(), index.events) == (3, 2, 3)
    assert index.knows_namespace("team-a")
    index.remove(FOREIGN)
    assert not index.knows_namespace("team-b")
    assert repr(index) == "<EndpointIndex size=2 ready=1 aliases=0 held=0 waiting=0>"


def test_the_table_is_as_old_as_its_last_sync(index: EndpointIndex, clock: Clock) -> None:
    assert index.age_s() is None
    assert index.is_stale(30.0)
    assert not index.is_stale(0.0)

    index.set_synced()
    clock.now += 30.0
    assert index.age_s() == 30.0
    assert not index.is_stale(30.0)
    clock.now += 1.0
    assert index.is_stale(30.0)

    index.set_synced(clock.now - 2.0)
    assert index.age_s() == 2.0


def test_a_sandbox_costs_less_than_600_bytes() -> None:
    index = EndpointIndex(waiting_room=8, waiting_room_per_namespace=8)
    count = 20_000

    def fill(generation: int) -> None:
        for number in range(count):
            uid = f"{generation:08x}-0000-4000-8000-{number:012x}"
            index.upsert(
                Endpoint(
                    SandboxRef("team-a", f"sandbox-{number:08d}"),
                    uid,
                    State.READY,
                    (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",),
                    sandbox_uid=uid[::-1],
                )
            )

    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for generation in range(2):
            fill(generation)
        gc.collect()
        per_sandbox = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()

    assert per_sandbox < 600


# --- any order of events --------------------------------------------------------------------

REFS = [BOX, OTHER, FOREIGN, CLAIM]
refs = st.sampled_from(REFS)


@st.composite
def endpoints(draw: st.DrawFn) -> Endpoint:
    state = draw(st.sampled_from(State))
    return Endpoint(
        draw(refs),
        draw(st.sampled_from(["uid-1", "uid-2"])),
        state,
        (draw(st.sampled_from(["10.0.0.1", "10.0.0.2"])),) if state is State.READY else (),
        reason=draw(st.sampled_from(["", "said"])),
        ports=draw(st.sampled_from([{}, {80: 8080}])),
    )


class IndexModel(RuleBasedStateMachine):
    """The index equals a model that is slow, plain and keeps discovery's word and the holds apart."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.index = EndpointIndex(
            waiting_room=100, waiting_room_per_namespace=100, clock=self.clock
        )
        self.said: dict[SandboxRef, Endpoint] = {}
        self.held_until: dict[SandboxRef, float] = {}
        self.aliases: dict[SandboxRef, SandboxRef] = {}
        self.rings: dict[int, int] = {}
        self.waiting: dict[int, tuple[SandboxRef, Waiter]] = {}

    # The model.

    def view(self, ref: SandboxRef) -> Endpoint | None:
        own = ref if ref in self.said else self.aliases.get(ref)
        if own not in self.said:
            return None
        endpoint = self.said[own]
        if own in self.held_until:
            return replace(endpoint, state=State.STARTING, addresses=(), reason=HELD_BACK)
        return endpoint

    def views(self) -> dict[SandboxRef, tuple[SandboxRef, State] | None]:
        found = {ref: self.view(ref) for ref in REFS}
        return {ref: e and (e.ref, e.state) for ref, e in found.items()}

    def routes(self) -> dict[SandboxRef, tuple[object, ...]]:
        return {
            ref: (e.uid, e.addresses, tuple(e.ports.items()))
            for ref, e in ((ref, self.view(ref)) for ref in self.said)
            if e is not None and e.state is State.READY
        }

    def say(self, endpoint: Endpoint) -> None:
        old = self.said.get(endpoint.ref)
        self.said[endpoint.ref] = endpoint
        if (
            old is None
            or endpoint.state is not State.READY
            or (old.uid, old.addresses) != (endpoint.uid, endpoint.addresses)
        ):
            self.held_until.pop(endpoint.ref, None)

    def unsay(self, ref: SandboxRef) -> None:
        self.said.pop(ref, None)
        self.held_until.pop(ref, None)

    def look(self) -> None:
        """What anybody's look at the table does to holds that are overdue."""
        for ref, until in list(self.held_until.items()):
            if until <= self.clock.now:
                del self.held_until[ref]

    # The comparison: retired are the routes that are no more; woken are those whose view changed.

    def start(self) -> None:
        self.before = self.views()
        self.routes_before = self.routes()
        self.visible_before = {ref: self.view(ref) for ref in self.said}

    def check(self, retired: Iterable[Endpoint] | None) -> None:
        after = self.views()
        if retired is not None:
            after_routes = self.routes()
            lost = {r for r, route in self.routes_before.items() if after_routes.get(r) != route}
            retired = list(retired)
            assert {endpoint.ref for endpoint in retired} == lost
            assert len(retired) == len(lost)
            assert all(endpoint == self.visible_before[endpoint.ref] for endpoint in retired)
        for number, (ref, waiter) in list(self.waiting.items()):
            must = self.before[ref] != after[ref]
            assert self.rings[number] == int(must)
            assert waiter.is_waiting != must
            if must:
                del self.waiting[number]

    @rule(endpoint=endpoints())
    def upsert(self, endpoint: Endpoint) -> None:
        self.start()
        self.say(endpoint)
        self.check(self.index.upsert(endpoint))

    @rule(ref=refs, uid=st.sampled_from([None, "uid-1", "uid-2"]))
    def remove(self, ref: SandboxRef, uid: str | None) -> None:
        self.start()
        if ref in self.said and uid in (None, self.said[ref].uid):
            self.unsay(ref)
        self.check(self.index.remove(ref, uid=uid))

    @rule(listing=st.lists(endpoints(), max_size=5), some=st.booleans())
    def replace(self, listing: list[Endpoint], some: bool) -> None:
        self.start()
        namespaces = frozenset({"team-a"}) if some else None
        if some:
            listing = [endpoint for endpoint in listing if endpoint.ref.namespace == "team-a"]
        listed = {endpoint.ref: endpoint for endpoint in listing}
        for ref in list(self.said):
            if ref not in listed and (not some or ref.namespace == "team-a"):
                self.unsay(ref)
        for endpoint in listed.values():
            self.say(endpoint)
        self.check(self.index.replace(listing, namespaces=namespaces))

    @rule(endpoint=endpoints(), address=st.sampled_from(["10.0.0.1", "10.0.0.2"]))
    def evict(self, endpoint: Endpoint, address: str) -> None:
        self.start()
        current = self.view(endpoint.ref) if endpoint.ref in self.said else None
        if (
            current is not None
            and current.state is State.READY
            and current.uid == endpoint.uid
            and address in current.addresses
        ):
            self.held_until[endpoint.ref] = self.clock.now + 5.0
        self.check(self.index.evict(endpoint, address))

    @rule(alias=refs, ref=refs)
    def set_alias(self, alias: SandboxRef, ref: SandboxRef) -> None:
        self.start()
        self.aliases[alias] = ref
        self.index.set_alias(alias, ref)
        self.check(None)

    @rule(alias=refs, ref=st.none() | refs)
    def remove_alias(self, alias: SandboxRef, ref: SandboxRef | None) -> None:
        self.start()
        if ref is None or self.aliases.get(alias) == ref:
            self.aliases.pop(alias, None)
        self.index.remove_alias(alias, ref=ref)
        self.check(None)

    @rule(listing=st.dictionaries(refs, refs))
    def replace_aliases(self, listing: dict[SandboxRef, SandboxRef]) -> None:
        self.start()
        self.aliases = dict(listing)
        self.index.replace_aliases(listing)
        self.check(None)

    @rule(seconds=st.sampled_from([1.0, 3.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.start()
        self.clock.now += seconds
        self.look()
        assert self.index.held_count() == len(self.held_until)
        self.check(None)

    @rule(ref=refs)
    def wait(self, ref: SandboxRef) -> None:
        number = len(self.rings)
        self.rings[number] = 0

        def ring() -> None:
            self.rings[number] += 1

        self.waiting[number] = (ref, self.index.wait(ref, ring))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            number = data.draw(st.sampled_from(sorted(self.waiting)))
            self.waiting.pop(number)[1].cancel()

    @invariant()
    def everything_that_can_be_read_is_the_models(self) -> None:
        for ref in REFS:
            assert self.index.find(ref) == self.view(ref)
        assert set(self.index) == {self.view(ref) for ref in self.said}
        assert self.index.size() == len(self.said)
        assert self.index.ready_count() == len(self.routes())
        assert self.index.alias_count() == len(self.aliases)
        assert self.index.waiting() == len(self.waiting)
        for namespace in ("team-a", "team-b"):
            known = any(ref.namespace == namespace for ref in self.said)
            assert self.index.knows_namespace(namespace) == known

    @invariant()
    def names_are_exactly_those_that_lead_there(self) -> None:
        for own in self.said:
            endpoint = self.index.find(own)
            leading = {ref for ref in REFS if (found := self.view(ref)) and found.ref == own}
            for asked in REFS:
                names = self.index.names(endpoint, asked)
                assert len(names) == len(set(names))
                assert set(names) == leading
                assert names[0] == (asked if asked in leading else own)

    def teardown(self) -> None:
        for _, waiter in self.waiting.values():
            waiter.cancel()
        self.index.replace([])
        self.index.replace_aliases({})
        assert self.index.waiting() == 0
        for emptied in ("_endpoints", "_aliases", "_aliases_of", "_holds", "_in_namespace"):
            assert not getattr(self.index, emptied)


TestAnyOrderOfEventsEqualsTheModel = IndexModel.TestCase
TestAnyOrderOfEventsEqualsTheModel.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
