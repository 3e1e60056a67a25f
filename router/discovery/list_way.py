"""ListWay: whether the next list comes as a stream or in pages, by what the server did with the ones before."""

from __future__ import annotations

from typing import Final

from router.kube.api_client import ApiError

NO_STREAMING: Final = frozenset({400, 405, 406, 415, 422, 501})
"""How servers refuse to send a list as a stream: before 1.27, or with that feature off, it is 422."""
BROKEN_STREAMS: Final = 2
"""After so many streamed lists without an end, the next one comes in pages."""
_THROTTLED: Final = 429
_FAILED: Final = 500


class ListWay:
    """Streams are tried first; what they come to is told here."""

    def __init__(self) -> None:
        self._server_streams = True
        self._broken_streams = 0
        """Streamed lists in a row that came to no end."""

    def __repr__(self) -> str:
        return f"<ListWay {'stream' if self.is_stream else 'pages'} broken={self._broken_streams}>"

    @property
    def is_stream(self) -> bool:
        """True when the next list is to come as a stream."""
        return self._server_streams and self._broken_streams < BROKEN_STREAMS

    def begins(self) -> None:
        """Notes a stream that the server began, broken until it is complete."""
        self._broken_streams += 1

    def is_complete(self) -> None:
        """Notes a complete list, whichever way it came."""
        self._broken_streams = 0

    def has_no_end(self) -> None:
        """Notes a server that ignores the wish: it never marks the list's end."""
        self._server_streams = False

    def is_refused(self, error: ApiError) -> bool:
        """Returns True when `error` was about the stream alone: pages may do at once."""
        if error.status in NO_STREAMING:
            self._server_streams = False
            return True
        if error.status == _FAILED:
            # So says a server whose etcd can't tell how far a watch has come (before 3.4.25 and 3.5.8).
            self._broken_streams = BROKEN_STREAMS
            return True
        # A watch cache that lags behind etcd throttles each stream, and pages not at all.
        self._broken_streams += error.status == _THROTTLED
        return False
