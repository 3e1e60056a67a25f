"""Which form of the router a process runs: compiled modules, or Python alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType

PURE, COMPILED = "pure", "compiled"


def loaded_form(modules: Mapping[str, ModuleType] | None = None) -> str:
    """Returns the form of the router's modules that this process has imported."""
    files = (
        getattr(module, "__file__", None) or ""
        for name, module in (modules or dict(sys.modules)).items()
        if name.partition(".")[0] == "router"
    )
    is_compiled = any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files)
    return COMPILED if is_compiled else PURE
