"""Priority of what is measured."""

from __future__ import annotations

import os

import pytest

from bench import priority


def test_the_process_gets_the_core_whenever_it_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = {0: os.SCHED_OTHER}

    def set_policy(pid: int, policy: int, param: os.sched_param) -> None:
        assert param.sched_priority == 1
        policies[pid] = policy

    monkeypatch.setattr(priority.os, "sched_setscheduler", set_policy)
    monkeypatch.setattr(priority.os, "sched_getscheduler", policies.__getitem__)
    assert not priority.is_in_a_hurry()

    assert priority.hurry()
    assert priority.is_in_a_hurry()


def test_where_it_is_not_allowed_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_wished: object) -> None:
        raise PermissionError

    monkeypatch.setattr(priority.os, "sched_setscheduler", refuse)

    assert not priority.hurry()
