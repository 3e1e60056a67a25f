"""Builds the compiled form of the router: for a wheel or an editable install (a hatchling hook), and for `make compile`.

Extension modules and a manifest go into router/_compiled/<Python and platform>/; router/code_form.py decides whether they are
used. SANDBOX_ROUTER_BUILD says what a build does: `auto` (the default) compiles where there is a C compiler, `pure` never does,
`compiled` fails without one.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from router.code_form import CHOICES, MANIFEST, compiled_folder, digests  # noqa: E402

VARIABLE = "SANDBOX_ROUTER_BUILD"

CYTHON = ("proxy/wire/*.pyx",)
"""Sources in Cython, as patterns inside router/."""
MYPYC: tuple[str, ...] = (
    "proxy/*.py",
    "proxy/wire/*.py",
    "auth/authorizer.py",
    "routing/index.py",
    "routing/source.py",
    "telemetry/access_log.py",
    "telemetry/activity.py",
    "telemetry/recorder.py",
    "telemetry/usual_line.py",
)
"""Python modules that mypyc compiles as one group, as patterns inside router/."""
NOT_MYPYC = ("__init__.py", "trace_context.py")
"""What it can't, or must not: a Trace is extended by the room that makes spans, and no Python class may extend a compiled one."""

# The scanner reads what strangers send, so the C compiler's own guards stay on.
CYTHON_FLAGS = (
    "-O2",
    "-g0",
    "-fstack-protector-strong",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
)
SANITIZED = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)


class BuildFailed(Exception):
    """The compiled form can't be built. The message says why and what to do."""


# --- what is compiled, and of what ----------------------------------------------------------


class Plan(NamedTuple):  # no dataclass: hatchling runs this file without making it a module
    """What would be compiled in a package: paths inside of it."""

    package: Path
    cython: list[str]
    mypyc: list[str]

    @classmethod
    def of(cls, package: Path) -> Plan:
        """Returns the plan for the tree as it is."""
        return cls(package, _matching(package, CYTHON), _matching(package, MYPYC))

    def sources(self) -> list[str]:
        """Returns every file that the result depends on: mypyc copies constants and layouts out of what its modules import."""
        return sorted({*self.cython, *_import_closure(self.package, self.mypyc)})

    def problem(self) -> str:
        """Returns why this can't be compiled here whatever the C compiler is like, "" when it can."""
        if not self.cython and not self.mypyc:
            return "there is nothing to compile"
        wanted = {"Cython": self.cython, "setuptools": True, "mypyc": self.mypyc}
        missing = [name for name, use in wanted.items() if use and find_spec(name) is None]
        return f"{missing[0]} is not installed" if missing else ""


def _matching(package: Path, patterns: Sequence[str]) -> list[str]:
    found = {path for pattern in patterns for path in package.glob(pattern)}
    return sorted(str(path.relative_to(package)) for path in found if path.name not in NOT_MYPYC)


def _import_closure(package: Path, files: Sequence[str]) -> set[str]:
    seen: set[str] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            waiting += _imported(package, file)
    return seen


