"""Tests of the frozen values that settings become."""

from __future__ import annotations

import dataclasses

import pytest

from router.settings import Address, load
from router.settings.groups import Settings

LEAST = {"auth": "none", "discovery": "dns"}


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address("", 80), ":80"),
        (Address("::1", 80), "[::1]:80"),
        (Address("10.0.0.1", 80), "10.0.0.1:80"),
    ],
)
def test_an_address_is_written_as_it_is_configured(address: Address, text: str) -> None:
    assert str(address) == text


def test_settings_can_not_be_changed_after_the_start() -> None:
    settings = load(LEAST).settings

    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.time.proxy_timeout_s = 1.0  # type: ignore[misc]


def test_a_token_never_shows_in_a_representation() -> None:
    settings = load({"discovery": "dns"}, {"ROUTER_AUTH_TOKEN": "correct-horse-battery"}).settings

    assert settings.auth.static_token == "correct-horse-battery"
    assert "correct" not in repr(settings)


def test_every_group_of_settings_is_a_slotted_value() -> None:
    settings = load(LEAST).settings

    for field in dataclasses.fields(Settings):
        assert not hasattr(getattr(settings, field.name), "__dict__")
