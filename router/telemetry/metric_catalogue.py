"""The catalogue of metrics: each family's name, labels, meaning; run as a module it prints the table of docs/metrics.md."""

from __future__ import annotations

from router import code_form
from router.proxy.request import UPSTREAM_ERRORS, WAKE_OUTCOMES
from router.server.tls import HANDSHAKE_FAILURES
from router.telemetry.metric_family import Family, Kind, Merge, Source
from router.telemetry.metric_labels import (
    AUTH_FAILURE_REASONS,
    AUTH_MODES,
    AUTHZ_DECISIONS,
    CERTIFICATE_FILES,
    CONNECT_BUCKETS_S,
    CONNECT_OUTCOMES,
    DNS_BUCKETS_S,
    DNS_OUTCOMES,
    FIRST_BYTE_BUCKETS_S,
    INDEX_EVENTS,
    LOG_LOSSES,
    OTHER,
    OUTCOMES,
    POOL_STATES,
    RELOADED_FILES,
    REQUEST_BUCKETS_S,
    ROUTER_ERROR_CODES,
    SANDBOX_STATES,
    SPAN_OUTCOMES,
    WAIT_BUCKETS_S,
    WAKE_BUCKETS_S,
    WATCH_RESTART_REASONS,
    WATCHED_RESOURCES,
)

_REQUEST_LABELS = ("method", "code", "sandbox_namespace")

