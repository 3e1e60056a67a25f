"""The budget: who waits, who gets a turn, and who ends, when connections hold too much together."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.budget import READ_BYTES, STUCK_S, Budget

LIMIT = 100 * READ_BYTES
PIECE = 10 * READ_BYTES


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Peer:
    """A connection that holds what the test says."""

    def __init__(self, name: str, budget: Budget) -> None:
        self.name = name
        self.budget = budget
        self.size = 0
        self.turns = 0
        self.has_ended = False

    def __repr__(self) -> str:
        return self.name

    def holds(self, size: int) -> None:
        self.size = size
        self.budget.note(self, size)

    def held_bytes(self) -> int:
        return self.size

    def may_read(self) -> None:
        self.turns += 1

    def make_room(self) -> None:
        self.has_ended = True
        # As a real one does: what it held is told once more while it ends.
        self.budget.note(self, self.size)
        self.budget.note_head(self, 0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def budget(clock: Clock) -> Budget:
    return Budget(limit_bytes=LIMIT, clock=clock)


def filled(budget: Budget, *, pieces: int) -> list[Peer]:
    """Returns peers that hold a tenth of the limit each, the one that held first first."""
    peers = [Peer(f"peer-{number}", budget) for number in range(pieces)]
    for peer in peers:
        peer.holds(PIECE)
    return peers


def waiting(budget: Budget, count: int = 1) -> list[Peer]:
    peers = [Peer(f"waits-{number}", budget) for number in range(count)]
    for peer in peers:
        budget.wait(peer)
    return peers


async def test_what_all_hold_is_added_up(budget):
    first, second = filled(budget, pieces=2)
    budget.note_head(second, 300)

    assert budget.held_bytes == 2 * PIECE + 300
    first.holds(7)
    budget.forget(second)
    assert budget.held_bytes == 7


async def test_up_to_the_limit_nobody_waits_or_ends(budget):
    peers = filled(budget, pieces=10)

    budget.settle()

    assert not budget.is_tight
    assert not any(peer.has_ended for peer in peers)


async def test_over_the_limit_a_turn_is_given_while_there_is_room_for_what_it_may_bring(budget):
    filled(budget, pieces=12)  # of the quarter above the limit, five reads are left
    assert budget.is_tight
    peers = waiting(budget, 8)

    budget.settle()

    assert [peer.turns for peer in peers] == [1, 1, 1, 1, 1, 0, 0, 0]


async def test_who_waited_longest_has_the_next_turn(budget):
    filled(budget, pieces=12)
    peers = waiting(budget, 8)

    budget.settle()
    budget.wait(peers[0])
    budget.settle()

    assert [peer.turns for peer in peers] == [2, 1, 1, 1, 1, 1, 1, 1]


async def test_once_there_is_less_everyone_has_a_turn(budget):
    holders = filled(budget, pieces=13)
    peers = waiting(budget, 50)
    budget.settle()
    assert not any(peer.turns for peer in peers)

    for holder in holders[:4]:
        holder.holds(0)
    budget.settle()

    assert all(peer.turns == 1 for peer in peers)


async def test_without_room_the_one_that_has_been_stuck_longest_ends_for_those_who_wait(
    budget, clock
):
    holders = filled(budget, pieces=13)
    clock.now += STUCK_S
    (peer,) = waiting(budget)

    budget.settle()

    assert [holder for holder in holders if holder.has_ended] == holders[:1]
    assert peer.turns == 1
    assert budget.ended == 1


async def test_who_is_slow_and_moves_is_not_taken_for_stuck(budget, clock):
    holders = filled(budget, pieces=13)
    clock.now += STUCK_S
    for holder in holders[:-1]:
        holder.size -= 1  # not told yet: small steps are looked for
    waiting(budget)

    budget.settle()

    assert [holder for holder in holders if holder.has_ended] == holders[-1:]


async def test_who_is_stuck_harms_nobody_while_nobody_waits(budget, clock):
    holders = filled(budget, pieces=13)
    clock.now += 1000 * STUCK_S

    budget.settle()

    assert not any(holder.has_ended for holder in holders)


async def test_nobody_is_ended_before_it_was_stuck_for_a_while(budget, clock):
    holders = filled(budget, pieces=13)
    clock.now += STUCK_S - 0.1
    (peer,) = waiting(budget)

    budget.settle()

    assert not any(holder.has_ended for holder in holders)
    assert not peer.turns
    assert budget.is_waiting(peer)


async def test_half_as_much_again_is_never_held_after_a_turn_of_the_loop(budget):
    holders = filled(budget, pieces=18)

    budget.settle()

    assert [holder for holder in holders if holder.has_ended] == holders[:3]
    assert budget.held_bytes == 15 * PIECE


async def test_who_moves_goes_to_the_end_of_those_that_end(budget):
    holders = filled(budget, pieces=16)
    holders[0].holds(PIECE - 1)

    budget.settle()

    assert [holder for holder in holders if holder.has_ended] == holders[1:2]


async def test_unfinished_heads_have_half_the_limit_and_the_oldest_go(budget):
    peers = [Peer(f"head-{number}", budget) for number in range(6)]
    for peer in peers:
        budget.note_head(peer, PIECE)

    budget.settle()

    assert [peer for peer in peers if peer.has_ended] == peers[:1]
    assert not budget.is_tight


async def test_a_head_that_grows_stays_where_it_was(budget):
    peers = [Peer(f"head-{number}", budget) for number in range(6)]
    for peer in peers:
        budget.note_head(peer, PIECE // 2)
    for peer in reversed(peers):
        budget.note_head(peer, PIECE)

    budget.settle()

    assert [peer for peer in peers if peer.has_ended] == peers[:1]


async def test_heads_alone_end_where_nothing_else_is_held(clock):
    budget = Budget(limit_bytes=LIMIT, clock=clock)
    peers = filled(budget, pieces=11)
    for peer in peers:
        budget.note_head(peer, PIECE // 2)
    for peer in peers:
        peer.holds(0)

    budget.settle()

    assert sum(peer.has_ended for peer in peers) == 1


async def test_a_full_house_of_waiters_has_its_turns_by_and_by(budget):
    holders = filled(budget, pieces=12)
    peers = waiting(budget, 100)

    for _ in range(20):
        budget.settle()

    assert all(peer.turns == 1 for peer in peers)
    assert not any(holder.has_ended for holder in holders)


async def test_what_became_less_unsaid_is_looked_for(budget):
    (peer,) = filled(budget, pieces=1)
    peer.size = 5

    budget.look(1.0)
    assert budget.held_bytes == 5
    peer.size = 4
    budget.look(1.5)
    assert budget.held_bytes == 5, "about once a second"


async def test_who_left_has_no_turn(budget):
    filled(budget, pieces=11)
    (peer,) = waiting(budget)

    budget.forget(peer)
    budget.settle()

    assert not peer.turns
    assert not budget.is_waiting(peer)


async def test_the_log_says_once_a_minute_that_memory_is_short_and_what_was_ended(
    budget, clock, caplog
):
    with caplog.at_level(logging.WARNING):
        filled(budget, pieces=16)
        budget.settle()
        filled(budget, pieces=2)
        budget.settle()
        clock.now += 61
        filled(budget, pieces=1)
        budget.settle()

    tight, ended = "connections hold more than", "connections were ended"
    said = [tight if tight in record.message else ended for record in caplog.records]
    assert said == [tight, ended, tight, ended]
    assert caplog.records[-1].fields["ended_since_start"] == 4
    assert caplog.records[0].fields["limit_bytes"] == LIMIT


async def test_its_state_is_visible(budget):
    filled(budget, pieces=1)

    assert repr(budget) == f"<Budget {PIECE} of {LIMIT} bytes holders=1 heads=0 waiting=0>"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["holds", "head", "wait", "forget", "settle", "look", "later"]),
        st.integers(0, 9),
        st.integers(0, 30 * READ_BYTES),
    ),
    max_size=60,
)


@given(STEPS)
async def test_the_sum_is_right_after_any_steps(steps):
    clock = Clock()
    budget = Budget(limit_bytes=LIMIT, clock=clock)
    peers = [Peer(str(number), budget) for number in range(10)]
    heads = dict.fromkeys(peers, 0)
    for what, who, size in steps:
        peer = peers[who]
        if what == "holds":
            peer.holds(size)
        elif what == "head":
            heads[peer] = size
            budget.note_head(peer, size)
        elif what == "wait":
            budget.wait(peer)
        elif what == "forget":
            peer.size = heads[peer] = 0
            budget.forget(peer)
        elif what == "settle":
            budget.settle()
            assert budget.held_bytes <= LIMIT * 1.5
        elif what == "look":
            budget.look(clock.now)
        else:
            clock.now += size / READ_BYTES
        for ended in [peer for peer in peers if peer.has_ended]:
            ended.has_ended = False
            ended.size = heads[ended] = 0
    assert budget.held_bytes == sum(peer.size for peer in peers) + sum(heads.values())
    assert budget.is_tight == (budget.held_bytes > LIMIT)
