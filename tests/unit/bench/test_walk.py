"""The walk of one GET."""

from __future__ import annotations

import sys
import textwrap
from types import ModuleType

import pytest

from bench.plane_stage import perform
from bench.walk import Call, Walk, of_one_get, to_text
from router import code_form


def test_the_walk_of_a_get_goes_from_the_clients_bytes_to_the_answer() -> None:
    walk = perform(of_one_get)

    functions = [call.function for call in walk.calls]
    assert walk.calls[0].depth == 0
    assert any(name.endswith("EndpointIndex.find") for name in functions)
    assert any(name.endswith("request_finished") for name in functions)
    assert set(walk.modules) == {call.module for call in walk.calls}
    assert sys.getprofile() is None


@pytest.mark.skipif(bool(code_form.CURRENT.modules), reason="compiled calls aren't seen")
def test_the_way_of_a_get_stays_short_enough_to_be_read() -> None:
    walk = perform(of_one_get)

    assert len(walk.calls) <= 45
    assert len(walk.modules) <= 14


def test_only_the_packages_own_calls_are_noted_with_their_depth() -> None:
    ours, theirs = ModuleType("walked.one"), ModuleType("elsewhere")
    exec("def between(call):\n    return call()", theirs.__dict__)
    ours.__dict__["between"] = theirs.__dict__["between"]
    code = """
    def outer():
        inner()
        between(inner)
        inner()
    def inner():
        pass
    """
    exec(textwrap.dedent(code), ours.__dict__)
    walk = Walk("walked")

    with walk.watching():
        ours.__dict__["outer"]()

    assert [(call.depth, call.function) for call in walk.calls] == [
        (0, "outer"),
        (1, "inner"),
        (1, "inner"),
        (1, "inner"),
    ]
    assert walk.modules == ["walked.one"]


def test_a_walk_is_printed_a_line_a_call() -> None:
    calls = [Call(0, "router.a", "f"), Call(1, "router.b", "C.g")]

    assert to_text(calls) == "router.a.f\n  router.b.C.g"
