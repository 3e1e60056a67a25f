"""Stage: the demo's processes, started in order and ended together."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import yaml

from router import code_form
from router.auth.minting import SigningKey, grant_claim, mint_home_link
from router.demo.child import Child, StepFailed
from router.demo.sandboxes import LISTENING, SANDBOXES
from router.tasks import TaskSet

NAMESPACE = "default"
PORT_ASKED_FOR = 8888
PATH_PREFIX = "/sandboxes"
BASE_DOMAIN = "sandbox.localhost"
"""Browsers look for *.localhost on their own machine (RFC 6761 §6.3)."""
LINK_LIFE_S = 600.0

ADMIN_PORT = 9090

ATTEMPTS = 3
START_S = 20.0
STOP_S = 5.0
POLL_S = 0.05

SESSION_KEYS = "session-keys"

OTHER_SETTINGS = frozenset(
    {
        "ALLOW_UNAUTHENTICATED_ROUTER",
        "CLUSTER_DOMAIN",
        "KUBECONFIG",
        "MAX_KEEPALIVE_CONNECTIONS",
        "PROXY_TIMEOUT_SECONDS",
        "TRUSTED_PROXY_CIDRS",
        "WEBSOCKET_IDLE_TIMEOUT_SECONDS",
        "WEBSOCKET_MAX_CONNECTIONS_PER_CLIENT",
        "WEBSOCKET_MAX_LIFETIME_SECONDS",
    }
)
"""What the router reads besides what FOREIGN_PREFIXES name: a demo is the same in everybody's shell."""
FOREIGN_PREFIXES = ("SANDBOX_ROUTER_", "OTEL_")
"""OTEL_*: meant for whatever else runs here; a collector that the router can't use would stop its start."""
MAX_CONNECTIONS = 200
"""Enough to try, and within every usual limit of open files: nobody needs a warning about those first."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the demo's router listens, and the token that opens it."""

    port: int
    admin_port: int
    token: str = field(repr=False)

    @property
    def url(self) -> str:
        """The proxy port's base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        """The admin port's base URL."""
        return f"http://127.0.0.1:{self.admin_port}"

    @property
    def credential(self) -> dict[str, str]:
        """The header that the router asks for."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def home_url(self) -> str:
        """The home page's URL, without a slash at its end."""
        return f"http://{BASE_DOMAIN}:{self.port}"

    def path(self, sandbox: str, rest: str = "/") -> str:
        """Returns the request target that names the sandbox by path."""
        return f"{PATH_PREFIX}/{NAMESPACE}/{sandbox}/{PORT_ASKED_FOR}{rest}"


class Launch:
    """How the router is started, and whom it lets in: by default as `sandbox-router serve` with one token."""

    def __init__(
        self,
        *,
        program: Iterable[str] = ("router", "serve"),
        token: str | None = None,
        auth_flags: Iterable[str] = ("--auth", "static"),
    ) -> None:
        """`program` is a module with its first arguments; without a `token` one is made for `--auth static`."""
        self.program = tuple(program)
        self.token = secrets.token_hex(20) if token is None else token
        self.auth_flags = tuple(auth_flags)
        self.environment = {"ROUTER_AUTH_TOKEN": self.token} if token is None else {}

    def __repr__(self) -> str:
        return f"<Launch {' '.join(self.program)}>"

    def command(self, place: Place, sandboxes_file: Path) -> list[str]:
        """Returns the router's command line; a token of `--auth static` goes through its environment."""
        return [
            *(sys.executable, "-m", *self.program),
            *("--http-bind", f"127.0.0.1:{place.port}"),
            *("--admin-bind", f"127.0.0.1:{place.admin_port}"),
            *("--discovery", "file", "--sandboxes-file", str(sandboxes_file)),
            *("--path-prefix", PATH_PREFIX, *self.auth_flags),
            *("--base-domain", BASE_DOMAIN, "--home", "true"),
            *("--session-key-file", str(sandboxes_file.parent / SESSION_KEYS)),
            *("--max-connections", str(MAX_CONNECTIONS)),
            *("--log-format", "text", "--drain-delay", "0", "--shutdown-timeout", "2s"),
        ]


