"""Sandboxes that are found in DNS, and sandboxes whose address is a name: over sockets, down to the name server."""

import time

import pytest

from router.discovery.dns import DnsSource
from router.discovery.name_servers import NameServers
from router.discovery.resolver import CachingResolver
from tests.fakes.dns_server import dns_server
from tests.integration.proxy.faults import dialling_fails
from tests.integration.proxy.messages import request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import until

BOX = "box.default.svc.cluster.local"


@pytest.fixture
async def dns():
    """The name server of the router's resolv.conf."""
    async with dns_server() as server:
        yield server


@pytest.fixture
def resolvers(dns, tmp_path):
    """Returns a maker of resolvers; pods of tests are on loopback, which DNS discovery itself refuses."""

    def make(*, allow_loopback=True):
        lines = ("search corp.example", "options ndots:5")
        conf = dns.write_resolv_conf(tmp_path / "resolv.conf", *lines)
        servers = NameServers(hosts=tmp_path / "hosts", resolv_conf=conf, port=dns.port)
        return CachingResolver(ask=servers.ask, allow_loopback=allow_loopback)

    return make


@pytest.fixture
def start_by_dns(start_router, resolvers):
    async def start(*, allow_loopback=True, trusts=False):
        return await start_router(
            resolver=resolvers(allow_loopback=allow_loopback),
            source=DnsSource(cluster_domain="cluster.local", trust_pod_ip_header=trusts),
        )

    return start


@pytest.fixture
async def by_dns(start_by_dns):
    return await start_by_dns()


def on(pod, *headers, **changes):
    """Returns a request for the pod's port."""
    return request("GET", "/", ("X-Sandbox-Port", str(pod.port)), *headers, **changes)


async def test_a_sandbox_is_found_by_its_services_name(by_dns, dns, pod):
    dns.names[BOX] = ["127.0.0.1"]
    async with serving(pod):
        assert (await by_dns.ask(on(pod))).status == 200
        assert (await by_dns.ask(on(pod))).status == 200
    assert pod.connections == 1
    assert dns.asked == {(BOX, "A"): 1, (BOX, "AAAA"): 1}


async def test_a_search_domain_never_leads_a_request_to_a_stranger(by_dns, dns, pod):
    dns.names[f"{BOX}.corp.example"] = ["127.0.0.1"]
    told = await by_dns.ask(on(pod))
    assert (told.status, told.code) == (404, "sandbox_not_found")
    assert pod.connections == 0


async def test_a_name_that_dns_does_not_know_is_404(by_dns, pod):
    told = await by_dns.ask(on(pod))
    assert (told.status, told.code) == (404, "sandbox_not_found")
    assert (await by_dns.outcome()).namespace == "default"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "0.0.0.0", "224.0.0.1"])
async def test_a_name_that_leads_where_no_sandbox_can_be_is_refused_at_once(
    start_by_dns, dns, pod, address
):
    dns.names[BOX] = [address]
    router = await start_by_dns(allow_loopback=False)
    told = await router.ask(on(pod))
    assert (told.status, told.code) == (502, "sandbox_unreachable")
    outcome = await router.outcome()
    assert outcome.upstream_error == "resolve_error"
    assert address in outcome.error_reason
    assert outcome.retries == 0
    assert pod.connections == 0


async def test_a_name_that_leads_to_the_router_is_not_dialled(by_dns, dns):
    dns.names[BOX] = ["127.0.0.1"]
    port = ("X-Sandbox-Port", str(by_dns.address[1]))
    told = await by_dns.ask(request("GET", "/", port))
    assert (told.status, told.code) == (403, "forbidden")


async def test_hanging_names_of_one_namespace_do_not_delay_another(by_dns, dns, pod):
    dns.names[BOX] = ["127.0.0.1"]
    slow = [f"slow-{number}" for number in range(40)]
    for name in slow:
        dns.never_answers(f"{name}.evil.svc.cluster.local")
    callers = []
    for name in slow:
        callers.append(await by_dns.connect())
        callers[-1].send(
            request(
                "GET", "/", ("X-Sandbox-ID", name), ("X-Sandbox-Namespace", "evil"), sandbox=None
            )
        )
    await until(lambda: len(dns.asked) >= 2 * len(slow))
    began_at = time.monotonic()
    async with serving(pod):
        assert (await by_dns.ask(on(pod))).status == 200
    assert time.monotonic() - began_at < 5
    for caller in callers:
        caller.close()


@pytest.mark.parametrize("trusts", [True, False])
async def test_a_clients_pod_ip_counts_only_where_it_is_trusted(start_by_dns, dns, pod, trusts):
    dns.names[BOX] = ["127.0.0.1"]
    router = await start_by_dns(trusts=trusts)
    with dialling_fails("203.0.113.9") as dials:
        async with serving(pod):
            client = await router.connect()
            client.send(on(pod, ("X-Sandbox-Pod-IP", "203.0.113.9")))
            await until(lambda: dials.addresses)
    assert dials.addresses[0] == f"{'203.0.113.9' if trusts else '127.0.0.1'}:{pod.port}"


@pytest.fixture
async def by_names(start_router, resolvers):
    """A router whose table holds names."""
    return await start_router(resolver=resolvers())


async def test_every_address_of_a_name_is_tried(by_names, dns, pod):
    dns.names["two.example"] = ["127.0.0.9", "127.0.0.1"]
    by_names.knows(pod, host="two.example")
    async with serving(pod):
        assert (await by_names.ask(request())).status == 200


async def test_a_name_that_does_not_resolve_is_502(by_names, pod):
    by_names.knows(pod, host="nowhere.example")
    client = await by_names.connect()
    client.send(request())
    await until(lambda: by_names.metric("upstream_retries_total") > 0)
    by_names.pass_time(11)
    told = await client.answer()
    assert (told.status, told.code) == (502, "sandbox_unreachable")
    assert (await by_names.outcome()).upstream_error == "resolve_error"
