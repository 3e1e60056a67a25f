"""The page as it is written, and what its buttons do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.policy import CurrentPolicy
from router.auth.principal import Grant, Principal
from router.errors import BadRequest, Forbidden, RouterError, WakeLimited
from router.home.page import PAGE_SIZE, SandboxesPage
from router.home.rights import Openables
from router.proxy.at_home import Visit
from router.routing.endpoint import Endpoint, SandboxRef, State

HOSTILE = "<b>\"'&"
ALICE = Principal(subject="alice", mode="home", grants=(Grant("*", "*", wake=True),))


class Desk:
    """Notes what links were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[SandboxRef, int, str, bool]] = []

    def link(self, caller: Principal, ref: SandboxRef, port: int, *, uid: str, wake: bool) -> str:
        self.asked.append((ref, port, uid, wake))
        return "made"


class Ticket:
    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Wakes:
    """Notes who wanted what."""

    def __init__(self) -> None:
        self.wanted: list[tuple[str, str, float]] = []
        self.refuses: RouterError | None = None
        self.ticket = Ticket()

    def want(
        self, endpoint: Endpoint, *, by: str, until: float, failed: Callable[[RouterError], None]
    ) -> Ticket:
        if self.refuses is not None:
            raise self.refuses
        self.wanted.append((endpoint.ref.name, by, until))
        failed(WakeLimited())  # what comes of it later is nobody's failure here
        return self.ticket


class Place:
    def __init__(self, *table: Endpoint, has_desk: bool = True, has_wakes: bool = True) -> None:
        self.desk, self.wakes = Desk(), Wakes()
        by_ref = {endpoint.ref: endpoint for endpoint in table}
        parts: dict[str, Any] = {
            "desk": self.desk if has_desk else None,
            "wakes": self.wakes if has_wakes else None,
        }
        self.page = SandboxesPage(
            openables=Openables(
                grants=GrantAuthorizer(policy=CurrentPolicy()),
                known=lambda: table,
                names=lambda endpoint, asked: (asked,),
                default_port=8888,
                is_wakeable=lambda endpoint: True,
            ),
            find=by_ref.get,
            wake_timeout_s=60.0,
            default_namespace="default",
            base_domain="boxes.example",
            clock=lambda: 100.0,
            **parts,
        )

    def visit(self, query: bytes = b"", caller: Principal = ALICE) -> Visit:
        return Visit(query, caller, "192.0.2.1", b"boxes.example:8443")

    async def text(self, query: bytes = b"", caller: Principal = ALICE) -> str:
        return (await self.page.page(self.visit(query, caller))).body.decode()


def box(
    name: str, state: State = State.READY, namespace: str = "default", **facts: Any
) -> Endpoint:
    return Endpoint(SandboxRef(namespace, name), f"pod-{name}", state, **facts)


async def test_whatever_comes_from_outside_stays_text() -> None:
    place = Place(box(f"box{HOSTILE}", State.STARTING, f"team{HOSTILE}", reason=f"why{HOSTILE}"))
    caller = Principal(subject=f"me{HOSTILE}", mode="home", grants=ALICE.grants)
    text = await place.text(caller=caller)
    assert "<b>" not in text
    assert text.count("&lt;b&gt;&#34;&#39;&amp;") >= 4
    assert "sandbox=team%3Cb%3E%22%27%26/box%3Cb%3E%22%27%26&amp;port=8888" in text


async def test_what_can_be_done_depends_on_the_state() -> None:
    place = Place(
        box("ready"), box("asleep", State.SUSPENDED), box("over", State.FINISHED, reason="Done")
    )
    text = await place.text()
    assert text.count('action="/.sandbox-router/open?') == 2
    assert text.count('action="/.sandbox-router/wake?sandbox=default/asleep') == 1
    assert "It has ended." in text
    asleep = Place(box("asleep", State.SUSPENDED), has_wakes=False)
    assert "/wake?" not in await asleep.text()


async def test_the_list_comes_in_pages() -> None:
    place = Place(*(box(f"box-{n:03}") for n in range(PAGE_SIZE + 1)))
    first, second = await place.text(), await place.text(b"page=2")
    assert "Page 1 of 2" in first
    assert 'rel="next" href="/?page=2"' in first
    assert second.count("<li>") == 1
    assert 'rel="prev" href="/?' in second


@pytest.mark.parametrize(
    ("ref", "host"),
    [
        (SandboxRef("default", "box"), "8888-box"),
        (SandboxRef("team-a", "box"), "8888-box--team-a"),
        (SandboxRef("default", "a--b"), "8888-a--b--default"),
    ],
)
async def test_a_sandbox_is_opened_on_its_own_host(ref: SandboxRef, host: str) -> None:
    place = Place(box(ref.name, namespace=ref.namespace, sandbox_uid="uid-1"))
    query = f"sandbox={ref.namespace}/{ref.name}&port=8888".encode()
    shown = await place.page.open(place.visit(query))
    assert shown.status == 303
    where = f"//{host}.boxes.example:8443/.sandbox-router/session?link=made"
    assert shown.lines[0] == f"Location: {where}\r\n".encode()
    assert place.desk.asked == [(ref, 8888, "uid-1", True)]


@pytest.mark.parametrize("mode", ["none", "forwarded", "mtls"])
async def test_whom_the_sandbox_s_host_recognises_too_is_led_there_without_a_link(
    mode: str,
) -> None:
    place = Place(box("box"))
    caller = Principal(subject="alice", mode=mode, grants=ALICE.grants)
    shown = await place.page.open(place.visit(b"sandbox=default/box&port=8888", caller))
    assert shown.lines[0] == b"Location: //8888-box.boxes.example:8443/\r\n"
    assert place.desk.asked == []


async def test_a_name_that_is_too_long_for_a_host_is_said_to_be() -> None:
    name = "a" * 60
    place = Place(box(name))
    assert "too long" in await place.text()
    with pytest.raises(BadRequest, match="too long"):
        await place.page.open(place.visit(f"sandbox=default/{name}&port=8888".encode()))


async def test_a_wake_is_wanted_for_as_long_as_wakes_may_take() -> None:
    place = Place(box("asleep", State.SUSPENDED))
    shown = await place.page.wake(place.visit(b"sandbox=default/asleep&port=8888"))
    assert (shown.status, shown.lines[0]) == (303, b"Location: /\r\n")
    assert place.wakes.wanted == [("asleep", "alice (192.0.2.1)", 160.0)]
    assert place.wakes.ticket.is_cancelled, "whoever suspends it again has the last word"


async def test_a_sandbox_that_is_up_needs_no_wake() -> None:
    place = Place(box("up"))
    assert (await place.page.wake(place.visit(b"sandbox=default/up&port=8888"))).status == 303
    assert place.wakes.wanted == []


async def test_who_may_open_but_not_wake_is_told_so() -> None:
    place = Place(box("asleep", State.SUSPENDED))
    caller = Principal(subject="bob", mode="home", grants=(Grant("*", "*"),))
    with pytest.raises(Forbidden, match="not wake it"):
        await place.page.wake(place.visit(b"sandbox=default/asleep&port=8888", caller))


async def test_a_wake_that_is_refused_is_the_answer() -> None:
    place = Place(box("asleep", State.SUSPENDED))
    place.wakes.refuses = WakeLimited()
    with pytest.raises(WakeLimited):
        await place.page.wake(place.visit(b"sandbox=default/asleep&port=8888"))
