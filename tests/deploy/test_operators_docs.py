"""Tests that the operators' pages are complete, and that what they tell to run is there and works."""

import re
import shlex

import pytest

from router.errors import RouterError
from router.settings.table import TABLE
from router.telemetry.metric_catalogue import BY_NAME
from tests.deploy import queries
from tests.deploy.rendering import ROOT, chart, found, kustomize, parsed, run

PAGES = ("install.md", "operations.md", "troubleshooting.md", "gateway.md")
OTHER_WORDS = (
    "sandbox-router",
    "sandbox-router-admin",
    "sandbox-router-svc",
    "agent-sandbox-system",
    "backend-protocol",
    "box-a",
    "check-config",
    "not-before",
)
"""Words with hyphens, in code style, that are no settings: names of objects, and of keys in other files."""

CHART_PATHS = re.compile(r"\b(?:charts|deploy)/[\w./-]*\w")

pages = pytest.mark.parametrize("name", PAGES)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def sections(text: str, level: str) -> dict[str, str]:
    """Returns the text below each heading of one level, up to the next heading."""
    parts = re.split(rf"(?m)^{level} (.+)$", text)
    return {
        title: re.split(r"(?m)^#{1,3} ", body)[0].strip()
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def commands(text: str):
    """Yields each command of the console blocks, continuation lines joined."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                yield line[2:]


def errors(kind=RouterError):
    for child in kind.__subclasses__():
        yield child
        yield from errors(child)


def test_every_code_is_explained_with_its_status_and_no_other_is():
    explained = sections(sections_of_codes(), "###")

    assert set(explained) == {kind.code for kind in errors()}
    for kind in errors():
        assert explained[kind.code].startswith(f"{kind.status}."), kind.code
        assert len(explained[kind.code]) > 50, f"{kind.code}: say what to check"


def sections_of_codes() -> str:
    return page("troubleshooting.md").partition("\n## Codes\n")[2].partition("\n## ")[0]


def test_every_other_end_of_a_request_that_the_router_names_is_explained():
    source = "".join(path.read_text() for path in (ROOT / "router" / "proxy").glob("*.py"))
    ends = set(re.findall(r'"(tunnel_[a-z_]+|client_closed|response_cut)"', source))
    table = page("troubleshooting.md").partition("## Other ends")[2]

    assert ends
    for end in ends:
        assert f"`{end}`" in table


def test_every_alert_has_a_section_that_says_what_to_do_and_no_other_has():
    alerts = page("operations.md").partition("\n## Alerts\n")[2].partition("\n## ")[0]
    told = sections(alerts, "###")

    assert set(told) == set(queries.alerts())
    for name, text in told.items():
        assert "**Do**" in text, name


@pages
def test_links_between_pages_lead_somewhere(name):
    text = page(name)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        there = text if not file else (ROOT / "docs" / file).read_text()
        anchors = {
            re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
            for title in re.findall(r"(?m)^#+ (.+)$", there)
        }
        assert not anchor or anchor in anchors, target


@pages
def test_files_that_a_page_names_exist(name):
    for path in CHART_PATHS.findall(page(name)):
        assert (ROOT / path).exists(), path


@pages
def test_settings_that_a_page_names_exist(name):
    known = set(TABLE) | {"token-review"} | set(OTHER_WORDS)
    for word in re.findall(r"`([a-z][a-z]*(?:-[a-z]+)+)(?::[^`]*)?`", page(name)):
        assert word in known, f"{word} is no setting"


@pages
def test_metrics_that_a_page_names_exist(name):
    recorded = {rule["record"] for rule in queries.rules() if "record" in rule}
    for word in re.findall(r"`(sandbox_router[_:][a-z_:0-9]+)", page(name)):
        assert word in BY_NAME or word in recorded, word


HELM = [
    command
    for name in PAGES
    for command in commands(page(name))
    if command.startswith("helm upgrade --install")
]


def test_there_are_commands_to_try():
    assert len(HELM) >= 8


@pytest.mark.parametrize("command", HELM)
def test_every_helm_command_renders(command):
    words = shlex.split(command)
    assert words[:5] == ["helm", "upgrade", "--install", "sandbox-router", "charts/router"]

    objects = parsed(
        run([found("helm"), "template", "sandbox-router", str(ROOT / words[4]), *words[5:]])
    )

    assert objects.one("Deployment")


@pages
def test_every_kustomize_and_apply_command_finds_its_files(name):
    for command in commands(page(name)):
        words = shlex.split(command)
        if "apply" in words and "-k" in words:
            assert kustomize(ROOT / words[words.index("-k") + 1]).one("Deployment")
        if "apply" in words and "-f" in words:
            assert parsed((ROOT / words[words.index("-f") + 1]).read_text()).items


def test_the_first_request_takes_five_commands():
    block = sections(page("install.md"), "##")["A cluster on a laptop (kind)"]

    assert len(list(commands(block))) == 5


def test_the_role_that_the_page_binds_is_the_one_the_chart_makes():
    values = {"config": {"auth": ["token-review"]}, "rbac": {"callerRole": True}}
    names = {role["metadata"]["name"] for role in chart(values).of("ClusterRole")}
    (bound,) = re.findall(r"--clusterrole=(\S+)", page("install.md"))

    assert bound in names
