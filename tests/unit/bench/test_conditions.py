"""The conditions of a run."""

from __future__ import annotations

import dataclasses

from bench import conditions


def test_the_conditions_name_no_path_of_the_machine() -> None:
    noted = conditions.note(rounds=1, window_s=4.0, versions={"envoy": "1.40.0"}, shared_core=True)

    said = " ".join(str(value) for value in dataclasses.asdict(noted).values())
    assert " /" not in said
    assert noted.cpu
    assert noted.kernel
    assert noted.cores >= 1
