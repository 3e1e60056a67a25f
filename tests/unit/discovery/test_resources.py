from __future__ import annotations

import pytest

from router.discovery.resources import CLAIMS, PODS, SANDBOXES, Resource


@pytest.mark.parametrize("resource", [SANDBOXES, CLAIMS])
def test_the_stored_version_is_asked_for_first_and_the_older_one_where_it_is_missing(
    resource: Resource,
) -> None:
    assert [prefix.rpartition("/")[2] for prefix in resource.prefixes] == ["v1beta1", "v1alpha1"]


def test_of_the_pods_only_those_of_sandboxes_are_asked_for() -> None:
    assert PODS.label_selector == "agents.x-k8s.io/sandbox-name-hash"
