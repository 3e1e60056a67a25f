"""Nothing passes an Envoy whose router is away."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_nothing_passes_while_the_router_is_away(way):
    async with way.front.client() as client:
        async with client.get(way.front.url("/")) as response:
            assert response.status == 200

        way.router.process.terminate()
        await way.router.process.wait()

        async with client.get(way.front.url("/")) as response:
            assert response.status == 503
            assert (await response.json())["code"] == "check_failed"
