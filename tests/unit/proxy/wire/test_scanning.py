"""Tests that the scanner's tables say what the Python readers do. Its behaviour: tests/fuzz."""

import re

import pytest

from router import code_form
from router.proxy.wire import request_head, response_head, scanning
from router.proxy.wire.head_lines import Action, Crossing
from router.proxy.wire.header_rules import REQUEST_KINDS, RESPONSE_KINDS, Kind
from router.routing.target import Asked

SOURCE = (code_form.PACKAGE / "proxy" / "wire" / "scanner.pyx").read_text("utf-8")


def numbers(of: type) -> dict[str, int]:
    return {name: value for name, value in vars(of).items() if name.isupper()}


@pytest.mark.parametrize("of", [Action, Crossing])
def test_both_languages_number_alike(of):
    prefix = of.__name__.upper() + "_"
    found = re.findall(rf"^    {prefix}(\w+) = (\d+)$", SOURCE, re.MULTILINE)
    assert {name: int(number) for name, number in found} == numbers(of)


@pytest.mark.parametrize(
    ("actions", "readers"),
    [
        (request_head.ACTIONS, request_head._REQUEST_READERS),
        (response_head.ACTIONS, response_head._RESPONSE_READERS),
    ],
)
def test_only_a_kind_that_python_reads_nothing_of_is_nothing_to_the_scanner(actions, readers):
    nothing = {kind for kind, (action, _) in actions.items() if action == Action.NOTHING}
    assert all(readers[kind] is None for kind in nothing)


def test_a_routing_headers_place_is_its_place_in_asked():
    places = {
        name: request_head.ACTIONS[REQUEST_KINDS[f"x-sandbox-{name}".encode()]][1]
        for name in ("id", "namespace", "port", "uid", "pod-ip", "timeout")
    }
    assert list(places.values()) == list(range(len(Asked._fields)))


@pytest.mark.parametrize("actions", [request_head.ACTIONS, response_head.ACTIONS])
def test_an_attribute_is_one_that_the_head_has(actions):
    names = {where for _, where in actions.values() if isinstance(where, str) and where}
    assert all(hasattr(request_head.RequestHead, name) for name in names)


def test_a_kind_without_an_action_is_left_to_python():
    table = scanning._by_kind({Kind.DROP: (Action.NOTHING, ""), Kind.HOST: (Action.HOST, "")})
    assert table[Kind.HOST] == (Action.HOST, "")
    assert table[Kind.TE] == (Action.UNSURE, "")


@pytest.mark.parametrize("kinds", [REQUEST_KINDS, RESPONSE_KINDS])
def test_every_name_with_a_rule_is_known_from_the_start_in_its_usual_spellings(kinds):
    spellings = set(scanning._spellings(kinds))
    assert {*kinds.names, *(name.title() for name in kinds.names)} <= spellings


def test_the_scanner_is_used_by_a_process_that_runs_the_compiled_form_alone():
    assert bool(code_form.CURRENT.modules) == scanning.IS_COMPILED
