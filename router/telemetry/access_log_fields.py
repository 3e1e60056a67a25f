"""The access log's fields: name, type, unit and meaning of each, in their order.

The table in docs/access-log.md is generated from it: `python -m router.telemetry.access_log_fields` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a line. `kind` is JSON's type; an optional field is left out of lines that have nothing to say there."""

    name: str
    kind: str
    unit: str
    meaning: str
    is_optional: bool = False


FIELDS: tuple[Field, ...] = (
    Field(
        "time",
        "string",
        "RFC 3339, UTC",
        "When the request's head had arrived. The line is written at the end, which is `time` plus `total_s`; so lines are not in the order of `time`.",
    ),
    Field(
        "method",
        "string",
        "",
        "The request's method, as it came; `CONNECT` for one that asks for a [TCP connection](connect.md), with status 101 where it became one.",
    ),
    Field(
        "path",
        "string",
        "",
        "The request's path, without its query; percent-encoded where it was no visible ASCII.",
    ),
    Field(
        "status",
        "number",
        "",
        "The status that the client was sent; 101 for a tunnel; 499 when the client left before there was one.",
    ),
    Field(
        "code",
        "string",
        "",
        "Why the router answered itself ([errors](errors.md)), or another end than the usual one ([ends](troubleshooting.md#other-ends-of-a-request)); empty when the sandbox's response was delivered.",
    ),
    Field(
        "total_s",
        "number",
        "seconds",
        "From the head to the end of the response, or of the tunnel.",
    ),
    Field(
        "wait_s",
        "number or null",
        "seconds",
        "Waiting for a sandbox that was starting; null when it was ready.",
    ),
    Field(
        "connect_s",
        "number or null",
        "seconds",
        "Opening a connection to the sandbox, retries included, whether it succeeded or not; null on a connection that was open already.",
    ),
    Field(
        "first_byte_s",
        "number or null",
        "seconds",
        "From the request's head being sent to the sandbox until its response's head; null when none came.",
    ),
    Field(
        "bytes_from_client", "number", "bytes", "Of the request's body, or what went up the tunnel."
    ),
    Field(
        "bytes_to_client",
        "number",
        "bytes",
        "Of the response's body, or what came down the tunnel. Of a response that was cut, what the client's connection took.",
    ),
    Field(
        "client",
        "string",
        "",
        "The client's address, found right to left through `trusted-proxies`.",
    ),
    Field(
        "principal",
        "string",
        "",
        "Who called: the token's subject, the Kubernetes user, the certificate's identity; empty when that is not known.",
    ),
    Field(
        "namespace", "string", "", "The namespace that the request named, whether it exists or not."
    ),
    Field("sandbox", "string", "", "The sandbox that the request named."),
    Field(
        "port",
        "number",
        "",
        "The sandbox's port that the request named; 0 when it named no sandbox.",
    ),
    Field(
        "pod_uid",
        "string",
        "",
        "The pod that the request was meant for, by UID; empty when it didn't get that far.",
    ),
    Field(
        "trace_id",
        "string",
        "",
        "The W3C trace id that the sandbox was sent ([tracing](tracing.md)); empty without one.",
    ),
    Field("retries", "number", "", "Attempts to connect after the first."),
    Field(
        "upstream_error",
        "string",
        "",
        "What went wrong on the sandbox's side: the values of `reason` in `sandbox_router_upstream_errors_total`; empty when nothing did.",
    ),
    Field(
        "woke",
        "boolean",
        "",
        "True: the request met a suspended sandbox, and woke it or waited for another's wake ([sleeping](sleeping.md)).",
        is_optional=True,
    ),
    Field(
        "public",
        "boolean",
        "",
        "True: the request needed no credential, for its port is [public](browsers.md#public-ports).",
        is_optional=True,
    ),
    Field(
        "token_id",
        "string",
        "",
        "The id (`jti`) of the token that the caller brought; the same that `revoked` in the policy file takes.",
        is_optional=True,
    ),
    Field(
        "key_id",
        "string",
        "",
        "The key (`kid`) that the token was verified by.",
        is_optional=True,
    ),
    Field(
        "error_reason",
        "string",
        "",
        "What only the operator may know of an error: an errno, an address.",
        is_optional=True,
    ),
)


def markdown_table() -> str:
    """Returns the table of docs/access-log.md."""
    lines = ["| field | type | unit | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{field.name}` | {field.kind}{', optional' if field.is_optional else ''} | {field.unit} | {field.meaning} |"
        for field in FIELDS
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown_table(), end="")