def _imported(package: Path, file: str) -> Iterator[str]:
    """Yields the files of the package's modules that a module imports, wherever in it."""
    for node in ast.walk(ast.parse((package / file).read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            first, *rest = name.split(".")
            if first == package.name:
                path = "/".join(rest)
                for candidate in (f"{path}.py", f"{path}/__init__.py".lstrip("/")):
                    if (package / candidate).is_file():
                        yield candidate


# --- the build ------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What a build came to."""

    is_compiled: bool
    text: str
    """One line for who ran it."""


def build(package: Path, wish: str, say: Callable[[str], object] = lambda _: None) -> Outcome:
    """Brings the compiled form up to date, or takes it away. Raises BuildFailed."""
    if wish not in CHOICES:
        raise BuildFailed(f"{VARIABLE} is {wish!r}; it may be {', '.join(CHOICES)}.")
    if wish == "pure":
        shutil.rmtree(compiled_folder(package), ignore_errors=True)
        return Outcome(False, f"The pure Python form will run: {VARIABLE} is pure.")
    plan = Plan.of(package)
    with _alone(package):
        if _is_current(plan):
            return Outcome(True, "The compiled form will run; it is up to date.")
        if problem := plan.problem() or compiler_problem():
            if wish == "compiled":
                raise BuildFailed(f"The compiled form can't be built: {problem}.")
            return Outcome(False, f"The pure Python form will run: {problem}.")
        say("Compiling: this takes half a minute, and is done again only when a source changes.")
        try:
            _compile(plan)
        except BuildFailed:
            if wish == "compiled":
                raise
            return Outcome(
                False,
                f"The pure Python form will run: compiling failed; `{VARIABLE}=compiled make compile` shows why.",
            )
    return Outcome(True, "The compiled form will run; it was built just now.")


@contextlib.contextmanager
def _alone(package: Path) -> Iterator[None]:
    """Lets one build at a time work on a tree."""
    (package / "_compiled").mkdir(exist_ok=True)
    with (package / "_compiled" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _made_with() -> dict[str, str]:
    """Returns everything but the sources that decides what comes out."""
    versions = {name: metadata.version(name) for name in ("cython", "setuptools")}
    if MYPYC:
        versions["mypy"] = metadata.version("mypy")
    builder = digests(ROOT, [Path(__file__).name])
    return {**versions, **builder, "python": sys.version}


def _is_current(plan: Plan) -> bool:
    try:
        manifest = json.loads((compiled_folder(plan.package) / MANIFEST).read_bytes())
        return bool(
            manifest["made_with"] == _made_with()
            and manifest["sources"] == digests(plan.package, plan.sources())
        )
    except (OSError, ValueError, KeyError):
        return False


def compiler_problem() -> str:
    """Returns why no extension module can be built here, with what to do; "" when one can: a small one is tried."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("#include <Python.h>\nint probe(void) { return PY_VERSION_HEX != 0; }\n")
        include = f"-I{sysconfig.get_path('include')}"
        arguments = [*command.split(), include, "-shared", "-fPIC", str(source)]
        try:
            done = subprocess.run(
                [*arguments, "-o", f"{folder}/probe.so"],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        except (OSError, subprocess.TimeoutExpired):
            return f"there is no C compiler ({command.split()[0]}; on Debian and Ubuntu: apt-get install gcc)"
    if done.returncode == 0:
        return ""
    if "Python.h" in done.stderr:
        return f"Python's C headers are missing ({include[2:]}; on Debian and Ubuntu: apt-get install python3-dev)"
    return f"the C compiler ({command.split()[0]}) doesn't work"


def _compile(plan: Plan) -> None:
    """Builds beside the old result, then takes its place. Raises BuildFailed."""
    folder = compiled_folder(plan.package)
    sources = digests(plan.package, plan.sources())
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as building:
        done = subprocess.run(
            [sys.executable, __file__, "--compile", str(plan.package), building],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BuildFailed(
                f"Compiling failed; {VARIABLE}=pure does without. The end of the output:\n"
                + (done.stdout + done.stderr)[-4000:]
            )
        out = Path(building) / "out"
        manifest = {
            "modules": json.loads((Path(building) / "modules.json").read_bytes()),
            "sources": sources,
            "made_with": _made_with(),
        }
        (out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        out.rename(folder)


def compile_into(package: Path, building: Path, *, is_sanitized: bool = False) -> None:
    """Compiles a package's plan into `building`/out and names the modules in `building`/modules.json.

    `is_sanitized` is for the Cython modules alone: built to find reads and writes out of bounds, by `make sanitize`.
    """
    plan = Plan.of(package)
    if is_sanitized:
        plan = plan._replace(mypyc=[])
    os.chdir(package.parent)  # both compilers name modules by where their files are from here
    from setuptools import Distribution

    flags = SANITIZED if is_sanitized else CYTHON_FLAGS
    extensions = [*_cython_extensions(plan, building, flags), *_mypyc_extensions(plan, building)]
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = str(building / "out")
    command.build_temp = str(building / "objects")
    command.parallel = os.cpu_count()
    (building / "out").mkdir()
    command.ensure_finalized()
    command.run()
    files = {extension.name: command.get_ext_filename(extension.name) for extension in extensions}
    (building / "modules.json").write_text(json.dumps(files))


def _cython_extensions(plan: Plan, building: Path, flags: Sequence[str]) -> list[Any]:
    if not plan.cython:
        return []
    from Cython.Build import cythonize
    from setuptools import Extension

    extensions = [
        Extension(
            ".".join((plan.package.name, *Path(file).with_suffix("").parts)),
            [f"{plan.package.name}/{file}"],
            extra_compile_args=list(flags),
            extra_link_args=[flag for flag in flags if flag.startswith("-fsanitize")],
        )
        for file in plan.cython
    ]
    return list(
        cythonize(  # type: ignore[no-untyped-call]
            extensions, build_dir=str(building / "c")
        )
    )


def _mypyc_extensions(plan: Plan, building: Path) -> list[Any]:
    if not plan.mypyc:
        return []
    from mypyc.build import mypycify

    extensions = mypycify(
        [f"{plan.package.name}/{file}" for file in plan.mypyc],
        group_name="sandbox_router",
        target_dir=str(building / "c"),
        opt_level="2",
        debug_level="0",
    )
    for extension in extensions:
        # What a newer C compiler warns of is no reason to do without.
        flags = extension.extra_compile_args
        extension.extra_compile_args = [flag for flag in flags if flag != "-Werror"]
    return extensions


# --- who asks for it ------------------------------------------------------------------------


def wish() -> str:
    """Returns what the environment asks of a build."""
    return os.environ.get(VARIABLE) or "auto"


class CompiledFormHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled form into a wheel, and beside the sources for an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds; the wheel is then for this Python and platform alone."""
        package = Path(self.root) / "router"
        outcome = build(package, wish())
        self.app.display_info(outcome.text)
        if outcome.is_compiled and version != "editable":
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["artifacts"].append(f"/{compiled_folder(package).relative_to(self.root)}/")


def main(arguments: Sequence[str]) -> int:
    """Builds in place and says in one line which form will run. Returns the exit code."""
    if arguments[:1] == ["--compile"]:
        compile_into(Path(arguments[1]), Path(arguments[2]))
        return 0
    if arguments[:1] == ["--sanitize"]:
        building = Path(arguments[1]).absolute()
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        compile_into(ROOT / "router", building, is_sanitized=True)
        return 0
    try:
        print(build(ROOT / "router", wish(), say=functools.partial(print, flush=True)).text)
    except BuildFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
