import ssl
from collections import Counter

import pytest

from router.proxy.budget import Budget
from router.proxy.pool import Pool
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from router.routing.names import AddressesOnly
from router.server.certificate_expiry import CertificateExpiry
from router.server.tls import Handshakes
from router.telemetry import readings
from router.telemetry.metrics import Metrics
from router.watched_file import FileStatus, WatchedFiles


@pytest.fixture
def metrics():
    return Metrics(version="1")


def numbers(metrics, name):
    return {labels: series[0] for labels, series in metrics.snapshot().get(name, [])}


def test_the_tables_numbers_are_those_of_a_real_index(metrics):
    now = [100.0]
    index = EndpointIndex(waiting_room=8, waiting_room_per_namespace=8, clock=lambda: now[0])
    readings.read_index(metrics, index)
    assert numbers(metrics, "sandbox_router_index_age_seconds") == {}

    for name, state in (("a", State.READY), ("b", State.READY), ("c", State.STARTING)):
        index.upsert(
            Endpoint(
                ref=SandboxRef("team", name),
                uid=name,
                state=state,
                addresses=("192.0.2.1",) if state is State.READY else (),
            )
        )
    ready = index.find(SandboxRef("team", "b"))
    index.evict(ready, "192.0.2.1")
    index.set_synced()
    index.wait(SandboxRef("team", "c"), lambda: None)
    now[0] += 2.5

    assert numbers(metrics, "sandbox_router_index_sandboxes") == {
        ("ready",): 1,
        ("starting",): 2,
        ("suspended",): 0,
        ("finished",): 0,
    }
    assert numbers(metrics, "sandbox_router_index_age_seconds") == {(): 2.5}
    assert numbers(metrics, "sandbox_router_index_events_total") == {
        ("reported",): 3,
        ("evicted",): 1,
    }
    assert numbers(metrics, "sandbox_router_waiting_requests") == {(): 1}


def test_the_tables_namespaces_have_series_only_once_the_table_is_complete(metrics):
    index = EndpointIndex(waiting_room=8, waiting_room_per_namespace=8)
    readings.read_index(metrics, index)
    index.upsert(Endpoint(ref=SandboxRef("team", "a"), uid="a", state=State.STARTING, addresses=()))

    name = "sandbox_router_waiting_room_full_total"
    assert set(numbers(metrics, name)) == {("unknown",)}
    index.set_synced()
    assert set(numbers(metrics, name)) == {("unknown",), ("team",)}


def test_the_table_is_walked_once_a_scrape(metrics):
    class Index:
        events = evictions = walks = 0

        def __iter__(self):
            self.walks += 1
            return iter(())

        def waiting(self):
            return 0

        def age_s(self):
            return 0.0

    index = Index()
    readings.read_index(metrics, index)

    metrics.snapshot()
    metrics.snapshot()

    assert index.walks == 2


async def test_the_pools_numbers_are_those_of_a_real_pool(metrics):
    pool = Pool(
        max_idle=1,
        max_idle_total=10,
        idle_timeout_s=1.0,
        connect_timeout_s=1.0,
        max_head_bytes=1024,
        budget=Budget(limit_bytes=2**30),
        own_listeners=lambda: (),
        resolver=AddressesOnly(),
    )

    readings.read_pool(metrics, pool)

    assert numbers(metrics, "sandbox_router_pool_connections") == {("idle",): 0, ("active",): 0}