class Stage:
    """Owns every process of the demo: none outlives `async with`."""

    def __init__(
        self, *, environment: Mapping[str, str], on_router_line: Callable[[str], None]
    ) -> None:
        self._environment = {
            key: value
            for key, value in environment.items()
            if key == code_form.VARIABLE
            or (not key.startswith(FOREIGN_PREFIXES) and key not in OTHER_SETTINGS)
        }
        self._on_router_line = on_router_line
        self._folder = tempfile.TemporaryDirectory(prefix="sandbox-router-demo-")
        self.folder = Path(self._folder.name)
        """For files of this run; nobody else may look into it."""
        self.sandboxes_file = self.folder / "sandboxes.yaml"
        self.session_keys = self.folder / SESSION_KEYS
        self.tasks = TaskSet()
        """What is under way beside; ended before the stage."""
        self._watching = TaskSet()
        self._sandboxes: list[Child] = []
        self._router: Child | None = None
        self.ending = asyncio.Event()
        """Set by a signal, or when a process ended by itself."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.tasks.close()
            # The router first: it drains while its sandboxes still answer.
            for child in reversed(self._children):
                await child.stop(grace_s=STOP_S)
        finally:
            await self._watching.close()
            self._folder.cleanup()

    async def start_sandboxes(self, names: Iterable[str] = SANDBOXES) -> dict[str, int]:
        """Returns the port of each sandbox once all of them listen. Raises StepFailed."""
        started = {name: await self.start_sandbox(name) for name in names}
        return {name: await port_of(child) for name, child in started.items()}

    async def start_sandbox(self, name: str, *, boot_s: int = 0) -> Child:
        """Returns the process of a sandbox, which listens after `boot_s` seconds at the earliest. Raises StepFailed."""
        program = [sys.executable, "-m", "router.demo.sandboxes", name, "0", str(boot_s)]
        child = await Child.start(f"sandbox {name}", program, environment=self._environment)
        self._sandboxes.append(child)
        self._watch_over(child)
        return child

    async def end_sandbox(self, child: Child) -> None:
        """Ends a sandbox's process on purpose."""
        self._sandboxes.remove(child)
        await child.stop(grace_s=STOP_S)

    async def start_router(
        self, sandbox_ports: Mapping[str, int], *, http_port: int, launch: Launch | None = None
    ) -> Place:
        """Returns where the router listens once it is ready. Raises StepFailed."""
        launch = launch or Launch()
        write_sandboxes_file(self.sandboxes_file, sandbox_ports)
        self.session_keys.write_text(secrets.token_urlsafe(48))
        for attempt in range(1, ATTEMPTS + 1):
            port = free_port(http_port)
            place = Place(port, free_port(ADMIN_PORT, but_not=port), launch.token)
            router = self._router = await Child.start(
                "the router",
                launch.command(place, self.sandboxes_file),
                environment={**self._environment, **launch.environment},
                on_line=self._on_router_line,
            )
            self._watch_over(router)
            try:
                await _until_ready(router, place, sandbox_ports)
                break
            except StepFailed:
                if (
                    attempt == ATTEMPTS
                    or not router.ended.is_set()
                    or not lost_a_port(router, place)
                ):
                    raise
                self._router = None
                self.ending.clear()
        return place

    def home_link(self, place: Place) -> str:
        """Returns a link that shows a person all sandboxes, and lets them open and wake each; it is good for ten minutes."""
        key = SigningKey.from_secrets(self.session_keys.read_bytes())
        everything = grant_claim(
            namespace=NAMESPACE, name="*", uid="", ports=(), methods=(), wake=True
        )
        token = mint_home_link(key, grants=[everything], ttl_s=LINK_LIFE_S, subject="you")
        return f"{place.home_url}/.sandbox-router/session?link={token}"

    async def until_ending(self) -> None:
        """Returns once `ending` was set from outside. Raises StepFailed when a process ended by itself."""
        await self.ending.wait()
        for child in self._children:
            child.must_run(f"keep {child.name} running")

    @property
    def router(self) -> Child:
        """The router's process, once it has been started."""
        assert self._router is not None
        return self._router

    @property
    def _children(self) -> list[Child]:
        return self._sandboxes + ([] if self._router is None else [self._router])

    def _watch_over(self, child: Child) -> None:
        self._watching.start(self._watch(child), name=f"watch {child.name}")

    async def _watch(self, child: Child) -> None:
        try:
            await child.watch()
        finally:
            if child in self._children:  # else it was ended on purpose
                self.ending.set()


