"""Sandboxes that are found in DNS, and sandboxes whose address is a name."""

import asyncio
import contextlib
import socket

import pytest

from router.discovery.dns import DnsSource
from tests.integration.proxy.faults import dialling_fails
from tests.integration.proxy.messages import request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import until


@contextlib.contextmanager
def resolving(names):
    """Makes these names resolve to these addresses, and no other name at all."""
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def instead(host, port, **options):
        if host[0].isdigit():
            return await resolve(host, port, **options)
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in names[host]
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "getaddrinfo", instead)
        yield


@pytest.fixture
async def by_dns(start_router):
    router = await start_router()
    router.gateway.source = DnsSource(cluster_domain="cluster.local", trust_pod_ip_header=False)
    return router


def on(pod, *headers, **changes):
    """Returns a request for the pod's port."""
    return request("GET", "/", ("X-Sandbox-Port", str(pod.port)), *headers, **changes)


async def test_a_sandbox_is_found_by_its_services_name(by_dns, pod):
    with resolving({"box.default.svc.cluster.local": ["127.0.0.1"]}):
        async with serving(pod):
            assert (await by_dns.ask(on(pod))).status == 200
            assert (await by_dns.ask(on(pod))).status == 200
    assert pod.connections == 1


async def test_a_name_that_dns_does_not_know_is_404(by_dns, pod):
    with resolving({}):
        told = await by_dns.ask(on(pod))
    assert (told.status, told.code) == (404, "sandbox_not_found")
    assert (await by_dns.outcome()).namespace == "default"


async def test_a_name_that_leads_to_metadata_is_not_dialled(by_dns, pod):
    with resolving({"box.default.svc.cluster.local": ["169.254.169.254"]}):
        client = await by_dns.connect()
        client.send(on(pod))
        await until(lambda: by_dns.metric("upstream_retries_total") > 0)
        by_dns.pass_time(11)
        told = await client.answer()
    assert (told.status, told.code) == (502, "sandbox_unreachable")
    assert (await by_dns.outcome()).upstream_error == "resolve_error"


async def test_a_name_that_leads_to_the_router_is_not_dialled(by_dns):
    with resolving({"box.default.svc.cluster.local": ["127.0.0.1"]}):
        port = ("X-Sandbox-Port", str(by_dns.address[1]))
        told = await by_dns.ask(request("GET", "/", port))
    assert (told.status, told.code) == (403, "forbidden")


@pytest.mark.parametrize("trusts", [True, False])
async def test_a_clients_pod_ip_counts_only_where_it_is_trusted(start_router, pod, trusts):
    router = await start_router()
    router.gateway.source = DnsSource(cluster_domain="cluster.local", trust_pod_ip_header=trusts)
    names = {"box.default.svc.cluster.local": ["127.0.0.1"]}
    with resolving(names), dialling_fails("203.0.113.9") as dials:
        async with serving(pod):
            client = await router.connect()
            client.send(on(pod, ("X-Sandbox-Pod-IP", "203.0.113.9")))
            await until(lambda: dials.addresses)
    assert dials.addresses[0] == f"{'203.0.113.9' if trusts else '127.0.0.1'}:{pod.port}"


async def test_every_address_of_a_name_is_tried(router, pod):
    router.knows(pod, host="two.example")
    with resolving({"two.example": ["127.0.0.9", "127.0.0.1"]}):
        async with serving(pod):
            assert (await router.ask(request())).status == 200


async def test_a_name_that_does_not_resolve_is_502(router, pod):
    router.knows(pod, host="nowhere.example")
    with resolving({}):
        client = await router.connect()
        client.send(request())
        await until(lambda: router.metric("upstream_retries_total") > 0)
        router.pass_time(11)
        told = await client.answer()
    assert (told.status, told.code) == (502, "sandbox_unreachable")
    assert (await router.outcome()).upstream_error == "resolve_error"
