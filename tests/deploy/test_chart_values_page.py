"""Tests that docs/chart-values.md is the page that the chart's own files make, and that it says what each value means."""

import importlib.util
import json

import yaml

from router.settings.table import TABLE
from tests.deploy.rendering import CHART, DEPLOY, ROOT


def generated() -> str:
    spec = importlib.util.spec_from_file_location("chart_values", DEPLOY / "chart_values.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.markdown()


def properties(part, prefix=""):
    """Yields the path and the schema of each value, of groups too."""
    for name, inner in part.get("properties", {}).items():
        path = f"{prefix}.{name}" if prefix else name
        yield path, inner
        yield from properties(inner, path)


SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_page_is_current():
    assert (ROOT / "docs" / "chart-values.md").read_text() == generated(), (
        "run python deploy/chart_values.py"
    )


def test_every_value_says_what_it_means_and_groups_are_closed():
    for path, part in properties(SCHEMA):
        assert part["description"].endswith("."), path
        if "properties" in part:
            assert part["additionalProperties"] is False, path


def test_settings_mean_in_the_chart_what_they_mean_in_the_router():
    for key, part in SCHEMA["properties"]["config"]["properties"].items():
        assert part["description"] == TABLE[key].help


def test_schema_and_defaults_name_the_same_values():
    in_schema = {path for path, _ in properties(SCHEMA)}

    def paths(values, prefix=""):
        for name, inner in values.items():
            path = f"{prefix}.{name}" if prefix else name
            if path in in_schema:
                yield path
                if isinstance(inner, dict):
                    yield from paths(inner, path)

    optional = {path for path in in_schema if path.startswith(("config.", "global"))}
    optional |= {path for path in in_schema if "Probe." in path}
    said = set(paths(VALUES))
    assert in_schema - optional <= said
    assert set(VALUES) <= set(SCHEMA["properties"])


def test_the_chart_relies_on_no_default_setting_but_those_it_says():
    assert VALUES["config"] == {"discovery": "kubernetes"}
