"""Watch events: what one line of a watch says."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from router.discovery.objects import section, text
from router.discovery.watch_lines import BrokenWatchError
from router.kube.api_client import ApiError, JsonObject

END_OF_LIST = "k8s.io/initial-events-end"
"""The annotation of the bookmark behind a streamed list (KEP-3157)."""


_MANAGED = b',"managedFields":['
_END_OF_METADATA = b'}]},"spec":{'
"""What follows them in Kubernetes' own kinds."""
_NAME_FOLLOWS = b'}],"name":"'
"""What follows them in custom resources, whose keys are sorted."""


class WatchEvent(NamedTuple):
    """One event, made for every line: hence a tuple."""

    kind: str
    item: JsonObject
    version: str
    """The resourceVersion that it brings."""

    @property
    def ends_list(self) -> bool:
        """True for the bookmark after which a streamed list is complete."""
        if self.kind != "BOOKMARK":
            return False
        annotations = section(section(self.item, "metadata"), "annotations")
        return text(annotations, END_OF_LIST) == "true"


def without_managed_fields(line: bytes) -> bytes:
    """Returns an object's JSON without its managedFields, up to half of it that nobody here reads; the line itself if in doubt.

    In JSON a quote behind a comma begins a key, or a bare word would follow: so each marker is structure, whatever a tenant
    writes into names and values. managedFields hold no lists, so the first end is their own.
    """
    start = line.find(_MANAGED)
    if start < 0:
        return line
    end = line.find(_END_OF_METADATA, start)
    by_name = line.find(_NAME_FOLLOWS, start, end) if end > 0 else line.find(_NAME_FOLLOWS, start)
    end = by_name if by_name > 0 else end
    return line[:start] + line[end + 2 :] if end > 0 else line


def read_event(line: bytes) -> WatchEvent:
    """Returns what a line says. Raises ApiError for an ERROR event, BrokenWatchError for what is no event."""
    try:
        event = orjson.loads(without_managed_fields(line))
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError.of_status(0, item)
        return WatchEvent(kind, item, text(section(item, "metadata"), "resourceVersion"))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise BrokenWatchError(f"the watch sent something that is no event: {error}") from error
