"""Which form of the router runs."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType

import pytest

from bench.forms import COMPILED, PURE, loaded_form


def module(name: str, file: str | None) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = file
    return made


@pytest.mark.parametrize(
    ("name", "file", "form"),
    [
        ("router.proxy.head", "/x/router/proxy/head.py", PURE),
        ("router.proxy", None, PURE),
        ("router.proxy._wire", f"/x/router/proxy/_wire{EXTENSION_SUFFIXES[0]}", COMPILED),
        ("orjson.orjson", f"/x/orjson/orjson{EXTENSION_SUFFIXES[0]}", PURE),
    ],
)
def test_the_form_is_that_of_the_routers_own_modules(
    name: str, file: str | None, form: str
) -> None:
    assert loaded_form({name: module(name, file)}) == form
