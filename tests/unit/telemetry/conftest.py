"""What several tests of this room need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from router.proxy.request import Outcome


@pytest.fixture
def make_outcome() -> Callable[..., Outcome]:
    """Returns a maker of outcomes: a plain, successful GET, whose attributes the keywords replace."""

    def make(**facts: Any) -> Outcome:
        made = Outcome(method=b"GET", path=b"/", client="192.0.2.7", started_at=1_790_000_000.25)
        made.status = 200
        made.namespace = "team-a"
        made.sandbox = "box"
        made.port = 8888
        made.pod_uid = "0b5c"
        made.principal = "alice"
        made.authz = "allowed"
        made.total_s = 0.004
        for name, value in facts.items():
            setattr(made, name, value)
        return made

    return make
