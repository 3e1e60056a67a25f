"""The table of docs/errors.md, from the errors' own facts: `python -m router.error_table` prints it."""

from __future__ import annotations

from collections.abc import Iterator

from router.errors import RouterError


def every_error(base: type[RouterError] = RouterError) -> Iterator[type[RouterError]]:
    """Yields every class below `base`."""
    for kind in base.__subclasses__():
        yield kind
        yield from every_error(kind)


def reference_table() -> str:
    """Returns the table of docs/errors.md, ordered by status."""
    head = (
        "| status | code | detail | retryable | `Retry-After` | connection | what to do | class |"
    )
    order = sorted(every_error(), key=lambda kind: (kind.status, kind.code, kind.__name__))
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *map(_reference_row, order)])


def _reference_row(kind: type[RouterError]) -> str:
    detail = kind.default_detail + (": <id>" if hasattr(kind, "of") else "")
    retry_after = "none" if kind.retry_after_s is None else f"{kind.retry_after_s} s"
    retryable = "yes" if kind.retryable else "no"
    connection = "closes" if kind.closes_connection else "stays"
    return (
        f"| {kind.status} | `{kind.code}` | `{detail}` | {retryable} | {retry_after} | {connection} "
        f"| {kind.advice} | `{kind.__name__}` |"
    )


if __name__ == "__main__":
    print(reference_table())
