import asyncio
import re
import socket

import aiohttp
import pytest

from router.admin import console
from router.admin.console import PAGE_SIZE, count_text, rate_text, size_text
from router.admin.port import AdminServer
from router.admin.sandbox_listing import listing
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.telemetry.metrics import Metrics

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
HOSTILE = "<script>alert(1)</script>\"'&"


class Place:
    """A running admin port, and what it is told."""

    def __init__(self):
        self.metrics = Metrics(version="1")
        self.snapshots = 0
        self.missing = []
        self.noted = []
        self.table = []
        self.notes_about = lambda ref: ()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.server = AdminServer(
            sockets=[self.socket],
            snapshot=self.snapshot,
            missing=lambda: self.missing,
            notes=self.notes,
            explain=self.nothing,
            sandboxes=self.sandboxes,
            activity=self.nothing,
        )
        self.client = aiohttp.ClientSession(
            f"http://127.0.0.1:{self.socket.getsockname()[1]}", headers=BROWSER
        )

    async def snapshot(self):
        self.snapshots += 1
        return self.metrics.snapshot()

    async def notes(self):
        return self.noted

    async def nothing(self, _):
        raise AssertionError

    async def sandboxes(self, wanted):
        return await listing(self.table, wanted, notes_about=self.notes_about)

    def fill(self, count, state=State.READY):
        self.table += [
            Endpoint(SandboxRef("team-a", f"box-{n:03}"), f"uid-{n}", state, ("192.0.2.1",))
            for n in range(len(self.table), len(self.table) + count)
        ]

    async def get(self, path, **options):
        async with self.client.get(path, **options) as response:
            return response, await response.text()

    async def text(self, path):
        response, text = await self.get(path)
        assert response.status == 200, text
        return text


@pytest.fixture
async def place():
    place = Place()
    async with place.server, place.client:
        yield place


def names(text):
    return re.findall(r"/</span>([^<]+)</th>", text)


async def test_a_browser_is_shown_the_page_and_anything_else_the_list_of_pages(place):
    page, html = await place.get("/")
    other, text = await place.get("/", headers={"Accept": "*/*"})

    assert page.content_type == "text/html"
    assert html.startswith("<!doctype html>")
    assert other.content_type == "text/plain"
    assert "/debug/sandboxes" in text
    assert page.headers["Vary"] == other.headers["Vary"] == "Accept"


async def test_the_page_loads_nothing_from_elsewhere_and_runs_no_script_but_its_own(place):
    page, html = await place.get("/")

    policy = page.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert page.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert page.headers["Cache-Control"] == "no-store"
    assert not re.search(r"""(?:src|href|action)=["']?(?:https?:|//)""", html)
    assert not re.search(r"<style|\son\w+=|\sstyle=|<script>", html)
    for name, kind in (("look.css", "text/css"), ("console.js", "text/javascript")):
        file, text = await place.get(f"/{name}")
        assert (file.status, file.content_type) == (200, kind)
        assert text


async def test_it_says_whether_the_router_is_ready_and_what_is_worth_knowing(place):
    assert "<strong>Ready</strong>" in await place.text("/")
    place.missing, place.noted = ["the table isn't complete"], ["pods alone"]
    place.server._console._latest = None

    html = await place.text("/")

    assert "<strong>Not ready</strong>" in html
    assert "<li>the table isn&#39;t complete</li>" in html
    assert "<li>pods alone</li>" in html


async def test_whatever_sandboxes_say_of_themselves_stays_text(place, make_outcome):
    ref = SandboxRef(f"team{HOSTILE}", f"box{HOSTILE}")
    place.table = [Endpoint(ref, "uid", State.STARTING, (HOSTILE,), reason=f"why {HOSTILE}")]
    place.notes_about = lambda ref: (f"note {HOSTILE}",)
    place.noted = place.missing = [HOSTILE]
    place.metrics.counters.request_finished(make_outcome())

    for path in ("/", "/sandboxes", "/?search=%3Cscript%3Ealert(1)%3C/script%3E%22'%26"):
        html = await place.text(path)
        assert "<script>alert" not in html
        assert "alert(1)</script>\"'" not in html
        assert not re.search(r"<script(?! src=\"console.js\" defer>)", html)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;" in html


