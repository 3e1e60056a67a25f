from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.discovery.multimap import MultiMap
from router.routing.endpoint import SandboxRef

keys = st.sampled_from("ab")
values = st.builds(SandboxRef, st.just("ns"), st.sampled_from("xyz"))


@given(st.lists(st.tuples(st.booleans(), keys, values)))
def test_it_behaves_as_a_dict_of_ordered_sets(steps: list[tuple[bool, str, SandboxRef]]) -> None:
    found: MultiMap[str, SandboxRef] = MultiMap()
    model: dict[str, list[SandboxRef]] = {}

    for is_addition, key, value in steps:
        if is_addition:
            found.add(key, value)
            if value not in model.setdefault(key, []):
                model[key].append(value)
        else:
            found.discard(key, value)
            if value in model.get(key, []):
                model[key].remove(value)

    model = {key: kept for key, kept in model.items() if kept}
    assert {key: list(found.get(key)) for key in found} == model
    assert len(found) == len(model)


def test_a_named_tuple_is_one_value() -> None:
    found: MultiMap[str, SandboxRef] = MultiMap()
    found.add("a", SandboxRef("ns", "x"))

    assert found.get("a") == (SandboxRef("ns", "x"),)
    assert found.is_only("a", SandboxRef("ns", "x"))
    assert not found.is_only("a", SandboxRef("ns", "y"))
    assert found.is_only("b", SandboxRef("ns", "y"))