async def port_of(sandbox: Child) -> int:
    """Returns where a sandbox listens, once it does. Raises StepFailed."""
    return int(await sandbox.line(LISTENING, timeout_s=START_S))


def write_sandboxes_file(
    path: Path, sandbox_ports: Mapping[str, int], *, suspended: str | None = None
) -> None:
    """Writes the router's table, at once: each sandbox is asked for at its usual port and dialled at its real one."""
    entries: list[dict[str, object]] = []
    for name, port in sandbox_ports.items():
        # The same sandbox, whatever port its process has: sessions in it go on when it was suspended.
        same = {"name": name, "uid": f"sandbox-{name}", "host": "127.0.0.1"}
        entries.append({**same, "ports": {PORT_ASKED_FOR: port}})
        if name == suspended:
            entries[-1]["state"] = "suspended"
    whole = path.with_suffix(".new")
    whole.write_text(yaml.safe_dump({"sandboxes": entries}, sort_keys=False), "utf-8")
    whole.replace(path)


def free_port(preferred: int, *, but_not: int = 0) -> int:
    """Returns the preferred loopback port if nobody listens there, else one that the kernel picks."""
    found = 0
    try:
        with socket.create_server(("127.0.0.1", preferred)) as probe:
            found = probe.getsockname()[1]
    except OSError:
        pass  # taken, or not ours to take
    while found in (0, but_not):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            found = probe.getsockname()[1]
    return found


def lost_a_port(router: Child, place: Place) -> bool:
    """Returns True when somebody took one of the ports between the look at it and the router's start."""
    # They may have given it back since.
    return any("cannot listen on" in line for line in router.lines) or any(
        free_port(port) != port for port in (place.port, place.admin_port)
    )


async def _until_ready(router: Child, place: Place, sandbox_ports: Mapping[str, int]) -> None:
    missing = "nothing answered on its admin port"
    try:
        async with asyncio.timeout(START_S), aiohttp.ClientSession() as session:
            while missing:
                router.must_run("start the router")
                try:
                    missing = await _missing(session, place, sandbox_ports)
                except aiohttp.ClientError:
                    pass  # it doesn't listen yet
                if missing:
                    await asyncio.sleep(POLL_S)
    except TimeoutError:
        why = f"it was not ready within {START_S:g} s: {missing}"
        raise router.failure("start the router", why) from None


async def _missing(
    session: aiohttp.ClientSession, place: Place, sandbox_ports: Mapping[str, int]
) -> str:
    """Returns what keeps our router from being ready; "" when it is, and is ours: one that lists our sandboxes."""
    async with session.get(f"{place.admin_url}/readyz") as response:
        if response.status != 200:
            return await response.text()
    async with session.get(f"{place.admin_url}/debug/sandboxes") as response:
        listed = (await response.json())["sandboxes"] if response.status == 200 else []
    ports = {sandbox["name"]: sandbox["ports"].get(str(PORT_ASKED_FOR)) for sandbox in listed}
    return "" if ports == sandbox_ports else "another program answers on its admin port"
