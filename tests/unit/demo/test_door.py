"""The door for browsers: it adds the token for its own page, and for nobody else."""

import aiohttp
import pytest

from router.demo.door import open_door


@pytest.fixture
async def door(stand_in):
    async with open_door(stand_in.place, sandbox="echo") as url:
        yield url


@pytest.fixture
async def browser():
    async with aiohttp.ClientSession() as session:
        yield session


async def test_the_page_of_the_sandbox_comes_through_without_a_token(door, browser):
    response = await browser.get(door)
    assert response.status == 200
    assert response.content_type == "text/html"
    assert await response.text() == "<title>Sandbox echo</title>"


async def test_the_router_hears_whether_a_person_opens_the_page_and_the_browser_how_it_may_be_shown(
    stand_in, door, browser
):
    async with browser.get(
        door, headers={"Sec-Fetch-Mode": "navigate", "Accept": "text/html", "Cookie": "a=b"}
    ) as response:
        assert response.headers["Content-Security-Policy"] == "default-src 'none'"
        assert "Set-Cookie" not in response.headers
    asked = stand_in.asked_for_page
    assert (asked["Sec-Fetch-Mode"], asked["Accept"]) == ("navigate", "text/html")
    assert "Cookie" not in asked


async def test_a_message_goes_to_the_sandbox_and_back(door, browser):
    async with browser.ws_connect(f"{door}ws", origin=door.rstrip("/")) as connection:
        await connection.send_str("hi")
        assert await connection.receive_str() == "hi"


async def test_a_refused_upgrade_is_no_open_websocket(stand_in, door, browser):
    stand_in.refuses_upgrades = True
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await browser.ws_connect(f"{door}ws")
    assert caught.value.status == 502


async def test_another_web_site_is_refused(door, browser):
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await browser.ws_connect(f"{door}ws", origin="http://elsewhere.example")
    assert caught.value.status == 403


async def test_another_name_for_this_address_is_refused(door, browser):
    response = await browser.get(door, headers={"Host": "elsewhere.example"})
    assert response.status == 403


async def test_an_open_websocket_does_not_keep_the_door_open(stand_in, browser):
    async with open_door(stand_in.place, sandbox="echo") as url:
        connection = await browser.ws_connect(f"{url}ws")
    message = await connection.receive(timeout=10)
    assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
