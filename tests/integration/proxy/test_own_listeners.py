"""The router never dials itself, however its own address is spelled."""

import socket

import pytest

from tests.integration.proxy.messages import request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import until

ADMIN = ("127.0.0.1", 45_999)


def spellings() -> list[str]:
    named = {"localhost", socket.gethostname()}
    return [
        "127.0.0.1",
        "0.0.0.0",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        *(name for name in sorted(named) if _leads_to_loopback(name)),
    ]


def _leads_to_loopback(name: str) -> bool:
    try:
        return socket.gethostbyname(name) == "127.0.0.1"
    except OSError:
        return False


@pytest.mark.parametrize("host", spellings())
async def test_the_proxy_port_is_not_reached_through_a_sandbox_entry(router, host):
    router.knows(name="self", uid="self", host=host, port=router.address[1])
    told = await router.ask(request(sandbox="self"))
    assert (told.status, told.code) == (403, "forbidden")
    assert len(router.outcomes) == 1


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1"])
async def test_an_old_spelling_of_an_address_leads_nowhere(router, host):
    router.knows(name="self", uid="self", host=host, port=router.address[1])
    client = await router.connect()
    client.send(request(sandbox="self"))
    await until(lambda: router.metric("upstream_retries_total") > 0)
    router.pass_time(11)
    told = await client.answer()
    assert (told.status, told.code) == (502, "sandbox_unreachable")
    assert len(router.outcomes) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "localhost"])
async def test_the_admin_port_is_not_reached_through_the_proxy_port(start_router, host):
    router = await start_router(also_own=[ADMIN])
    router.knows(name="self", uid="self", host=host)
    told = await router.ask(request("GET", "/", ("X-Sandbox-Port", str(ADMIN[1])), sandbox="self"))
    assert (told.status, told.code) == (403, "forbidden")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::ffff:127.0.0.3", "localhost"])
async def test_a_listener_on_every_address_is_not_reached_by_any(start_router, host):
    router = await start_router(host="")
    port = router.address[1]
    for name, address in (("self", host), ("six", "::1")):
        router.knows(name=name, uid=name, host=address, port=port)
        told = await router.ask(request(sandbox=name))
        assert (told.status, told.code) == (403, "forbidden")


async def test_a_sandbox_on_the_same_host_is_no_listener_of_the_router(start_router, pod):
    router = await start_router(host="")
    for host in ("127.0.0.1", "localhost"):
        router.knows(pod, host=host, uid=host)
        async with serving(pod):
            assert (await router.ask(request())).status == 200


@pytest.mark.parametrize("host", ["::1", "0:0::1", "::1%lo", "::1%1", "::"])
async def test_a_listener_on_ipv6_loopback_is_not_reached_by_any_spelling(start_router, host):
    router = await start_router(host="::1")
    router.knows(name="self", uid="self", host=host, port=router.address[1])
    told = await router.ask(request(sandbox="self"))
    assert (told.status, told.code) == (403, "forbidden")
