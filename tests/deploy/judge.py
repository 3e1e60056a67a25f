"""Judges rendered objects by Kubernetes' own schemas, and those of extensions by ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import kubernetes_validate

from tests.deploy import crds

KUBERNETES_VERSION = "1.37"
OLDEST_KUBERNETES_VERSION = "1.27"
"""The chart's kubeVersion."""


def judge(items: Iterable[dict[str, Any]], version: str = KUBERNETES_VERSION) -> int:
    """Returns how many objects were judged; raises for the first one that is wrong. Unknown fields are wrong."""
    count = 0
    for item in items:
        if crds.is_known(item):
            crds.validate(item)
        else:
            kubernetes_validate.validate(item, version, strict=True)
        count += 1
    return count