async def test_reloads_are_those_of_real_watched_files(metrics, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("one")

    def parse(contents):
        if contents[0] == b"bad":
            raise ValueError("bad")
        return contents

    watched = WatchedFiles((path,), parse=parse, apply=lambda value: None)
    watched.load_once()
    readings.read_file(metrics, "policy", watched)
    readings.read_certificate(metrics, watched)

    path.write_text("three")
    await watched.poll()
    path.write_text("bad")
    await watched.poll()

    reloads = numbers(metrics, "sandbox_router_config_reloads_total")
    assert (reloads["policy-file", "success"], reloads["policy-file", "failure"]) == (1, 1)
    assert reloads["jwks-file", "success"] == 0
    assert numbers(metrics, "sandbox_router_cert_reloads_total") == {
        ("success",): 1,
        ("failure",): 1,
    }


async def test_a_failed_reload_stays_visible_until_it_is_mended(metrics, tmp_path):
    path, now = tmp_path / "file", [1000.0]
    path.write_text("good")

    def parse(contents):
        if contents[0].startswith(b"bad"):
            raise ValueError("bad")
        return contents

    watched = WatchedFiles((path,), parse=parse, apply=lambda value: None, clock=lambda: now[0])
    watched.load_once()
    readings.read_reloads(metrics, "jwt_secret", watched)
    assert state_of_reloads(metrics) == (1, 1000)

    path.write_text("bad for a long time")
    for now[0] in (2000.0, 3000.0):
        await watched.poll()
        assert state_of_reloads(metrics) == (0, 1000)

    path.write_text("good again")
    now[0] = 4000.0
    await watched.poll()
    assert state_of_reloads(metrics) == (1, 4000)


def state_of_reloads(metrics):
    label = ("jwt-secret-file",)
    return (
        numbers(metrics, "sandbox_router_last_reload_success")[label],
        numbers(metrics, "sandbox_router_last_reload_success_timestamp_seconds")[label],
    )


def test_what_never_loaded_has_failed_and_has_no_time(metrics):
    class NeverLoaded:
        def status(self, name):
            return FileStatus(name, False, 0.0, "no answer")

    readings.read_reloads(metrics, "jwks_url", NeverLoaded())

    assert numbers(metrics, "sandbox_router_last_reload_success") == {("jwks-url",): 0}
    assert numbers(metrics, "sandbox_router_last_reload_success_timestamp_seconds") == {}


def test_the_ends_of_certificates_are_those_of_the_files_in_force(metrics):
    expiry = CertificateExpiry(clock=lambda: 0.0)
    readings.read_certificate_ends(metrics, expiry)
    assert numbers(metrics, "sandbox_router_certificate_not_after_seconds") == {}

    expiry.loaded({"tls-cert-file": 4e9, "tls-client-ca-file": 5e9})

    assert numbers(metrics, "sandbox_router_certificate_not_after_seconds") == {
        ("tls-cert-file",): 4e9,
        ("tls-client-ca-file",): 5e9,
    }


def test_refused_credentials_are_those_that_the_chain_counted(metrics):
    failures = Counter()
    readings.read_auth_failures(metrics, failures)

    failures["jwt", "expired"] += 2

    assert numbers(metrics, "sandbox_router_auth_failures_total")["jwt", "expired"] == 2


def test_watch_restarts_are_those_that_discovery_counted(metrics):
    restarts = Counter({("pods", "expired"): 3, ("pods", "unheard of"): 1})

    readings.read_watch_restarts(metrics, restarts)

    found = numbers(metrics, "sandbox_router_watch_restarts_total")
    assert (found["pods", "expired"], found["pods", "other"]) == (3, 1)


def test_refused_watches_are_those_that_discovery_has_now(metrics):
    refused = {"pods": 0, "sandboxes": 2}

    readings.read_watches_refused(metrics, lambda: refused)
    assert numbers(metrics, "sandbox_router_watches_refused")["sandboxes",] == 2
    refused["sandboxes"] = 0

    assert numbers(metrics, "sandbox_router_watches_refused")["sandboxes",] == 0


def test_lost_lines_are_those_of_the_access_log(metrics):
    class Log:
        dropped = 7

    readings.read_access_log(metrics, Log())

    assert numbers(metrics, "sandbox_router_access_log_dropped_total") == {(): 7}


def test_lost_lines_of_the_log_are_shown_by_reason(metrics):
    readings.read_log(metrics, lambda: {("repeated",): 340, ("not_taken",): 2})

    found = numbers(metrics, "sandbox_router_log_dropped_total")
    assert found == {("repeated",): 340, ("not_taken",): 2}


def test_spans_are_shown_by_what_became_of_them(metrics):
    class Spans:
        def counts(self):
            return {("exported",): 5, ("failed",): 2, ("dropped",): 1}

    readings.read_spans(metrics, Spans())

    assert numbers(metrics, "sandbox_router_spans_total") == Spans().counts()


def test_failed_handshakes_are_shown_by_reason(metrics):
    handshakes = Handshakes()
    readings.read_handshakes(metrics, handshakes.failed)
    error = ssl.SSLError()
    error.reason = "PEER_DID_NOT_RETURN_A_CERTIFICATE"

    handshakes.note_failure(error)

    failures = numbers(metrics, "sandbox_router_tls_handshake_failures_total")
    assert failures[("no_certificate",)] == 1
    assert sum(failures.values()) == 1


def test_open_handshakes_are_shown_by_what_becomes_of_them(metrics):
    class Acceptor:
        under_way = 3
        waiting = 2

    readings.read_open_handshakes(metrics, Acceptor())
    assert numbers(metrics, "sandbox_router_tls_handshakes") == {
        ("under_way",): 3,
        ("waiting",): 2,
    }