FAMILIES: tuple[Family, ...] = (
    Family(
        "sandbox_router_requests_total",
        Kind.COUNTER,
        "Requests that ended, tunnels included (code 101), by HTTP status as the client saw it;"
        " 499: the client left before there was a status.",
        _REQUEST_LABELS,
        (None, None, None),
    ),
    Family(
        "sandbox_router_request_duration_seconds",
        Kind.HISTOGRAM,
        "Time from a request's head to the last byte of its response; for a tunnel (code 101) to its end: leave those out of quantiles.",
        _REQUEST_LABELS,
        (None, None, None),
        REQUEST_BUCKETS_S,
    ),
    Family(
        "sandbox_router_inflight_requests",
        Kind.GAUGE,
        "Requests that have begun and not ended, open tunnels included.",
    ),
    Family(
        "sandbox_router_upstream_errors_total",
        Kind.COUNTER,
        "Requests that failed on the sandbox's side.",
        ("sandbox_namespace", "reason"),
        (None, (*UPSTREAM_ERRORS, OTHER)),
    ),
    Family(
        "sandbox_router_upstream_retries_total",
        Kind.COUNTER,
        "Connects that were tried again (nothing had been sent).",
    ),
    Family(
        "sandbox_router_cache_invalidations_total",
        Kind.COUNTER,
        "Routes taken out of the table because their host did not answer.",
    ),
    Family(
        "sandbox_router_authz_decisions_total",
        Kind.COUNTER,
        "Decisions whether a caller may reach a sandbox.",
        ("sandbox_namespace", "decision"),
        (None, (*AUTHZ_DECISIONS, OTHER)),
    ),
    Family(
        "sandbox_router_cert_reloads_total",
        Kind.COUNTER,
        "Attempts to load a changed server certificate; after a failure the old one stays in force.",
        ("outcome",),
        (OUTCOMES,),
        source=Source.READING,
    ),
    Family(
        "sandbox_router_tls_handshakes",
        Kind.GAUGE,
        "TLS handshakes whose clients have said hello: worked on, or waiting for their turn since `max-handshakes` are.",
        ("state",),
        (("under_way", "waiting"),),
        source=Source.READING,
    ),
    Family(
        "sandbox_router_tls_handshake_failures_total",
        Kind.COUNTER,
        "TLS handshakes that failed: no or a bad client certificate, no common version, plain HTTP and the like.",
        ("reason",),
        (HANDSHAKE_FAILURES,),
        source=Source.READING,
    ),
    Family(
        "sandbox_router_build_info",
        Kind.GAUGE,
        "Always 1: the versions that run, and the form of the code: compiled or pure Python.",
        ("version", "python", "form"),
        (None, None, code_form.FORMS),
        merge=Merge.MAX,
    ),
    Family(
        "sandbox_router_router_errors_total",
        Kind.COUNTER,
        "Answers that the router made itself instead of the sandbox (see errors.md).",
        ("code",),
        (ROUTER_ERROR_CODES,),
    ),
    Family(
        "sandbox_router_open_tunnels",
        Kind.GAUGE,
        "Upgraded connections (WebSockets and the like) that are open.",
    ),
    Family(
        "sandbox_router_bytes_total",
        Kind.COUNTER,
        "Body and tunnel bytes, added when their request or tunnel ends.",
        ("direction",),
        (("from_client", "to_client"),),
    ),
    Family(
        "sandbox_router_index_sandboxes",
        Kind.GAUGE,
        "Sandboxes in the table. Every worker keeps the same table, so workers don't add up.",
        ("state",),
        (SANDBOX_STATES,),
        merge=Merge.MAX,
        source=Source.READING,
    ),
    Family(
        "sandbox_router_index_age_seconds",
        Kind.GAUGE,
        "Time since the table last agreed with its source; absent before the first time; the oldest of all workers.",
        merge=Merge.MAX,
        source=Source.READING,
    ),
    Family(
        "sandbox_router_index_events_total",
        Kind.COUNTER,
        "Changes of the table: reported by discovery, or a dead host's route evicted. Every worker counts its own.",
        ("event",),
        (INDEX_EVENTS,),
        source=Source.READING,
    ),
    Family(
        "sandbox_router_watch_restarts_total",
        Kind.COUNTER,
        "Watches of the Kubernetes API that ended and began anew.",
        ("resource", "reason"),
        (WATCHED_RESOURCES, WATCH_RESTART_REASONS),
        source=Source.READING,
    ),
    Family(
        "sandbox_router_watches_refused",
        Kind.GAUGE,
        "Watches that the API server refuses (RBAC, or not installed); without `sandboxes` the router goes by pods alone. `/readyz` says what that costs.",
        ("resource",),
        (WATCHED_RESOURCES,),
        merge=Merge.MAX,
        source=Source.READING,
    ),
    Family(
        "sandbox_router_dns_lookup_duration_seconds",
        Kind.HISTOGRAM,
        "Time until a host name's lookup ended, by how: `answered`, `unknown` (no such name or no address), `refused` (no sandbox can be at that address),"
        " `unanswered`, or `given_up` (too many lookups at once). What is remembered is not looked up. Only where discovery goes by names.",
        ("outcome",),
        (DNS_OUTCOMES,),
        DNS_BUCKETS_S,
        source=Source.READING,
    ),
    Family(
        "sandbox_router_waiting_requests",
        Kind.GAUGE,
        "Requests that wait for a starting sandbox.",
        source=Source.READING,
    ),
    Family(
        "sandbox_router_waiting_room_full_total",
        Kind.COUNTER,
        "Requests that were refused because the waiting room, or their namespace's share of it, was full.",
        ("sandbox_namespace",),
        (None,),
    ),
    Family(
        "sandbox_router_wakes_total",
        Kind.COUNTER,
        "Wakes of suspended sandboxes that requests began, by how they ended: `woken`; `already` (someone else was faster); `not_ready` in time; `gone` meanwhile;"
        " `limited` (no turn in time, each such request); `refused` or `unavailable` (by the API server). The log says which and why.",
        ("outcome",),
        (WAKE_OUTCOMES,),
    ),
    Family(
        "sandbox_router_wake_duration_seconds",
        Kind.HISTOGRAM,
        "Time from the first request for a suspended sandbox until it was ready, of wakes that came about.",
        buckets_s=WAKE_BUCKETS_S,
    ),
    Family(
        "sandbox_router_pool_connections",
        Kind.GAUGE,
        "Connections to sandboxes.",
        ("state",),
        (POOL_STATES,),
        source=Source.READING,
    ),
    Family(
        "sandbox_router_buffered_bytes",
        Kind.GAUGE,
        "max-buffered-bytes: what is held.",
        source=Source.READING,
    ),
    Family(
        "sandbox_router_buffered_bytes_limit",
        Kind.GAUGE,
        "max-buffered-bytes: what may be held.",
        source=Source.READING,
    ),
    Family(
        "sandbox_router_buffers_ended_total",
        Kind.COUNTER,
        "Connections ended because what they held did not move and others needed the memory.",
        source=Source.READING,
    ),
    Family(
        "sandbox_router_client_connections",
        Kind.GAUGE,
        "Connections of clients, from the accept on: TLS handshakes are among them.",
    ),
    Family(
        "sandbox_router_connections_refused_total",
        Kind.COUNTER,
        "Clients turned away because of max-connections.",
    ),
    Family(
        "sandbox_router_config_reloads_total",
        Kind.COUNTER,
        "Attempts to load a changed file; after a failure the old content stays in force.",
        ("file", "outcome"),
        (RELOADED_FILES, OUTCOMES),
        source=Source.READING,
    ),
    Family(
        "sandbox_router_last_reload_success",
        Kind.GAUGE,
        "1 while what a file (by the setting that names it) holds now is in force; 0 from a failed reload on until it is mended.",
        ("file",),
        (RELOADED_FILES,),
        merge=Merge.MIN,
        source=Source.READING,
    ),
    Family(
        "sandbox_router_last_reload_success_timestamp_seconds",
        Kind.GAUGE,
        "When the content in force was loaded or found unchanged, in Unix time; absent before the first time.",
        ("file",),
        (RELOADED_FILES,),
        merge=Merge.MIN,
        source=Source.READING,
    ),
    Family(
        "sandbox_router_certificate_not_after_seconds",
        Kind.GAUGE,
        "When the first of the certificates in a file (by the setting that names it) ends, in Unix time.",
        ("file",),
        (CERTIFICATE_FILES,),
        merge=Merge.MIN,
        source=Source.READING,
    ),
    Family(
        "sandbox_router_auth_failures_total",
        Kind.COUNTER,
        "Credentials that were refused or could not be checked.",
        ("mode", "reason"),
        (AUTH_MODES, AUTH_FAILURE_REASONS),
        source=Source.READING,
    ),
    Family(
        "sandbox_router_access_log_dropped_total",
        Kind.COUNTER,
        "Access-log lines that were dropped because nobody took them in time.",
        source=Source.READING,
    ),
    Family(
        "sandbox_router_log_dropped_total",
        Kind.COUNTER,
        "Log lines that were not written: repeats, of which only the number is logged; or nobody took them in time.",
        ("reason",),
        (LOG_LOSSES,),
        source=Source.READING,
    ),
    Family(
        "sandbox_router_spans_total",
        Kind.COUNTER,
        "Spans of traces: exported, failed (the collector did not take them), or dropped because too many waited.",
        ("outcome",),
        (SPAN_OUTCOMES,),
        source=Source.READING,
    ),
    Family(
        "sandbox_router_first_byte_seconds",
        Kind.HISTOGRAM,
        "Time from sending a request to a sandbox until its response's head; tunnels don't count.",
        buckets_s=FIRST_BYTE_BUCKETS_S,
    ),
    Family(
        "sandbox_router_connect_duration_seconds",
        Kind.HISTOGRAM,
        "Time that a request spent on a new connection to its sandbox, retries included, by how that ended: `connected`, why not,"
        " or `abandoned` (the client left meanwhile or soon after).",
        ("outcome",),
        (CONNECT_OUTCOMES,),
        CONNECT_BUCKETS_S,
    ),
    Family(
        "sandbox_router_wait_duration_seconds",
        Kind.HISTOGRAM,
        "Time that requests waited for a starting sandbox.",
        buckets_s=WAIT_BUCKETS_S,
    ),
    Family(
        "process_cpu_seconds_total",
        Kind.COUNTER,
        "CPU time, user and system.",
        source=Source.PROCESS,
    ),
    Family(
        "process_resident_memory_bytes",
        Kind.GAUGE,
        "Resident memory; pages that workers share count once per worker.",
        source=Source.PROCESS,
    ),
    Family("process_virtual_memory_bytes", Kind.GAUGE, "Virtual memory.", source=Source.PROCESS),
    Family("process_open_fds", Kind.GAUGE, "Open file descriptors.", source=Source.PROCESS),
    Family(
        "process_max_fds",
        Kind.GAUGE,
        "Largest number of file descriptors that one process may open.",
        merge=Merge.MIN,
        source=Source.PROCESS,
    ),
    Family(
        "process_start_time_seconds",
        Kind.GAUGE,
        "Start of the oldest process, in Unix time.",
        merge=Merge.MIN,
        source=Source.PROCESS,
    ),
)

BY_NAME = {family.name: family for family in FAMILIES}


def markdown_table() -> str:
    """Returns the table of docs/metrics.md."""
    lines = ["| metric | type | labels | several workers | meaning |", "|---|---|---|---|---|"]
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels) or "none"
        lines.append(
            f"| `{family.name}` | {family.kind.value} | {labels} | {family.merge.value} | {family.help} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown_table(), end="")
