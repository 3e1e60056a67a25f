"""Tests that the table of settings is whole and agrees with the groups."""

from __future__ import annotations

import dataclasses
import re

import pytest

from router.settings import load
from router.settings.groups import Settings
from router.settings.loading import GROUP_TYPES
from router.settings.table import FILE_KEYS, GROUPS, TABLE, Setting
from router.settings.values import BadValueError

ROWS = list(TABLE.values())


def test_the_groups_of_the_table_are_the_groups_of_settings() -> None:
    assert list(GROUPS) == [field.name for field in dataclasses.fields(Settings)]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_an_attribute_for_each_row_in_the_same_order(group: str) -> None:
    fields = [field.name for field in dataclasses.fields(GROUP_TYPES[group])]

    assert fields == [row.attribute for row in GROUPS[group]]
    assert {row.group for row in GROUPS[group]} == {group}


def test_no_key_stands_twice() -> None:
    assert len(TABLE) == sum(len(rows) for rows in GROUPS.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_every_row_tells_its_default_and_its_meaning(row: Setting) -> None:
    assert row.help.endswith(".")
    assert row.default or row.shown_default


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.default is not None], ids=lambda row: row.key
)
def test_every_default_is_a_value_that_a_user_may_write(row: Setting) -> None:
    assert row.default is not None
    value = row.kind.read(row.default)
    shown = row.kind.show(value)

    assert row.kind.read(tuple(shown) if isinstance(shown, list) else str(shown)) == value


def _takes_zero(row: Setting) -> bool:
    try:
        return row.kind.read("0") == 0
    except BadValueError:
        return False


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.kind.name in ("duration", "number", "bytes") and _takes_zero(row)],
    ids=lambda row: row.key,
)
def test_every_row_that_takes_zero_says_what_zero_means(row: Setting) -> None:
    assert re.search(r"\b0 = \w", row.help)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_where_off_and_zero_differ_the_row_says_both(row: Setting) -> None:
    if row.kind.name != "duration" or not _takes_zero(row):
        return
    differ = row.kind.read("off") != row.kind.read("0")

    assert differ == ("`off` =" in row.help)


def test_names_follow_from_the_key() -> None:
    row = TABLE["proxy-timeout"]

    assert (row.flag, row.variable, row.attribute) == (
        "--proxy-timeout",
        "SANDBOX_ROUTER_PROXY_TIMEOUT",
        "proxy_timeout_s",
    )
    assert row.value_in(load({"auth": "none", "discovery": "dns"}).settings) == 180.0


def test_the_only_secret_can_be_set_neither_by_flag_nor_in_the_file() -> None:
    assert [key for key in TABLE if key not in FILE_KEYS] == ["static-token"]


def test_the_names_of_older_deployments_are_honoured() -> None:
    older = {name: row.key for row in ROWS for name in row.legacy}

    assert older == {
        "PROXY_TIMEOUT_SECONDS": "proxy-timeout",
        "CLUSTER_DOMAIN": "cluster-domain",
        "ROUTER_AUTH_TOKEN": "static-token",
        "TRUSTED_PROXY_CIDRS": "trusted-proxies",
        "MAX_KEEPALIVE_CONNECTIONS": "max-idle-upstream",
        "WEBSOCKET_IDLE_TIMEOUT_SECONDS": "tunnel-idle-timeout",
        "WEBSOCKET_MAX_LIFETIME_SECONDS": "tunnel-max-lifetime",
        "WEBSOCKET_MAX_CONNECTIONS_PER_CLIENT": "max-tunnels-per-client",
        "KUBECONFIG": "kubeconfig",
    }
