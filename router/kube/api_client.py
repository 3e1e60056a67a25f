"""KubernetesApi: requests to one Kubernetes API server, in raw JSON."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeAlias

import aiohttp
import orjson
from yarl import URL

from router.kube.cluster_access import ClusterAccess

logger = logging.getLogger("sandbox_router.discovery")

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object of the Kubernetes API."""

ERROR_BODY_LIMIT_BYTES = 64 * 1024


class ApiError(Exception):
    """The API server refused, or could not be reached (status 0).

    `reason` is the Status object's machine word (`Expired`, `Forbidden`), "" when there was none.
    """

    def __init__(
        self, status: int, message: str, *, reason: str = "", retry_after_s: float = 0.0
    ) -> None:
        self.status = status
        self.message = message
        self.reason = reason
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {message}" if status else message)

    @property
    def is_expired(self) -> bool:
        """True when the version or continue token is too old (410), or newer than the server knows: list again."""
        return (
            self.status == 410
            or self.reason in ("Expired", "Gone", "ResourceVersionTooLarge")
            or self.message.startswith("Too large resource version")
        )

    @property
    def kind(self) -> str:
        """The failure in a word, from a closed set fit for a metric's label."""
        if self.is_expired:
            return "expired"
        if self.status >= 500:
            return "server_error"
        if self.status == 0:
            return "timeout" if self.reason == "Timeout" else "connection"
        kinds = {401: "unauthorized", 403: "forbidden", 429: "throttled"}
        return kinds.get(self.status, "other")

    @classmethod
    def of_status(cls, http_status: int, body: Any, *, retry_after_s: float = 0.0) -> ApiError:
        """Returns the error that a Kubernetes `Status` object tells, whether it came as a body or as a watch event."""
        body = body if isinstance(body, dict) else {}
        code = body.get("code")
        details = body.get("details")
        details = details if isinstance(details, dict) else {}
        causes = details.get("causes") or []
        reasons = [cause.get("reason") for cause in causes if isinstance(cause, dict)]
        seconds = details.get("retryAfterSeconds")
        return cls(
            code if isinstance(code, int) and code else http_status,
            str(body.get("message") or f"HTTP {http_status}")[:500],
            reason=(
                "ResourceVersionTooLarge"
                if "ResourceVersionTooLarge" in reasons
                else str(body.get("reason") or "")
            ),
            retry_after_s=retry_after_s or (float(seconds) if isinstance(seconds, int) else 0.0),
        )