async def test_the_table_comes_in_pages(place):
    place.fill(2 * PAGE_SIZE + 7)

    first, last = await place.text("/sandboxes"), await place.text("/sandboxes?page=3")

    assert names(first) == [f"box-{n:03}" for n in range(PAGE_SIZE)]
    assert names(last) == [f"box-{n:03}" for n in range(2 * PAGE_SIZE, 2 * PAGE_SIZE + 7)]
    assert "Page 1 of 3" in first
    assert 'rel="next" href="?page=2"' in first
    assert 'rel="prev"' not in first
    assert 'rel="prev" href="?page=2"' in last
    assert 'rel="next"' not in last


async def test_the_table_is_searched_by_namespace_and_name_and_narrowed_to_a_state(place):
    place.fill(3)
    place.fill(2, State.SUSPENDED)

    found = await place.text("/sandboxes?search=team-a/box-00&state=suspended")

    assert names(found) == ["box-003", "box-004"]
    assert 'href="?search=team-a%2Fbox-00">All <b>5</b>' in found
    assert re.search(r'state=suspended" aria-current="true">.*suspended <b>2</b>', found)


async def test_what_is_not_there_is_said(place):
    assert "The table holds no sandbox" in await place.text("/sandboxes")
    place.fill(1)
    assert "No sandbox matches." in await place.text("/sandboxes?search=nothing")
    assert "First page" in await place.text("/sandboxes?page=9")


@pytest.mark.parametrize("query", ["state=READY", "page=0", "page=-1", "page=1e3", "page=9999999"])
async def test_a_query_that_is_not_understood_is_refused(place, query):
    for path in ("/", "/sandboxes"):
        response, text = await place.get(f"{path}?{query}")
        assert response.status == 400
        assert '"bad_request"' in text


async def test_errors_of_the_router_are_listed_by_code(place, make_outcome):
    assert "None so far." in await place.text("/")
    place.metrics.counters.request_finished(make_outcome(status=403, code="forbidden"))
    place.server._console._latest = None

    assert '<th scope="row"><code>forbidden</code></th><td class="n">1</td>' in await place.text(
        "/"
    )


# --- live -------------------------------------------------------------------------------------


async def event(response):
    """The next event of a stream, comments left out."""
    lines = []
    while line := (await response.content.readline()).decode().rstrip("\n"):
        lines.append(line)
    return event_of(lines) if not lines[0].startswith(":") else await event(response)


def event_of(lines):
    assert lines[0] == "event: overview"
    return "\n".join(line.removeprefix("data: ") for line in lines[1:])


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr(console, "EVERY_S", 0.02)


async def test_an_open_page_is_told_how_things_are_and_then_of_changes_alone(place, quickly):
    async with place.client.get("/events") as response:
        assert response.content_type == "text/event-stream"
        assert "<strong>Ready</strong>" in await event(response)
        place.missing = ["gone"]
        assert "<strong>Not ready</strong>" in await event(response)


async def test_a_page_that_is_closed_is_told_no_more(place, quickly):
    async with place.client.get("/events") as response:
        await event(response)
        assert repr(place.server._console) == "<Console streams=1>"
    async with asyncio.timeout(5):
        while place.server._console._streams:
            await asyncio.sleep(0.01)


async def test_open_pages_share_what_is_made_for_them(place):
    async with place.client.get("/events") as one, place.client.get("/events") as two:
        assert await event(one) == await event(two)
        await place.text("/")
    assert place.snapshots == 1


async def test_too_many_open_pages_are_refused_and_probes_still_answered(place, monkeypatch):
    monkeypatch.setattr(console, "MAX_STREAMS", 2)
    async with place.client.get("/events") as one, place.client.get("/events") as two:
        await event(one)
        await event(two)
        refused, text = await place.get("/events")
        assert refused.status == 503
        assert "Too many pages" in text
        assert (await place.get("/healthz"))[0].status == 200


async def test_asking_what_a_stream_would_be_opens_none(place):
    async with place.client.head("/events") as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
    assert place.server._console._streams == 0


async def test_the_end_of_the_port_ends_open_pages(place):
    async with place.client.get("/events") as response:
        await event(response)
        await place.server.stop()
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()


# --- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (12_345, "12,345"), (1e9, "1,000,000,000")]
)
def test_counts_have_their_thousands_apart(number, text):
    assert count_text(number) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(None, "\N{EN DASH}"), (0.0, "0/s"), (0.25, "0.2/s"), (9.96, "10.0/s"), (1234.5, "1,234/s")],
)
def test_rates_are_short(rate, text):
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "\N{EN DASH}"),
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (2.5e9, "2.5 GB"),
        (3e16, "3e+04 TB"),
    ],
)
def test_sizes_have_the_unit_that_suits_them(size, text):
    assert size_text(size) == text
