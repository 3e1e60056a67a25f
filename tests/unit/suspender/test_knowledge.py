from __future__ import annotations

from router.routing.endpoint import SandboxRef
from router.suspender.activity import Answer, Seen
from router.suspender.knowledge import INFINITELY_LONG_AGO, Knowledge

BOX = SandboxRef("ns", "box")


def answer(uptime_s: float = 1e6, *, idle_s: float | None = None, awake_s: float = 0.0) -> Answer:
    seen = {} if idle_s is None else {BOX: Seen(idle_s, awake_s)}
    return Answer(uptime_s, seen)


def test_an_address_that_leads_to_several_routers_never_makes_knowledge_complete() -> None:
    knowledge = Knowledge(now=0.0)
    for number in range(6):
        one = Answer(1e6, {}, process=f"process-{number % 2}")
        learned(knowledge, {"service:9090": one}, 1000.0 + 15.0 * number)
        assert knowledge.complete_since == (1000.0 + 15.0 * number if number else 0.0)


def test_a_promise_outlives_the_process_that_gave_it() -> None:
    knowledge = Knowledge(now=0.0)
    learned(knowledge, {"a": Answer(1e6, {BOX: Seen(0.0, 600.0)}, process="one")}, 1000.0)
    learned(knowledge, {"a": Answer(1e6, {}, process="two")}, 1015.0)
    assert knowledge.awake_until(BOX) == 1600.0


def learned(knowledge: Knowledge, answers: dict[str, Answer], at: float) -> None:
    knowledge.found(list(answers), is_continuous=True, now=at)
    knowledge.learn(answers, asked_at=at, answered_at=at)


def test_nothing_is_complete_before_the_start() -> None:
    assert Knowledge(now=100.0).complete_since == 100.0


def test_what_the_last_of_the_routers_saw_counts() -> None:
    knowledge = Knowledge(now=0.0)

    learned(knowledge, {"a": answer(idle_s=50.0), "b": answer(idle_s=20.0)}, 1000.0)

    assert knowledge.last_activity(BOX) == 980.0
    assert knowledge.last_activity(SandboxRef("ns", "other")) == INFINITELY_LONG_AGO


def test_an_age_counts_from_when_the_answer_came_and_what_is_known_from_when_it_was_asked_for() -> (
    None
):
    knowledge = Knowledge(now=0.0)

    knowledge.learn({"a": answer(600.0, idle_s=50.0)}, asked_at=1000.0, answered_at=1004.0)

    assert knowledge.last_activity(BOX) == 954.0
    assert knowledge.asked_at == 1000.0
    assert knowledge.complete_since == 404.0


def test_a_router_that_began_later_makes_knowledge_begin_later() -> None:
    knowledge = Knowledge(now=0.0)

    learned(knowledge, {"a": answer(), "b": answer(uptime_s=10.0)}, 1000.0)

    assert knowledge.complete_since == 990.0


def test_a_router_that_is_gone_may_have_seen_something_until_just_now() -> None:
    knowledge = Knowledge(now=0.0)
    learned(knowledge, {"a": answer(), "b": answer()}, 1000.0)

    learned(knowledge, {"a": answer()}, 1015.0)

    assert knowledge.complete_since == 1015.0


def test_one_that_came_and_went_unseen_counts_like_one_that_is_gone() -> None:
    knowledge = Knowledge(now=0.0)
    learned(knowledge, {"a": answer()}, 1000.0)

    knowledge.found(["a"], is_continuous=False, now=1015.0)

    assert knowledge.complete_since == 1015.0


def test_a_round_in_which_nobody_answered_forgets_no_router() -> None:
    knowledge = Knowledge(now=0.0)
    learned(knowledge, {"a": answer(), "b": answer()}, 1000.0)
    knowledge.found(["a", "b"], is_continuous=True, now=1015.0)

    learned(knowledge, {"a": answer(), "b": answer()}, 1030.0)

    assert knowledge.complete_since == 0.0


def test_a_promise_to_keep_awake_outlives_the_router_that_was_asked() -> None:
    knowledge = Knowledge(now=0.0)
    learned(knowledge, {"a": answer(idle_s=1.0, awake_s=500.0), "b": answer()}, 1000.0)

    learned(knowledge, {"b": answer()}, 1015.0)

    assert knowledge.awake_until(BOX) == 1500.0


def test_a_promise_outlives_a_restart_in_place() -> None:
    knowledge = Knowledge(now=0.0)
    learned(knowledge, {"a": answer(idle_s=1.0, awake_s=500.0)}, 1000.0)

    learned(knowledge, {"a": answer(uptime_s=5.0)}, 1015.0)

    assert knowledge.awake_until(BOX) == 1500.0


def test_a_router_that_takes_its_word_back_is_believed() -> None:
    knowledge = Knowledge(now=0.0)
    learned(knowledge, {"a": answer(idle_s=1.0, awake_s=500.0)}, 1000.0)

    learned(knowledge, {"a": answer(1e6 + 15.0, idle_s=16.0)}, 1015.0)

    assert knowledge.awake_until(BOX) == INFINITELY_LONG_AGO


def test_promises_that_are_over_are_forgotten() -> None:
    knowledge = Knowledge(now=0.0)
    learned(knowledge, {"a": answer(idle_s=1.0, awake_s=500.0), "b": answer()}, 1000.0)
    learned(knowledge, {"b": answer()}, 1015.0)

    learned(knowledge, {"b": answer()}, 1501.0)

    assert knowledge.awake_until(BOX) == INFINITELY_LONG_AGO
