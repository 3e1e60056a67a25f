"""Asking DNS, over sockets, of a server that says what the test wants."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from router.discovery import name_servers
from router.discovery.name_servers import Answer, NameServers
from router.routing.names import NameNotResolved, Unresolved
from tests.fakes.dns_server import FakeDns, dns_server

BOX = "box.team-a.svc.cluster.local"
NDOTS = ("search team-a.svc.cluster.local corp.example", "options ndots:5")


def asking(server: FakeDns, tmp_path: Path, *lines: str) -> NameServers:
    conf = server.write_resolv_conf(tmp_path / "resolv.conf", *lines)
    return NameServers(hosts=tmp_path / "hosts", resolv_conf=conf, port=server.port)


async def failure(servers: NameServers, name: str) -> NameNotResolved:
    with pytest.raises(NameNotResolved) as caught:
        await servers.ask(name)
    return caught.value


async def test_both_families_are_asked_for_once_and_ipv4_comes_first(tmp_path: Path) -> None:
    async with dns_server(names={BOX: ["fd00::5", "10.0.0.5"]}) as server:
        answer = await asking(server, tmp_path).ask(BOX)
    assert answer == Answer(("10.0.0.5", "fd00::5"), 5.0)
    assert server.asked == {(BOX, "A"): 1, (BOX, "AAAA"): 1}


@pytest.mark.parametrize("name", [BOX, BOX + "."])
async def test_search_domains_never_apply_to_a_name_with_a_dot(tmp_path: Path, name: str) -> None:
    strangers = {f"{BOX}.corp.example": ["10.9.9.9"]}
    async with dns_server(names=strangers) as server:
        error = await failure(asking(server, tmp_path, *NDOTS), name)
    assert error.why is Unresolved.UNKNOWN
    assert {asked for asked, _ in server.asked} == {BOX}


async def test_search_domains_apply_to_a_single_label(tmp_path: Path) -> None:
    async with dns_server(names={"db.corp.example": ["10.0.0.7"]}) as server:
        answer = await asking(server, tmp_path, *NDOTS).ask("db")
    assert answer.addresses == ("10.0.0.7",)


async def test_the_hosts_file_comes_before_any_server(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"10.0.0.9 {BOX}\n")
    async with dns_server(names={BOX: ["10.0.0.5"]}) as server:
        answer = await asking(server, tmp_path).ask(BOX)
    assert answer.addresses == ("10.0.0.9",)
    assert server.questions() == 0


async def test_a_name_without_addresses_is_unknown(tmp_path: Path) -> None:
    async with dns_server(names={BOX: []}) as server:
        assert (await failure(asking(server, tmp_path), BOX)).why is Unresolved.UNKNOWN


async def test_an_unknown_name_is_known_to_be_so_from_one_familys_answer(tmp_path: Path) -> None:
    async with dns_server(silent={(BOX, "AAAA")}) as server:
        began_at = time.monotonic()
        assert (await failure(asking(server, tmp_path), BOX)).why is Unresolved.UNKNOWN
    assert time.monotonic() - began_at < name_servers._LIFETIME_S


async def test_one_familys_silence_does_not_cost_the_others_addresses(tmp_path: Path) -> None:
    async with dns_server(names={BOX: ["10.0.0.5"]}, silent={(BOX, "AAAA")}) as server:
        began_at = time.monotonic()
        assert (await asking(server, tmp_path).ask(BOX)).addresses == ("10.0.0.5",)
    assert time.monotonic() - began_at < name_servers._LIFETIME_S


async def test_a_family_without_addresses_does_not_hurry_the_other(tmp_path: Path) -> None:
    async with dns_server(names={BOX: ["fd00::5"]}) as server:
        assert (await asking(server, tmp_path).ask(BOX)).addresses == ("fd00::5",)


async def test_an_answer_too_long_for_a_datagram_is_fetched_by_tcp(tmp_path: Path) -> None:
    many = [f"10.0.1.{number}" for number in range(200)]
    async with dns_server(names={BOX: many}, truncated={BOX}) as server:
        answer = await asking(server, tmp_path).ask(BOX)
    assert sorted(answer.addresses) == sorted(many)
    assert server.asked_by_tcp[BOX] == 2


async def test_a_lost_datagram_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_servers, "_TRY_S", 0.02)
    async with dns_server(names={BOX: ["10.0.0.5"]}) as server:
        server.never_answers(BOX)

        async def recovers() -> None:
            while server.asked[BOX, "A"] < 2:
                await asyncio.sleep(0)
            server.silent.clear()

        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            tasks.create_task(recovers())
            assert (await asking(server, tmp_path).ask(BOX)).addresses == ("10.0.0.5",)


async def test_no_answer_at_all_is_told_from_an_unknown_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_servers, "_TRY_S", 0.01)
    monkeypatch.setattr(name_servers, "_LIFETIME_S", 0.05)
    async with dns_server() as server:
        server.never_answers(BOX)
        error = await failure(asking(server, tmp_path), BOX)
    assert error.why is Unresolved.UNANSWERED
    assert BOX in str(error)


async def test_a_server_in_trouble_is_told_from_an_unknown_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_servers, "_LIFETIME_S", 0.05)
    async with dns_server(failing={BOX}) as server:
        assert (await failure(asking(server, tmp_path), BOX)).why is Unresolved.UNANSWERED


async def test_a_resolv_conf_that_changes_is_read_again(tmp_path: Path) -> None:
    async with dns_server(names={BOX: ["10.0.0.5"]}) as server:
        servers = asking(server, tmp_path)
        (tmp_path / "resolv.conf").unlink()
        (tmp_path / "resolv.conf").write_text("# nothing yet\n")
        error = await failure(servers, BOX)
        assert error.why is Unresolved.UNANSWERED
        assert "resolv.conf" in str(error)
        (tmp_path / "resolv.conf").unlink()
        server.write_resolv_conf(tmp_path / "resolv.conf")
        assert (await servers.ask(BOX)).addresses == ("10.0.0.5",)


@pytest.mark.parametrize(
    "name",
    ["a..b", "x" * 64 + ".example", "2130706433", "127.1", "0x7f.1", "0x7f000001", "10.0.1."],
)
async def test_what_can_be_no_name_is_unknown_without_a_question(tmp_path: Path, name: str) -> None:
    async with dns_server() as server:
        assert (await failure(asking(server, tmp_path), name)).why is Unresolved.UNKNOWN
    assert server.questions() == 0
