"""Tests of the build of the compiled form, hatch_build.py, on a package of a few lines."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from router.code_form import MANIFEST, choose, compiled_folder

pytest.importorskip("Cython", reason="the build's tools are not installed: run `make setup`")

ROOT = Path(__file__).parents[2]

SCANNER = "def form():\n    cdef int answer = 42\n    return answer\n"


def load_builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hatch_build"] = module
    spec.loader.exec_module(module)
    return module


builder: Any = load_builder()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with one Cython module and the Python modules around it."""
    package = tmp_path / "toy"
    (package / "proxy" / "wire").mkdir(parents=True)
    for folder in (package, package / "proxy", package / "proxy" / "wire"):
        (folder / "__init__.py").write_text("")
    (package / "proxy" / "wire" / "scanner.pyx").write_text(SCANNER)
    return package


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands for the two compilers: leaves an empty module behind, and counts."""
    runs = []

    def compile_plan(plan: Any) -> None:
        runs.append(plan.package.name)
        folder = compiled_folder(plan.package)
        folder.mkdir(parents=True, exist_ok=True)
        manifest = {
            "modules": {"toy.proxy.wire.scanner": "scanner.so"},
            "sources": builder.digests(plan.package, plan.sources()),
            "made_with": builder._made_with(),
        }
        (folder / MANIFEST).write_text(json.dumps(manifest))

    monkeypatch.setattr(builder, "_compile", compile_plan)
    return runs


def test_a_second_build_of_the_same_sources_does_nothing(package, compiles):
    first, second = builder.build(package, "auto"), builder.build(package, "auto")

    assert compiles == ["toy"]
    assert first.text == "The compiled form will run; it was built just now."
    assert second.text == "The compiled form will run; it is up to date."


def test_a_changed_source_is_built_again(package, compiles):
    builder.build(package, "auto")
    (package / "proxy" / "wire" / "scanner.pyx").write_text(SCANNER + "# changed\n")
    builder.build(package, "auto")

    assert len(compiles) == 2


def test_a_source_more_is_built_too(package, compiles):
    builder.build(package, "auto")
    (package / "proxy" / "wire" / "another.pyx").write_text(SCANNER)
    builder.build(package, "auto")

    assert len(compiles) == 2


def test_another_compiler_version_builds_again(package, compiles, monkeypatch):
    builder.build(package, "auto")
    monkeypatch.setattr(builder, "_made_with", lambda: {"cython": "9.9"})
    builder.build(package, "auto")

    assert len(compiles) == 2


def test_without_a_c_compiler_it_says_so_in_one_line_and_goes_on(package, compiles, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")

    outcome = builder.build(package, "auto")

    assert not outcome.is_compiled
    assert outcome.text == (
        "The pure Python form will run: there is no C compiler "
        "(no-such-compiler; on Debian and Ubuntu: apt-get install gcc)."
    )
    assert compiles == []


def test_a_build_that_must_compile_fails_without_a_c_compiler(package, compiles, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")

    with pytest.raises(builder.BuildFailed, match="apt-get install gcc"):
        builder.build(package, "compiled")


def test_missing_python_headers_are_told_from_a_missing_compiler(package, compiles, monkeypatch):
    monkeypatch.setattr(builder.sysconfig, "get_path", lambda name: "/nonexistent/include")

    assert "python3-dev" in builder.build(package, "auto").text


def test_a_compiler_that_works_is_found():
    assert builder.compiler_problem() == ""


def test_a_pure_build_takes_an_earlier_compiled_one_away(package, compiles):
    builder.build(package, "auto")

    outcome = builder.build(package, "pure")

    assert not outcome.is_compiled
    assert not compiled_folder(package).exists()
    assert choose(package, "auto").reason == "it was not built for this Python"


def test_a_package_with_nothing_to_compile_is_pure(package, compiles):
    (package / "proxy" / "wire" / "scanner.pyx").unlink()

    assert "there is nothing to compile" in builder.build(package, "auto").text
    assert compiles == []


def test_a_missing_build_tool_is_named(package, compiles, monkeypatch):
    monkeypatch.setattr(builder, "find_spec", lambda name: None if name == "Cython" else object())

    assert "Cython is not installed" in builder.build(package, "auto").text


def test_a_wish_that_does_not_exist_is_refused(package):
    with pytest.raises(builder.BuildFailed, match=r"'quick'; it may be auto, pure, compiled\."):
        builder.build(package, "quick")


def test_mypyc_depends_on_all_that_its_modules_import(package, monkeypatch):
    monkeypatch.setattr(builder, "MYPYC", ("proxy/*.py",))
    (package / "proxy" / "gate.py").write_text("def open():\n    from toy.proxy import bolt\n")
    (package / "proxy" / "bolt.py").write_text("from toy import limits\nimport os\n")
    (package / "limits.py").write_text("")
    (package / "unrelated.py").write_text("")

    sources = builder.Plan.of(package).sources()

    assert {"proxy/gate.py", "proxy/bolt.py", "limits.py"} <= set(sources)
    assert "unrelated.py" not in sources


def test_code_that_does_not_compile_fails_the_build_and_leaves_the_old_result(package):
    (package / "proxy" / "wire" / "scanner.pyx").write_text("def broken(:\n")
    compiled_folder(package).mkdir(parents=True)
    (compiled_folder(package) / MANIFEST).write_text("{}")

    with pytest.raises(builder.BuildFailed, match="SANDBOX_ROUTER_BUILD=pure"):
        builder.build(package, "compiled")

    assert (compiled_folder(package) / MANIFEST).read_text() == "{}"


def test_code_that_does_not_compile_keeps_nobody_from_running_it(package):
    (package / "proxy" / "wire" / "scanner.pyx").write_text("def broken(:\n")

    outcome = builder.build(package, "auto")

    assert not outcome.is_compiled
    assert (
        "compiling failed; `SANDBOX_ROUTER_BUILD=compiled make compile` shows why" in outcome.text
    )


def test_the_compiled_module_runs_instead_of_its_source(package):
    builder.build(package, "compiled")
    form = choose(package, "compiled")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.path.insert(0, sys.argv[2]);"
        "from router.code_form import *; from pathlib import Path;"
        "sys.meta_path.insert(0, CompiledFinder(choose(Path(sys.argv[2], 'toy'), 'compiled').modules));"
        "import toy.proxy.wire.scanner as scanner; print(scanner.form(), scanner.__file__)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(package.parent)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    ).stdout

    (file,) = form.modules.values()
    assert shown.split() == ["42", file]
    assert [entry for entry in os.listdir(package / "_compiled") if entry.startswith(".b")] == []
