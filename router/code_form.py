"""Which form of the code runs: compiled, or the pure Python that it was compiled from.

The build (hatch_build.py) puts extension modules into `_compiled/`, apart from the sources, with a manifest that holds the
digest of every file they were made of. They are used only while each digest is still right: an edited file runs as edited.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final

VARIABLE: Final = "SANDBOX_ROUTER_FORM"
"""auto: compiled where it was built and is up to date. pure: never compiled. compiled: refuse to start in pure Python."""
CHOICES: Final = ("auto", "pure", "compiled")
FORMS: Final = ("compiled", "pure")
MANIFEST: Final = "manifest.json"
PACKAGE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class CodeForm:
    """The form that runs, and why not the other."""

    modules: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The extension module's file of each compiled module; empty in pure Python."""
    reason: str = ""
    """Why pure Python runs; empty when the compiled form does."""
    problem: str = ""
    """Why the router must not start; empty when it may."""

    def __str__(self) -> str:
        return "compiled" if self.modules else "pure"

    def as_sentence(self) -> str:
        """Returns the form in words, with why the compiled one doesn't run."""
        return f"pure Python form ({self.reason})" if self.reason else "compiled form"


def compiled_folder(package: Path) -> Path:
    """Returns where the extension modules for this Python and platform are, or would be."""
    return package / "_compiled" / EXTENSION_SUFFIXES[0].removesuffix(".so").strip(".")


def digests(package: Path, files: Iterable[str]) -> dict[str, str]:
    """Returns the SHA-256 of each file, named by its path inside the package. Raises OSError."""
    return {file: hashlib.sha256((package / file).read_bytes()).hexdigest() for file in files}


def choose(package: Path, wish: str) -> CodeForm:
    """Returns the form to run when the environment says `wish`; empty means auto."""
    if wish and wish not in CHOICES:
        return CodeForm(
            reason=f"{VARIABLE} is {wish!r}",
            problem=f"{VARIABLE} is {wish!r}; it may be {', '.join(CHOICES)}",
        )
    if wish == "pure":
        return CodeForm(reason=f"{VARIABLE} is pure")
    found = _built(package)
    if wish == "compiled" and not found.modules:
        return CodeForm(
            reason=found.reason,
            problem=f"{VARIABLE} is compiled, but {found.reason}; "
            f"run `make compile`, install a wheel that was built with a C compiler, or unset {VARIABLE}",
        )
    return found


def _built(package: Path) -> CodeForm:
    folder = compiled_folder(package)
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return CodeForm(reason="it was not built for this Python")
    except (OSError, ValueError) as error:
        return CodeForm(reason=f"{folder / MANIFEST} can't be read ({error})")
    try:
        changed = _changed(package, manifest["sources"])
    except OSError as error:
        return CodeForm(reason=f"a source of it is gone ({error})")
    if changed:
        return CodeForm(reason=f"{changed[0]} has changed since it was built")
    modules = {name: str(folder / file) for name, file in manifest["modules"].items()}
    return CodeForm(modules=modules) if modules else CodeForm(reason="nothing is compiled yet")


def _changed(package: Path, sources: Mapping[str, str]) -> list[str]:
    now = digests(package, sources)
    return [file for file, digest in sources.items() if now[file] != digest]


class CompiledFinder:
    """Finds the extension module of each module that was compiled; every other import goes on as usual."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Returns the spec of a compiled module, None for any other."""
        file = self._modules.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


CURRENT: Final = choose(PACKAGE, os.environ.get(VARIABLE, ""))
"""The form of this process, chosen before the first module that could be compiled is imported."""


def install() -> None:
    """Lets imports find the compiled modules, if this process is to use them."""
    if CURRENT.modules:
        sys.meta_path.insert(0, CompiledFinder(CURRENT.modules))
