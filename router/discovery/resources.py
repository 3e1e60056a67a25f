"""Resources: what is watched, and where the API server serves it."""

from __future__ import annotations

from dataclasses import dataclass

from router.discovery.objects import EXTENSIONS_GROUP, SANDBOX_GROUP
from router.discovery.pods import NAME_HASH_LABEL


@dataclass(frozen=True, slots=True)
class Resource:
    """What to watch: the plural's name, the API prefixes that may serve it in order of preference, and a label selector."""

    name: str
    prefixes: tuple[str, ...]
    label_selector: str = ""


PODS = Resource("pods", ("/api/v1",), label_selector=NAME_HASH_LABEL)
SANDBOXES = Resource(
    "sandboxes", (f"/apis/{SANDBOX_GROUP}/v1beta1", f"/apis/{SANDBOX_GROUP}/v1alpha1")
)
CLAIMS = Resource(
    "sandboxclaims", (f"/apis/{EXTENSIONS_GROUP}/v1beta1", f"/apis/{EXTENSIONS_GROUP}/v1alpha1")
)
