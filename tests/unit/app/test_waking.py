"""Waking is built where it is wanted and can be had, and workers share the rates."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from router.app.waking import build_wakes, needs_wakes, outlook_of
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from router.settings import Settings, load

KUBERNETES = {"auth": "none", "discovery": "kubernetes"}


def settings(**said: str) -> Settings:
    environment = {
        f"SANDBOX_ROUTER_{key.upper().replace('-', '_')}": value
        for key, value in {**KUBERNETES, **said}.items()
    }
    return load(environment=environment).settings


def built(wanted: Settings) -> Any:
    anything: Any = object()
    index = EndpointIndex(waiting_room=1, waiting_room_per_namespace=1)
    resources = contextlib.AsyncExitStack()
    return build_wakes(wanted, resources, waker=anything, index=index, telemetry=anything)


def test_nothing_is_built_while_waking_is_off() -> None:
    assert not needs_wakes(settings())
    assert built(settings()) is None


@pytest.mark.parametrize("wake", ["annotated", "all"])
def test_it_is_built_where_the_operator_wants_it(wake: str) -> None:
    wanted = settings(wake=wake)
    assert needs_wakes(wanted)
    assert built(wanted) is not None


def test_an_explanation_asks_what_wakes_or_says_that_nothing_does() -> None:
    box = Endpoint(SandboxRef("a", "b"), "", State.SUSPENDED)
    assert outlook_of(None)(box) == "nothing is woken here"
    assert outlook_of(built(settings(wake="all")))(box) == "it would be woken at once"


def test_workers_share_what_one_router_may_begin() -> None:
    alone = built(settings(wake="all", **{"wake-rate": "8"}))
    shared = built(settings(wake="all", workers="4", **{"wake-rate": "8"}))
    assert repr(alone._bucket).startswith("<TokenBucket rate=8 ")
    assert repr(shared._bucket).startswith("<TokenBucket rate=2 ")
