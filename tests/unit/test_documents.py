"""What the documents promise: links that lead somewhere, commands that exist, an example that the SDK takes."""

import ast
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def anchors(document: Path) -> set[str]:
    """Returns the anchors of a document's headings, made the way that GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_link_to_the_project_leads_somewhere(document):
    lost = []
    for path, anchor in LINK.findall(document.read_text("utf-8")):
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(f"{path}#{anchor}" if anchor else path)
    assert lost == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_make_command_exists(document):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    known = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    said = set(re.findall(r"(?:`|^\$? ?)make ([a-z]+)", document.read_text("utf-8"), re.MULTILINE))
    assert said <= known


def test_the_sdk_example_is_what_the_sdk_takes(monkeypatch):
    monkeypatch.setenv("TOKEN", "the-token")
    readme = (ROOT / "README.md").read_text("utf-8")
    example = re.search(r"```python\n(.+?)```", readme, re.DOTALL)
    assert example is not None
    body = ast.parse(example[1]).body
    assert isinstance(body[-1], ast.With)  # from here on it talks to a cluster
    names: dict[str, object] = {}
    exec(compile(ast.Module(body[:-1], []), "README.md", "exec"), names)
    config = names["router"]
    assert config.extra_headers == {"Authorization": "Bearer the-token"}
    assert config.api_url == "https://sandboxes.example.com"
    methods = {node.attr for node in ast.walk(body[-1]) if isinstance(node, ast.Attribute)}
    assert methods == {"create_sandbox", "commands", "run", "stdout", "files", "write", "read"}


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    reasons = (ROOT / "docs" / "dependencies.md").read_text("utf-8").lower()
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *chain(*project["project"]["optional-dependencies"].values()),
    ]
    names = {re.match(r"[\w.\[\]-]+", line)[0].lower() for line in wanted}
    assert {package for package in names if f"`{package}`" not in reasons} == set()


def test_every_file_on_the_map_exists():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    tree = {path.name for path in ROOT.glob("router/**/*.py")}
    assert {Path(file).name for file in re.findall(r"`([\w/]+\.py)`", text)} - tree == set()


def test_every_room_is_on_the_map():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rooms = {path.parent.name for path in ROOT.glob("router/*/__init__.py")}
    assert {room for room in rooms if f"`{room}/`" not in text} == set()
