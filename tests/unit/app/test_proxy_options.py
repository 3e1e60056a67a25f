"""The settings as the data path takes them: 0 that means off never ends, and each worker has its share."""

from __future__ import annotations

from collections.abc import Callable

from router.app.proxy_options import options_of
from router.proxy.ports import NEVER
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
