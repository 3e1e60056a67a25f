"""The benchmark of authentication measures what it names."""

from __future__ import annotations

import pytest

from bench import auth


def test_it_prints_a_cost_for_every_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(auth, "ROUNDS", 1)
    monkeypatch.setattr(auth.measure, "__kwdefaults__", {"per_round": 20})

    auth.main()

    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == 13
    assert all(row.startswith("| ") and row.count("|") == 3 for row in rows)


def test_a_slower_call_costs_more() -> None:
    quick = auth.measure(lambda: None, per_round=200)
    slow = auth.measure(lambda: sum(range(2000)), per_round=200)

    assert slow > quick + 5
