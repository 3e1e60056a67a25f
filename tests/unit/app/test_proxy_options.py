"""The settings as the data path takes them: 0 that means off never ends, and each worker has its share."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from router.app.proxy_options import options_of, places_of
from router.proxy.options import NEVER
from router.routing.elsewhere import ALONE
from router.settings import Settings

MakeSettings = Callable[..., Settings]


def test_a_duration_of_nothing_never_ends(make_settings: MakeSettings) -> None:
    off = {
        "stream_idle_timeout": "0",
        "tunnel_idle_timeout": "0",
        "tunnel_max_lifetime": "0",
    }
    limits = options_of(make_settings(**off))
    assert limits.stream_idle_timeout_s == NEVER
    assert limits.tunnel_idle_timeout_s == NEVER
    assert limits.tunnel_max_lifetime_s == NEVER
    assert limits.proxy_timeout_s == 180.0
    assert limits.wait_for_ready_s == 10.0


def test_only_a_watch_may_hear_of_a_name_too_late(make_settings: MakeSettings) -> None:
    assert options_of(make_settings(discovery="kubernetes")).unknown_grace_s > 0
    for discovery in ("file", "dns"):
        assert options_of(make_settings(discovery=discovery)).unknown_grace_s == 0


def test_the_places_are_the_pods_and_no_more_than_there_are_open_files_for_here(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (262, 262))
    places = places_of(make_settings(max_connections=10, workers=2), ALONE)
    assert places.limit == 10
    for _ in range(3):
        assert not places.is_full()
        places.take()
    assert places.is_full()
