"""Renders the chart with Helm and the manifests with kustomize, and hands out the objects."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import tools

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "router"
DEPLOY = ROOT / "deploy"
NAMESPACE = "agent-sandbox-system"

Object = dict[str, Any]

TOKEN_REVIEW: Object = {"config": {"auth": ["token-review"], "subject-access-review": True}}
"""What deploy/base says too: no secret is needed, Kubernetes decides."""

SUSPENDER = "sandbox-router-suspend-idle"

MONITORING_KINDS = (
    "monitoring.coreos.com/v1/ServiceMonitor",
    "monitoring.coreos.com/v1/PrometheusRule",
)


class RefusedError(Exception):
    """Helm refused to render; the text is what a user reads."""


@dataclass(frozen=True, slots=True)
class Objects:
    """What was rendered, in the order of the output."""

    items: tuple[Object, ...]

    def of(self, kind: str) -> list[Object]:
        return [item for item in self.items if item["kind"] == kind]

    def one(self, kind: str, name: str = "") -> Object:
        """Returns the only object of that kind (and name)."""
        found = [item for item in self.of(kind) if name in ("", item["metadata"]["name"])]
        assert len(found) == 1, f"{len(found)} objects {kind} {name}"
        return found[0]

    def config(self) -> Object:
        """Returns the router's settings file."""
        text = self.one("ConfigMap", "sandbox-router")["data"]["config.yaml"]
        loaded: Object = yaml.safe_load(text)
        return loaded

    def of_the_router(self) -> Objects:
        """Returns what belongs to the router itself: not the suspender beside it, which has labels of its own."""
        return Objects(
            tuple(
                item
                for item in self.items
                if item.get("metadata", {}).get("labels", {}).get("app") != SUSPENDER
            )
        )

    def pod(self) -> Object:
        """Returns the router's pod."""
        deployment = self.of_the_router().one("Deployment")
        spec: Object = deployment["spec"]["template"]["spec"]
        return spec

    def container(self) -> Object:
        """Returns the router's own container, whatever runs beside it."""
        (found,) = [item for item in self.pod()["containers"] if item["name"] == "router"]
        container: Object = found
        return container

    def without_hooks(self) -> Objects:
        """Returns what stays installed: hooks run and are gone."""
        return Objects(
            tuple(
                item
                for item in self.items
                if "helm.sh/hook" not in item["metadata"].get("annotations", {})
            )
        )


def found(tool: str) -> str:
    """Returns the tool's path; skips the test with the reason without it, but fails where CI asks for everything."""
    path, reason = _searched(tool)
    if reason and os.environ.get("CI"):
        raise tools.ToolMissing(reason)
    if reason:
        pytest.skip(f"no {tool} here: {reason}")
    return path


@functools.cache
def _searched(tool: str) -> tuple[str, str]:
    """Returns the tool's path, or why it isn't here: a search that found nothing took long enough once."""
    try:
        return str(getattr(tools, tool)()), ""
    except (tools.ToolMissing, OSError) as error:
        return "", str(error) or repr(error)


def chart(
    values: Object,
    *,
    kinds: tuple[str, ...] = (),
    release: str = "sandbox-router",
    namespace: str = NAMESPACE,
    kubernetes: str = "",
) -> Objects:
    """Returns what `helm template` makes of the values, for that version of Kubernetes; raises RefusedError."""
    return _chart(json.dumps(values), kinds, release, namespace, kubernetes)


@functools.cache
def _chart(
    values: str, kinds: tuple[str, ...], release: str, namespace: str, kubernetes: str
) -> Objects:
    command = [found("helm"), "template", release, str(CHART), "--namespace", namespace]
    command += ["--kube-version", kubernetes] if kubernetes else []
    for kind in kinds:
        command += ["--api-versions", kind]
    return parsed(run([*command, "--values", "-"], values))


def kustomize(folder: Path) -> Objects:
    """Returns what `kubectl kustomize` makes of a folder."""
    return parsed(run([found("kubectl"), "kustomize", str(folder)]))


def parsed(text: str) -> Objects:
    return Objects(tuple(item for item in yaml.safe_load_all(text) if item))


def run(command: list[str], stdin: str = "") -> str:
    """Returns the standard output of what runs in the project's root; raises RefusedError with the standard error."""
    done = subprocess.run(
        command, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=110, check=False
    )
    if done.returncode != 0:
        raise RefusedError(done.stderr)
    return done.stdout
