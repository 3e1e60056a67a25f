"""Tests that the operators' pages are complete, and that what they tell to run is there and works."""

import re
import shlex

import pytest
import yaml

from router.errors import RouterError
from router.settings.table import TABLE
from router.telemetry.metric_catalogue import BY_NAME
from tests.cluster import binaries
from tests.deploy import queries, tools
from tests.deploy.judge import KUBERNETES_VERSION, OLDEST_KUBERNETES_VERSION, judge
from tests.deploy.rendering import ROOT, TOKEN_REVIEW, chart, found, kustomize, parsed, run

README = "../charts/router/README.md"
PAGES = ("install.md", "operations.md", "troubleshooting.md", "gateway.md", README)
OTHER_WORDS = (
    "sandbox-router",
    "sandbox-router-admin",
    "sandbox-router-svc",
    "k8s-agent-sandbox",
    "restricted-v2",
    "agent-sandbox-system",
    "backend-protocol",
    "box-a",
    "check-config",
    "no-store",
    "not-before",
    "suspend-idle",
)
"""Words with hyphens, in code style, that are no settings: names of objects, and of keys in other files."""

CHART_PATHS = re.compile(r"(?<![\w/.-])(?:charts|deploy|tests)/[\w./-]*\w")

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
        if not anchor:
            assert (ROOT / "docs" / file).exists(), target  # a picture, or a page as a whole
            continue
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
    assert words[:3] == ["helm", "upgrade", "--install"]
    assert words[4] == "charts/router"

    objects = parsed(run([found("helm"), "template", words[3], str(ROOT / words[4]), *words[5:]]))

    assert judge(objects.items)
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


def test_the_versions_that_the_page_names_are_those_of_the_tests():
    table = sections(page("install.md"), "##")["Which versions fit together"]
    sdk = re.search(r'"k8s-agent-sandbox==([\d.]+)"', (ROOT / "pyproject.toml").read_text())

    assert f"schemas of {OLDEST_KUBERNETES_VERSION} (the" in table
    assert f"and {KUBERNETES_VERSION};" in table
    assert (
        f"kube-apiserver {binaries.version('apiserver', 'k8s.io/kubernetes').lstrip('v')} |"
        in table
    )
    assert f"`k8s-agent-sandbox` {sdk[1]}," in table
    assert f"| {tools.HELM_VERSION[1:]}, {tools.KUBECTL_VERSION[1:]} |" in table


def test_two_releases_as_the_page_has_them_share_no_object():
    (second,) = [command for command in HELM if "router-next" in command]
    words = shlex.split(second)
    first = chart(TOKEN_REVIEW)

    other = parsed(run([found("helm"), "template", words[3], str(ROOT / words[4]), *words[5:]]))

    named = [
        {(item["kind"], item["metadata"]["name"]) for item in objects.items}
        for objects in (first, other)
    ]
    assert named[0].isdisjoint(named[1])


def test_on_openshift_no_user_is_asked_for():
    (command,) = [command for command in HELM if "openshift" in command]
    words = shlex.split(command)
    objects = parsed(run([found("helm"), "template", words[3], str(ROOT / words[4]), *words[5:]]))

    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(objects.pod()["securityContext"])
    assert objects.pod()["securityContext"]["runAsNonRoot"] is True
    assert objects.one("Route")["spec"]["to"]["name"] == "sandbox-router-svc"


def test_objects_that_the_page_shows_are_valid():
    shown = re.findall(r"```yaml\n(.*?)```", page("install.md"), re.DOTALL)
    objects = [item for text in shown for item in [yaml.safe_load(text)] if "kind" in item]

    assert judge(objects) == 1


def test_the_role_that_the_page_binds_is_the_one_the_chart_makes():
    values = {"config": {"auth": ["token-review"]}, "rbac": {"callerRole": True}}
    names = {role["metadata"]["name"] for role in chart(values).of("ClusterRole")}
    (bound,) = re.findall(r"--clusterrole=(\S+)", page("install.md"))

    assert bound in names
