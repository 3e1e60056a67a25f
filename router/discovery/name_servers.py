"""Name servers: asks DNS for the addresses of one name, as resolv.conf and the hosts file say."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver

from router.discovery.hosts_file import HostsFile
from router.routing.names import NameNotResolved, Unresolved

HOSTS: Final = Path("/etc/hosts")
RESOLV_CONF: Final = Path("/etc/resolv.conf")

_TRY_S: Final = 1.0
"""How long one server has for one question, before the next is asked, or the same one again."""
_LIFETIME_S: Final = 5.0
_OTHER_FAMILY_S: Final = 0.05
"""How long an answer of one IP family waits for the other's (RFC 8305 §3)."""
_DNS_PORT: Final = 53
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
"""What ends in one is an old spelling of an IPv4 address (`127.1`), which some programs take and none should."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The addresses of a name, and how many seconds they may be remembered."""

    addresses: tuple[str, ...]
    ttl_s: float


class NameServers:
    """Asks the hosts file, then the servers of resolv.conf: over UDP, and over TCP what doesn't fit.

    A name with a dot is asked for as it is: search domains would lead it to whoever answers below them. They count for names
    of a single label only, which mean nothing without.
    """

    def __init__(
        self, *, hosts: Path = HOSTS, resolv_conf: Path = RESOLV_CONF, port: int = _DNS_PORT
    ) -> None:
        self._hosts = HostsFile(hosts)
        self._resolv_conf = resolv_conf
        self._port = port
        self._read: tuple[int, int] | None = None
        self._resolver: dns.asyncresolver.Resolver | None = None

    def __repr__(self) -> str:
        servers = [] if self._resolver is None else self._resolver.nameservers
        return f"<NameServers {servers}>"

    async def ask(self, name: str) -> Answer:
        """Returns the name's addresses, IPv4 first. Raises NameNotResolved: unknown, or unanswered after 5 s at most."""
        known = self._hosts.find(name)
        if known:
            return Answer(tuple(known), 0.0)
        if _NUMBER.fullmatch(name.rstrip(".").rpartition(".")[2]):
            raise NameNotResolved(Unresolved.UNKNOWN, f"{name} is neither a name nor an address")
        resolver = self._configured()
        try:
            asked = dns.name.from_text(name if "." not in name else name.rstrip(".") + ".", None)
        except (dns.exception.DNSException, ValueError) as exc:
            raise NameNotResolved(Unresolved.UNKNOWN, f"{name} is no name for DNS: {exc}") from exc
        ipv4, ipv6 = await _both_families(resolver, asked)
        found = [each for each in (ipv4, ipv6) if isinstance(each, Answer) and each.addresses]
        if found:
            addresses = tuple(address for each in found for address in each.addresses)
            return Answer(addresses, min(each.ttl_s for each in found))
        for each in (ipv4, ipv6):
            if isinstance(each, NameNotResolved):
                raise NameNotResolved(each.why, f"{name}: {each}")
        raise NameNotResolved(Unresolved.UNKNOWN, f"{name} has no address in DNS")

    def _configured(self) -> dns.asyncresolver.Resolver:
        """Returns the resolver for what resolv.conf says now. Raises NameNotResolved when it says no server."""
        try:
            found = os.stat(self._resolv_conf)
            state = (found.st_ino, found.st_mtime_ns)
            if self._resolver is None or state != self._read:
                resolver = dns.asyncresolver.Resolver(str(self._resolv_conf))
                resolver.port = self._port
                resolver.timeout = min(_TRY_S, resolver.timeout)
                resolver.lifetime = _LIFETIME_S
                self._resolver, self._read = resolver, state
        except (OSError, ValueError, dns.exception.DNSException) as exc:
            raise NameNotResolved(
                Unresolved.UNANSWERED, f"no name server in {self._resolv_conf}: {exc}"
            ) from exc
        return self._resolver


async def _both_families(
    resolver: dns.asyncresolver.Resolver, name: dns.name.Name
) -> tuple[Answer | NameNotResolved, Answer | NameNotResolved]:
    """Returns what came of asking for IPv4 and for IPv6 addresses, side by side."""
    async with asyncio.TaskGroup() as tasks:
        ipv4 = tasks.create_task(_ask(resolver, name, dns.rdatatype.A))
        ipv6 = tasks.create_task(_ask(resolver, name, dns.rdatatype.AAAA))
        pending = {ipv4, ipv6}
        limit_s: float | None = None
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            results = [task.result() for task in done]
            if not results or any(_is_unknown(result) for result in results):
                break
            if any(isinstance(result, Answer) and result.addresses for result in results):
                limit_s = _OTHER_FAMILY_S
        for task in pending:
            task.cancel()
    late = NameNotResolved(Unresolved.UNANSWERED, "the other family's answer came first")
    return (
        late if ipv4.cancelled() else ipv4.result(),
        late if ipv6.cancelled() else ipv6.result(),
    )


async def _ask(
    resolver: dns.asyncresolver.Resolver, name: dns.name.Name, kind: dns.rdatatype.RdataType
) -> Answer | NameNotResolved:
    try:
        answer = await resolver.resolve(
            name,
            kind,
            search=len(name) == 1,
            raise_on_no_answer=False,
            backend=dns.asyncbackend.get_backend("asyncio"),
        )
    except dns.resolver.NXDOMAIN:
        return NameNotResolved(Unresolved.UNKNOWN, "DNS knows no such name")
    except (dns.exception.DNSException, OSError) as exc:
        return NameNotResolved(Unresolved.UNANSWERED, f"{exc}")
    records = answer.rrset or ()
    ttl_s = float(answer.rrset.ttl) if answer.rrset is not None else 0.0
    return Answer(tuple(record.address for record in records), ttl_s)


def _is_unknown(result: Answer | NameNotResolved) -> bool:
    """Returns True where there is no such name at all, so that the other family's answer can't matter."""
    return isinstance(result, NameNotResolved) and result.why is Unresolved.UNKNOWN
