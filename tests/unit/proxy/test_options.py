"""Limits are off unless they are said."""

from __future__ import annotations

import dataclasses

import pytest

from router.proxy.options import NEVER, ProxyOptions


def test_a_limit_that_is_not_said_is_off() -> None:
    limits = ProxyOptions()
    for field in dataclasses.fields(limits):
        value = getattr(limits, field.name)
        if field.name in ("max_header_bytes", "max_request_line_bytes"):
            assert value > 0, "a head always has a bound"
        elif field.name.endswith("_timeout_s") or field.name in (
            "tunnel_max_lifetime_s",
            "connect_budget_s",
        ):
            assert value == NEVER, field.name
        elif field.name == "origin_policy":
            assert value == "rewrite"
        elif field.name == "path_mode":
            assert value == "strip"
        else:
            assert not value, field.name


def test_limits_are_said_by_name_and_never_change() -> None:
    with pytest.raises(TypeError):
        ProxyOptions(1.0)  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        ProxyOptions().max_body_bytes = 1  # type: ignore[misc]
