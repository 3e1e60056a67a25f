"""Tests that the chart's alerts can be tuned one by one, and that a tuned rule is still one that Prometheus takes."""

import json
import re
import shlex
import subprocess

import pytest
import yaml

from tests.deploy import queries
from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import CHART, ROOT, TOKEN_REVIEW, RefusedError, chart, found, run

TUNED = MATRIX["watched by the operator"]
STATES = {
    *("SandboxRouterAbsent", "SandboxRouterNotReady", "SandboxRouterReloadFailed"),
    *("SandboxRouterCertificateReloadFailed", "SandboxRouterCertificateExpired"),
}
"""Alerts that ask for a state, so that they have no number to set."""
BURNS = {"SandboxRouterErrorBudgetBurnFast", "SandboxRouterErrorBudgetBurnSlow"}


def rules_of(values):
    """Returns the chart's alerts by name."""
    spec = chart(values).one("PrometheusRule")["spec"]
    return {
        rule["alert"]: rule
        for group in spec["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }


def tuned(**rule):
    return {**TOKEN_REVIEW, "metrics": {"prometheusRule": {"enabled": True, **rule}}}


def test_an_alert_can_be_left_out_and_the_others_stay():
    assert set(queries.alerts()) - set(rules_of(TUNED)) == {"SandboxRouterAuthFailures"}


def test_threshold_patience_and_severity_change_and_nothing_else_does():
    before, after = (
        queries.alerts()["SandboxRouterUpstreamErrors"],
        rules_of(TUNED)["SandboxRouterUpstreamErrors"],
    )

    assert before["expr"].replace("> 0.05", "> 0.2") == after["expr"] != before["expr"]
    assert (after["for"], after["labels"]) == ("1h", {"severity": "info", "team": "platform"})
    assert after["annotations"]["summary"] == before["annotations"]["summary"]


@pytest.mark.parametrize("name", sorted(set(queries.alerts()) - STATES - BURNS))
def test_every_alert_with_a_number_takes_another_and_prometheus_takes_the_rule(name, tmp_path):
    values = tuned(alerts={name: {"threshold": 123}})
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(chart(values).one("PrometheusRule")["spec"]))

    done = subprocess.run([found("promtool"), "check", "rules", str(file)], capture_output=True)

    assert done.returncode == 0, done.stderr
    expr = rules_of(values)[name]["expr"]
    assert re.search(r"[<>] 123\s*$", expr), expr


@pytest.mark.parametrize("name", sorted(STATES | BURNS))
def test_an_alert_without_a_number_of_its_own_refuses_one(name):
    with pytest.raises(RefusedError, match=f"alerts.{name} has no threshold to set"):
        chart(tuned(alerts={name: {"threshold": 1}}))


def test_the_error_budget_is_that_of_both_burn_rates():
    for name in BURNS:
        rule = rules_of(TUNED)[name]
        assert "0.001" not in rule["expr"]
        assert rule["expr"].count("* 0.005)") == 4
        assert "(target: 99.5 % good over 30 days)" in rule["annotations"]["description"]


@pytest.mark.parametrize(
    ("budget", "target"), [(0.0005, "99.95 %"), (0.00001, "99.999 %"), ("0.02", "98 %")]
)
def test_smaller_budgets_are_said_exactly(budget, target):
    for name in BURNS:
        assert f"(target: {target} good" in json.dumps(
            rules_of(tuned(errorBudget=budget))[name], ensure_ascii=False
        )


def test_every_alert_links_to_its_section_of_the_page_where_the_team_reads_it():
    for name, rule in rules_of(TUNED).items():
        assert rule["annotations"]["runbook_url"] == (
            f"https://git.example.com/router/docs/operations.md#{name.lower()}"
        )


def test_the_plain_rules_link_there_after_the_pages_command(tmp_path):
    page = (ROOT / "docs" / "install.md").read_text()
    (command,) = re.findall(r"\$ (sed .*) > rules\.yaml", page)
    text = run(shlex.split(command))
    file = tmp_path / "rules.yaml"
    file.write_text(text)

    run([found("promtool"), "check", "rules", str(file)])

    for group in yaml.safe_load(text)["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                url = rule["annotations"]["runbook_url"]
                assert url.startswith("https://git.example.com/")
                assert url.endswith(f"/docs/operations.md#{rule['alert'].lower()}")


def test_without_a_place_to_read_there_is_no_link_that_leads_nowhere():
    for rule in rules_of(tuned()).values():
        assert "runbook_url" not in rule["annotations"]
        assert rule["annotations"]["runbook"].startswith("docs/operations.md#")


def test_a_misspelt_alert_is_refused():
    with pytest.raises(RefusedError, match="SandboxRouterUpstreamError'"):
        chart(tuned(alerts={"SandboxRouterUpstreamError": {"enabled": False}}))


def test_the_schema_knows_every_alert():
    schema = json.loads((CHART / "values.schema.json").read_text())
    alerts = schema["properties"]["metrics"]["properties"]["prometheusRule"]["properties"]["alerts"]

    assert alerts["propertyNames"]["enum"] == list(queries.alerts())


def test_the_service_monitor_relabels():
    (endpoint,) = chart(TUNED).one("ServiceMonitor")["spec"]["endpoints"]

    assert endpoint["relabelings"] == [{"targetLabel": "cluster", "replacement": "eu-1"}]
    assert endpoint["metricRelabelings"][0]["action"] == "drop"
