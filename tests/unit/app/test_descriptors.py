"""Open files: what the limit is raised to, and how many connections that is."""

from __future__ import annotations

import logging
import resource

import pytest

from router.app import descriptors
from router.app.descriptors import connections_allowed


@pytest.mark.parametrize(
    ("open_files", "wanted", "workers", "allowed"),
    [
        (456, 100, 1, 100),
        (455, 100, 1, 99),
        (456, 300, 2, 200),
        (64, 100, 1, 1),
        (64, 0, 1, 0),
        (resource.RLIM_INFINITY, 10_000, 1, 10_000),
    ],
)
def test_as_many_connections_are_taken_as_there_are_descriptors_for(
    open_files: int, wanted: int, workers: int, allowed: int
) -> None:
    assert connections_allowed(open_files, wanted=wanted, workers=workers) == allowed


def test_the_limit_goes_up_as_far_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda kind: (1024, 4096))
    monkeypatch.setattr(descriptors.resource, "setrlimit", lambda kind, to: asked.append(to))
    assert descriptors.raise_limit() == 4096
    assert asked == [(4096, 4096)]


def test_a_limit_that_may_not_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int, to: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda kind: (1024, -1))
    monkeypatch.setattr(descriptors.resource, "setrlimit", refuse)
    assert descriptors.raise_limit() == 1024


@pytest.mark.parametrize(
    ("wanted", "allowed", "said"),
    [
        (100, 100, "open files allow max-connections"),
        (100, 50, "open files allow fewer connections than max-connections: this many are taken"),
    ],
)
def test_one_line_says_what_it_comes_to(
    wanted: int, allowed: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        descriptors.tell(456, wanted=wanted, allowed=allowed)
    (record,) = caplog.records
    assert (record.levelno, record.message) == (logging.INFO, said)
    assert record.fields["max_connections"] == allowed  # type: ignore[attr-defined]


@pytest.mark.parametrize(("soft", "here"), [(1256, 500), (10**6, 1000)])
def test_one_process_has_what_its_own_open_files_are_enough_for(
    monkeypatch: pytest.MonkeyPatch, soft: int, here: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, soft))
    assert descriptors.connections_here(1000) == here
