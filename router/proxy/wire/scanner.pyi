from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from router.proxy.wire.head_lines import Special

Actions = Sequence[tuple[int, str | int]]
Nominated = Callable[[Iterable[bytes]], frozenset[bytes]]

class Scan:
    def special(self) -> list[Special]: ...
    def crossing(
        self,
        start: bytes | None,
        table: bytes,
        host: bytes,
        changes: dict[int, bytes] | None,
        tail: bytes,
    ) -> bytes: ...

class RequestScanner:
    def __init__(
        self,
        kinds: Mapping[bytes, int],
        common: Iterable[bytes],
        actions: Actions,
        nominated: Nominated,
        new_asked: Callable[[tuple[bytes | None, ...]], Any],
        asked_count: int,
        known: Iterable[str],
    ) -> None: ...
    def read(self, head: Any, block: bytes, known: Any) -> bool: ...

class ResponseScanner:
    def __init__(
        self,
        kinds: Mapping[bytes, int],
        common: Iterable[bytes],
        actions: Actions,
        nominated: Nominated,
    ) -> None: ...
    def read(self, head: Any, block: bytes) -> bool: ...
