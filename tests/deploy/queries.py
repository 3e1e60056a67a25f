"""Finds every PromQL query of the project, and the metrics, labels and label values that each one names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests.deploy.rendering import DEPLOY

NAME = re.compile(r"(?<![\w:\"$])((?:sandbox_router|process|kube)[_:][\w:]+)")
SELECTOR = re.compile(r"([a-z_][\w:]*)\{([^{}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*\"((?:[^\"\\]|\\.)*)\"")
GROUPING = re.compile(r"\b(?:by|on|group_left)\s*\(([^()]*)\)")

FROM_THE_SCRAPE = frozenset({"namespace", "pod", "le", "condition"})
"""Labels that Prometheus or kube-state-metrics adds, so that they are not in our catalogue."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and where it stands."""

    place: str
    text: str

    def metrics(self) -> set[str]:
        """Returns the names of metrics and recorded series; a histogram's suffixes are kept."""
        return set(NAME.findall(MATCHER.sub("", self.text)))

    def matchers(self) -> Iterator[tuple[str, str, str]]:
        """Yields metric, label and value (or pattern) for each matcher without a dashboard variable."""
        for metric, inside in SELECTOR.findall(self.text):
            for label, _, value in MATCHER.findall(inside):
                yield metric, label, "" if "$" in value else value

    def grouped_labels(self) -> set[str]:
        return {
            label.strip()
            for labels in GROUPING.findall(self.text)
            for label in labels.split(",")
            if label.strip()
        }


def rules() -> list[dict[str, Any]]:
    """Returns every recording and alert rule."""
    loaded = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def rule_queries() -> list[Query]:
    return [Query(rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    return loaded


def dashboard_queries() -> list[Query]:
    """Returns the queries of panels, variables and annotations."""
    board = dashboard()
    found = [
        Query(panel["title"], target["expr"])
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]
    found += [Query(note["name"], note["expr"]) for note in board["annotations"]["list"]]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            inner = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert inner, variable["definition"]
            found.append(Query(variable["name"], f"sum by ({inner[2]}) ({inner[1]})"))
    return found


def without_variables(text: str) -> str:
    """Returns the query as Grafana would send it."""
    return text.replace("$__rate_interval", "2m").replace("$__all", ".*")
