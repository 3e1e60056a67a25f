"""Watch events: what one line of a watch says."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from router.discovery.objects import section, text
from router.discovery.watch_lines import BrokenWatchError
from router.kube.api_client import ApiError, JsonObject

END_OF_LIST = "k8s.io/initial-events-end"
"""The annotation of the bookmark behind a streamed list (KEP-3157)."""


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


def read_event(line: bytes) -> WatchEvent:
    """Returns what a line says. Raises ApiError for an ERROR event, BrokenWatchError for what is no event."""
    try:
        event = orjson.loads(line)
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError.of_status(0, item)
        return WatchEvent(kind, item, text(section(item, "metadata"), "resourceVersion"))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise BrokenWatchError(f"the watch sent something that is no event: {error}") from error
