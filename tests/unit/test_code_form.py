"""Tests which form of the code runs, and that the compiled one never hides an edited source."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from router.code_form import (
    CURRENT,
    FORMS,
    MANIFEST,
    CodeForm,
    CompiledFinder,
    choose,
    compiled_folder,
    digests,
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two modules, one of them with a compiled form."""
    package = tmp_path / "toy"
    package.mkdir()
    (package / "plain.py").write_text("FORM = 'pure'\n")
    (package / "quick.py").write_text("FORM = 'pure'\n")
    folder = compiled_folder(package)
    folder.mkdir(parents=True)
    (folder / "quick.so").write_bytes(b"not loaded by these tests")
    write_manifest(package)
    return package


def write_manifest(package: Path, modules: dict[str, str] | None = None) -> None:
    manifest = {
        "modules": {"toy.quick": "quick.so"} if modules is None else modules,
        "sources": digests(package, ["plain.py", "quick.py"]),
    }
    (compiled_folder(package) / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize("wish", ["", "auto", "compiled"])
def test_the_compiled_form_runs_when_it_was_built_from_these_sources(package, wish):
    form = choose(package, wish)

    assert form.modules == {"toy.quick": str(compiled_folder(package) / "quick.so")}
    assert (str(form), form.reason, form.problem) == ("compiled", "", "")


def test_the_environment_forces_the_pure_form(package):
    form = choose(package, "pure")

    assert form == CodeForm(reason="SANDBOX_ROUTER_FORM is pure")
    assert str(form) == "pure"


def test_an_edited_source_runs_as_it_was_edited(package):
    (package / "quick.py").write_text("FORM = 'edited'\n")

    form = choose(package, "auto")

    assert not form.modules
    assert form.reason == "quick.py has changed since it was built"


def test_a_change_in_what_a_compiled_module_imports_counts_too(package):
    (package / "plain.py").write_text("FORM = 'edited'\n")

    assert choose(package, "auto").reason == "plain.py has changed since it was built"


def test_a_change_that_is_taken_back_is_none(package):
    (package / "quick.py").write_text("FORM = 'edited'\n")
    (package / "quick.py").write_text("FORM = 'pure'\n")

    assert str(choose(package, "auto")) == "compiled"


def test_a_source_that_is_gone_is_not_run_from_its_compiled_form(package):
    (package / "quick.py").unlink()

    form = choose(package, "auto")

    assert not form.modules
    assert form.reason.startswith("a source of it is gone")


def test_without_a_build_the_pure_form_runs(tmp_path):
    assert choose(tmp_path, "auto") == CodeForm(reason="it was not built for this Python")


def test_a_torn_manifest_is_not_believed(package):
    (compiled_folder(package) / MANIFEST).write_text('{"modules": {')

    form = choose(package, "auto")

    assert not form.modules
    assert "can't be read" in form.reason


def test_a_build_of_nothing_is_the_pure_form(package):
    write_manifest(package, modules={})

    assert choose(package, "auto") == CodeForm(reason="nothing is compiled yet")


def test_who_asks_for_the_compiled_form_is_told_why_it_can_not_run(package):
    (package / "quick.py").write_text("FORM = 'edited'\n")

    problem = choose(package, "compiled").problem

    assert "quick.py has changed since it was built" in problem
    assert "make compile" in problem


def test_a_form_that_does_not_exist_is_a_problem(package):
    form = choose(package, "quick")

    assert form.problem == "SANDBOX_ROUTER_FORM is 'quick'; it may be auto, pure, compiled"
    assert str(form) == "pure"


def test_a_form_says_itself_in_words(package):
    assert choose(package, "auto").as_sentence() == "compiled form"
    assert choose(package, "pure").as_sentence() == "pure Python form (SANDBOX_ROUTER_FORM is pure)"


def test_a_compiled_module_is_found_where_the_build_put_it():
    suffixed = "/built/toy/quick.so"

    spec = CompiledFinder({"toy.quick": suffixed}).find_spec("toy.quick", None)

    assert spec is not None
    assert spec.origin == suffixed


def test_any_other_module_is_left_to_the_usual_import():
    assert CompiledFinder({"toy.quick": "quick.so"}).find_spec("toy.plain", None) is None


def test_this_process_runs_one_of_the_forms():
    assert str(CURRENT) in FORMS


def test_the_form_is_settled_before_any_other_module_is_imported():
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "import router, sys; print(*(m for m in sys.modules if 'router.' in m))",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout

    assert shown.split() == ["router.first_signals", "router.code_form"]
