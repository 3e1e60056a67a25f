"""The rules of the tree that no linter knows."""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from router import errors

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "router").rglob("*.py"))
TESTS = ROOT / "tests"

MAX_LINES = 400

TASK_STARTERS = ("create_task", "ensure_future")

# Where a class or a function owns tasks without a group, and ends each of them itself.
TASK_OWNERS = {
    "router/app/background.py",
    "router/app/stop.py",
    "router/app/supervisor.py",
    "router/app/worker.py",
    "router/tasks.py",
}

# Where anything that nobody foresaw is caught, logged and answered, so that one request, object or question
# can't end the rest.
BOUNDARIES = {
    "router/app/channel.py",
    "router/discovery/reflector.py",
    "router/proxy/checks.py",
    "router/proxy/deadlines.py",
    "router/proxy/gateway.py",
    "router/suspender/rounds.py",
    "router/telemetry/logs.py",
}


def name(module: Path) -> str:
    return str(module.relative_to(ROOT))


def tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text("utf-8"), filename=name(module))


def has_code(module: Path) -> bool:
    """Returns False for a module that only imports, names what others may use, or calls main()."""
    statements = (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign)
    return not all(isinstance(statement, statements) for statement in tree(module).body)


def mirror(module: Path) -> Path:
    """Returns where the module's tests are: tests/unit/<room>/test_<module>.py."""
    room = module.parent.relative_to(ROOT / "router")
    return TESTS / "unit" / room / f"test_{module.stem}.py"


@pytest.mark.parametrize("module", [m for m in MODULES if m.stat().st_size], ids=name)
def test_a_module_says_in_its_first_line_what_it_does(module):
    docstring = ast.get_docstring(tree(module))
    assert docstring, "it has no docstring"
    first_line = docstring.splitlines()[0]
    assert first_line.endswith((".", ":")), f"no sentence: {first_line!r}"


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_a_module_is_short_enough_to_be_read_at_once(module):
    assert len(module.read_text("utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize(
    "module", [m for m in MODULES if m.name != "__init__.py" and has_code(m)], ids=name
)
def test_a_module_has_its_own_test_file(module):
    assert mirror(module).is_file(), f"{mirror(module).relative_to(ROOT)} is missing"


def every_error() -> Iterator[type[errors.RouterError]]:
    for _, member in inspect.getmembers(errors, inspect.isclass):
        if issubclass(member, errors.RouterError):
            yield member


@pytest.fixture(scope="module")
def words_of_tests() -> set[str]:
    return {
        word
        for path in TESTS.rglob("*.py")
        if path != Path(__file__)
        for word in re.findall(r"\w+", path.read_text("utf-8"))
    }


@pytest.mark.parametrize("error", list(every_error()), ids=lambda error: error.__name__)
def test_an_error_is_named_in_a_test(error, words_of_tests):
    assert {error.__name__, error.code} & words_of_tests


def stray_tasks(module: Path) -> Iterator[str]:
    """Yields each call that starts a task outside of a task group of the same module."""
    nodes = list(ast.walk(tree(module)))
    groups = {
        ast.unparse(item.optional_vars)
        for node in nodes
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if item.optional_vars is not None and "TaskGroup(" in ast.unparse(item.context_expr)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr in TASK_STARTERS and owner not in groups:
                yield f"line {node.lineno}: {owner}.{node.func.attr}"


@pytest.mark.parametrize("module", [m for m in MODULES if name(m) not in TASK_OWNERS], ids=name)
def test_a_task_is_started_only_by_an_owner_that_awaits_it(module):
    assert list(stray_tasks(module)) == []


@pytest.mark.parametrize("module", [m for m in MODULES if name(m) not in BOUNDARIES], ids=name)
def test_a_broad_catch_stands_only_at_a_boundary(module):
    broad = [
        node.lineno
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
        and not isinstance(node.body[-1], ast.Raise)
    ]
    assert broad == []


# The edge of the program: everything else is told what it needs. The demo only hands the environment on to
# its router, whose program reads it as `serve` does.
READ_THE_ENVIRONMENT = {
    "router/app/worker.py",
    "router/cli/commands.py",
    "router/cli/connect.py",
    "router/cli/suspend_idle.py",
    "router/code_form.py",
    "router/demo/session.py",
    "router/demo/waking_router.py",
}


@pytest.mark.parametrize(
    "module", [m for m in MODULES if name(m) not in READ_THE_ENVIRONMENT], ids=name
)
def test_the_environment_is_read_only_at_the_edge(module):
    assert re.findall(r"\bos\.(?:environ|getenv)\b", module.read_text("utf-8")) == []


LOCKS = ("requirements.lock", "requirements-runtime.lock")


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_machine_and_no_registry(lock):
    assert (
        re.findall(r"https?:|file:|find-links|index-url|(?:^|\s)/\w+", (ROOT / lock).read_text())
        == []
    )


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_everything_with_hashes(lock):
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert lines
    assert [line for line in lines if "==" not in line or "--hash=sha256:" not in line] == []


def test_the_locks_hold_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        "requirements.lock": [*project["dependencies"], *extras["otel"], *extras["test"]],
        "requirements-runtime.lock": [*project["dependencies"], *extras["otel"]],
    }
    missing = {
        lock: {distribution(line) for line in lines} - pins(lock).keys()
        for lock, lines in wanted.items()
    }
    assert missing == {lock: set() for lock in LOCKS}


def test_both_locks_agree():
    complete, runtime = (pins(lock) for lock in LOCKS)
    assert {key: complete.get(key) for key in runtime} == runtime


def distribution(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))