class KubernetesApi:
    """Owns the connections to one API server.

    Every request reads the token anew and notices rotated certificates. Redirects, cookies and HTTP_PROXY are ignored.
    Open it inside the running loop with `async with`.
    """

    def __init__(self, *, access: ClusterAccess, connect_timeout_s: float = 10.0) -> None:
        self._access = access
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._ssl: ssl.SSLContext | bool = True
        self._certificates_of: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<KubernetesApi {self._access.server} open={self._session is not None}>"

    async def __aenter__(self) -> KubernetesApi:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=_keepalive_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            # A watch line may hold an object of etcd's 1.5 MiB limit; the splitter bounds lines, this bounds one read.
            read_bufsize=256 * 1024,
            skip_auto_headers=("User-Agent",),
            headers={
                "User-Agent": "sandbox-router",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get_json(
        self, path: str, params: Mapping[str, str], *, read_timeout_s: float
    ) -> JsonObject:
        """Returns the decoded answer. Raises ApiError."""
        async with self.stream("GET", path, params, read_timeout_s=read_timeout_s) as response:
            return _decoded(await _body(response))

    async def post_json(self, path: str, body: JsonObject, *, timeout_s: float) -> JsonObject:
        """Returns the decoded answer to a created object. Raises ApiError, also when `timeout_s` is over."""
        return await self._write("POST", path, body, timeout_s=timeout_s)

    async def put_json(self, path: str, body: JsonObject, *, timeout_s: float) -> JsonObject:
        """Returns an object as it was replaced: only the very version that `body` names. Raises ApiError as post_json."""
        return await self._write("PUT", path, body, timeout_s=timeout_s)

    async def patch_json(
        self, path: str, operations: list[JsonObject], *, timeout_s: float
    ) -> JsonObject:
        """Returns an object as a JSON Patch (RFC 6902) left it; a `test` that fails is a 422. Raises ApiError as post_json."""
        return await self._write("PATCH", path, operations, timeout_s=timeout_s)

    async def _write(
        self, method: str, path: str, body: JsonObject | list[JsonObject], *, timeout_s: float
    ) -> JsonObject:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self.stream(method, path, {}, read_timeout_s=2 * timeout_s, body=body) as response,
            ):
                return _decoded(await _body(response))
        except TimeoutError as error:
            raise ApiError(0, "no answer in time", reason="Timeout") from error

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        *,
        read_timeout_s: float,
        body: JsonObject | list[JsonObject] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yields a response with a 2xx status whose body is still to be read; each read may take `read_timeout_s`.

        Raises ApiError for every other status and for a failed transport, inside the block too. Always closes the connection
        unless the body was read to its end.
        """
        if self._session is None:
            raise RuntimeError("the API client is not open")
        url = URL(self._access.server + path, encoded=True).with_query(params)
        try:
            async with self._session.request(
                method,
                url,
                data=None if body is None else orjson.dumps(body),
                headers=self._headers(body),
                ssl=self._current_ssl(),
                server_hostname=self._access.tls_server_name,
                proxy=self._access.proxy,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._connect_timeout_s, sock_read=read_timeout_s
                ),
            ) as response:
                if not 200 <= response.status < 300:
                    raise await _refusal(response)
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            reason = "Timeout" if isinstance(error, TimeoutError) else ""
            raise ApiError(0, f"{type(error).__name__}: {error}"[:500], reason=reason) from error

    def _headers(self, body: JsonObject | list[JsonObject] | None) -> dict[str, str]:
        headers = {} if body is None else {"Content-Type": _content_type(body)}
        authorization = self._access.header()
        if authorization:
            headers["Authorization"] = authorization
        return headers

    def _current_ssl(self) -> ssl.SSLContext | bool:
        if not self._access.server.startswith("https:"):
            return True
        changed_at = self._access.certificate_files_changed_at()
        if self._ssl is True or changed_at != self._certificates_of:
            try:
                self._ssl = self._access.ssl_context()
            except ValueError as error:
                if self._ssl is True:
                    raise ApiError(0, str(error)) from error
                # Half-written files: the old certificates stay in force and the next request looks again.
                logger.warning("certificates unreadable", extra={"fields": {"error": str(error)}})
                return self._ssl
            self._certificates_of = changed_at
        return self._ssl


def _content_type(body: JsonObject | list[JsonObject]) -> str:
    # A list is a patch: no object of the API is one.
    return "application/json-patch+json" if isinstance(body, list) else "application/json"


def _keepalive_socket(address_info: Any) -> socket.socket:
    """Returns a socket that notices a dead peer within about 45 s, whichever side the silence is on."""
    family, kind, protocol, _, _ = address_info
    connection = socket.socket(family=family, type=kind, proto=protocol)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 45_000)
    connection.setblocking(False)
    return connection


async def _body(response: aiohttp.ClientResponse) -> bytes:
    # Collected by hand: read() keeps the bytes in the response too, twice the memory of a large page.
    return b"".join([chunk async for chunk in response.content.iter_any()])


def _decoded(body: bytes) -> JsonObject:
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(0, f"the answer is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise ApiError(0, "the answer is not a JSON object")
    return decoded


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > ERROR_BODY_LIMIT_BYTES:
            break
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = None
    text = response.headers.get("Retry-After", "")
    retry_after_s = float(text) if text.isascii() and text.isdigit() else 0.0
    return ApiError.of_status(response.status, body, retry_after_s=retry_after_s)
