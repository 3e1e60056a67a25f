"""A real Envoy that balances over replicas: their addresses come from a file, its own health checks say who gets requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import yaml

from tests.deploy.rendering import found
from tests.fakes.router_process import RouterProcess
from tests.integration.rollout.load import Address
from tests.integration.rollout.replicas import PATIENCE_S, PROBE_INTERVAL_S

READYZ, HEALTHZ = "/readyz", "/healthz"
"""What is checked: the admin port as a kubelet does, or the proxy port as cloud load balancers do."""

CONFIG = """
node: {id: front, cluster: front}
admin:
  address: {socket_address: {address: 127.0.0.1, port_value: 0}}
static_resources:
  listeners:
    - name: http
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
        - filters:
            - name: http
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: front
                stream_idle_timeout: 0s
                upgrade_configs: [{upgrade_type: websocket}]
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:  # without a retry policy: a failure must be seen
                        - {match: {prefix: /}, route: {cluster: routers, timeout: 0s}}
                http_filters:
                  - name: router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: routers
      type: EDS
      ignore_health_on_host_removal: true
      common_lb_config: {healthy_panic_threshold: {value: 0}, update_merge_window: 0s}
      eds_cluster_config:
        eds_config:
          resource_api_version: V3
          path_config_source: {path: ENDPOINTS, watched_directory: {path: FOLDER}}
      health_checks:
        - timeout: 2s
          interval: INTERVAL
          no_traffic_interval: INTERVAL
          healthy_threshold: 1
          unhealthy_threshold: 2
          http_health_check: {path: CHECK}
"""


class Envoy:
    """The running front."""

    def __init__(self, folder: Path, check: str) -> None:
        self._folder = folder
        self._check = check
        self._replicas: list[RouterProcess] = []
        self._port = 0
        self._admin = ""

    def pick(self) -> Address:
        """Returns where clients connect to."""
        return ("127.0.0.1", self._port)

    async def add(self, *replicas: RouterProcess) -> None:
        """Returns once the replicas get requests."""
        self._replicas += replicas
        self._write_endpoints()
        wanted = {self._checked_port(replica) for replica in replicas}
        async with asyncio.timeout(PATIENCE_S):
            while not wanted <= await self._healthy():
                await asyncio.sleep(0.05)

    def remove(self, replica: RouterProcess) -> None:
        self._replicas.remove(replica)
        self._write_endpoints()

    async def counted(self, name: str) -> int:
        """Returns one of Envoy's counters for the routers."""
        stats = json.loads(await self._ask(f"/stats?format=json&filter=^cluster.routers.{name}$"))
        return sum(stat["value"] for stat in stats["stats"])

    def write_config(self) -> Path:
        text = CONFIG
        for word, value in {
            "ENDPOINTS": str(self._endpoints),
            "FOLDER": str(self._folder),
            "INTERVAL": f"{PROBE_INTERVAL_S}s",
            "CHECK": self._check,
        }.items():
            text = text.replace(word, value)
        path = self._folder / "front.yaml"
        path.write_text(text)
        self._write_endpoints()
        return path

    async def until_it_listens(self, process: asyncio.subprocess.Process, log: Path) -> None:
        address = self._folder / "admin-address"
        async with asyncio.timeout(PATIENCE_S):
            while not self._port:
                assert process.returncode is None, log.read_text()[-2000:]
                if address.exists() and (where := address.read_text()):
                    self._admin = f"http://{where}"
                    with contextlib.suppress(aiohttp.ClientError):
                        for line in (await self._ask("/listeners")).splitlines():
                            self._port = int(line.rpartition(":")[2])
                await asyncio.sleep(0.05)

    @property
    def _endpoints(self) -> Path:
        return self._folder / "endpoints.yaml"

    def _checked_port(self, replica: RouterProcess) -> int:
        return replica.admin_port if self._check == READYZ else replica.http_port

    def _write_endpoints(self) -> None:
        """Writes where the replicas are, all at once: Envoy reads the file when it has been moved to its place."""
        endpoints = [
            {
                "endpoint": {
                    "address": _address(replica.http_port),
                    "health_check_config": {"port_value": self._checked_port(replica)},
                }
            }
            for replica in self._replicas
        ]
        assignment = {
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "routers",
            "endpoints": [{"lb_endpoints": endpoints}],
        }
        part = self._endpoints.with_suffix(".part")
        part.write_text(yaml.safe_dump({"resources": [assignment]}))
        os.replace(part, self._endpoints)

    async def _healthy(self) -> set[int]:
        """Returns the checked ports of the replicas that get requests."""
        (cluster,) = json.loads(await self._ask("/clusters?format=json"))["cluster_statuses"]
        healthy = {
            host["address"]["socket_address"]["port_value"]
            for host in cluster.get("host_statuses", [])
            if not host["health_status"].get("failed_active_health_check")
        }
        return {self._checked_port(r) for r in self._replicas if r.http_port in healthy}

    async def _ask(self, page: str) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(self._admin + page) as response,
        ):
            return await response.text()


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


@contextlib.asynccontextmanager
async def envoy(folder: Path, check: str) -> AsyncIterator[Envoy]:
    """Runs Envoy, still without replicas."""
    front = Envoy(folder, check)
    command = [found("envoy"), "-c", str(front.write_config()), "--concurrency", "1"]
    command += ["--disable-hot-restart", "--log-level", "warning"]
    command += ["--admin-address-path", str(folder / "admin-address")]
    log = folder / "front.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
        try:
            await front.until_it_listens(process, log)
            yield front
        finally:
            if process.returncode is None:
                process.terminate()
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()
