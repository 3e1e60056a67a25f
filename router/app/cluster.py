"""Opens the Kubernetes API for those parts of a worker that need it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import cluster_access
from router.settings import Settings


async def api_if(
    settings: Settings,
    resources: contextlib.AsyncExitStack,
    environment: Mapping[str, str],
    is_wanted: bool,
) -> KubernetesApi | None:
    """Returns a client of the API server that lives as long as `resources`, None where it isn't wanted. Raises ValueError, OSError."""
    if not is_wanted:
        return None
    access = await cluster_access(settings.discovery.kubeconfig, environment)
    return await resources.enter_async_context(KubernetesApi(access=access))
