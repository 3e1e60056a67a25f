"""FakeKubernetes: a real HTTP server that speaks as much of the Kubernetes API as a router, kubectl and a client library use.

Lists with limit and continue, watches with bookmarks and true versions, compaction to 410, selectors, writes and patches,
reviews, discovery, tokens, client certificates, and the faults of kubernetes_faults.py.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import yaml
from aiohttp import web

from tests.fakes import kubernetes_documents as documents
from tests.fakes.kubernetes_calls import (
    Call,
    failure,
    from_version,
    json_answer,
    plain_answer,
    refused,
    selected,
    to_version,
)
from tests.fakes.kubernetes_faults import Faults
from tests.fakes.kubernetes_patches import RefusedPatch, UnsupportedPatch, apply_patch
from tests.fakes.kubernetes_store import (
    MORE_KINDS,
    NAMESPACED_KINDS,
    Conflict,
    Expired,
    JsonObject,
    Kind,
    NotFound,
    ObjectStore,
)
from tests.fakes.kubernetes_watches import serve_watch


@dataclass(frozen=True, slots=True)
class User:
    """Who a credential stands for."""

    name: str
    groups: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ("https://kubernetes.default.svc",)
    uid: str = ""


@dataclass
class FakeKubernetes:
    """The server and its switches. Use as `async with FakeKubernetes() as api`."""

    tokens: dict[str, User] = field(default_factory=dict)
    """Bearer tokens that are accepted; none at all means that everybody is let in."""
    server_tls: ssl.SSLContext | None = None
    bookmark_interval_s: float = 60.0
    streams_lists: bool = False
    """Lists can be the beginning of a watch, as from Kubernetes 1.32 on."""
    store: ObjectStore = field(default_factory=ObjectStore)
    faults: Faults = field(default_factory=Faults)
    allows: Callable[[User, str, str, str | None], bool] = lambda user, verb, resource, ns: True
    """May this user use this verb on this resource in this namespace (None = all of them)?"""
    grants_access: Callable[[JsonObject], bool] = lambda spec: False
    """The answer to SubjectAccessReviews, from their spec."""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Verb, resource and namespace of every request so far."""
    reviews: list[JsonObject] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    """The Authorization headers of every request so far."""

    def __post_init__(self) -> None:
        self.served = {kind: kind.versions for kind in (*NAMESPACED_KINDS, *MORE_KINDS)}
        """The API versions served of each kind; () = the CRD is missing."""
        self._snapshots: dict[str, tuple[int, list[JsonObject]]] = {}
        self._socket: socket.socket | None = None
        self._address = ("127.0.0.1", 0)
        self._runner: web.AppRunner | None = None

    # --- its life ---------------------------------------------------------------------------

    @property
    def url(self) -> str:
        scheme = "https" if self.server_tls else "http"
        return f"{scheme}://{self._address[0]}:{self._address[1]}"

    async def __aenter__(self) -> FakeKubernetes:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens, on the same port as before if it did before."""
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        listener = socket.create_server(self._address, reuse_port=False)
        self._address = listener.getsockname()[:2]
        await web.SockSite(self._runner, listener, ssl_context=self.server_tls).start()

    async def stop(self) -> None:
        """Goes away: resets what is open and refuses connections."""
        if self._runner is not None:
            self.faults.cut()
            await self._runner.cleanup()
            self._runner = None

    @contextlib.asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Is not reachable while the block runs."""
        await self.stop()
        try:
            yield
        finally:
            await self.start()

    def write_kubeconfig(
        self, path: Path, *, user: JsonObject | None = None, ca_pem: bytes | None = None
    ) -> Path:
        """Writes a kubeconfig for this server with that user entry."""
        cluster: JsonObject = {"server": self.url}
        if ca_pem is not None:
            cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "me", "user": user or {"token": "any"}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    # --- requests ---------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.authorizations.append(request.headers.get("Authorization", ""))
        user = self._user(request)
        if user is None:
            return failure(401, "Unauthorized")
        if request.path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        document = documents.document(request.path, self._served_kinds())
        if document is not None and request.method == "GET":
            return json_answer(document)
        if request.method == "POST" and request.path.split("/")[-1] in (
            "tokenreviews",
            "subjectaccessreviews",
        ):
            return await self._review(request, user)
        call = self._call(request)
        if call is None:
            return plain_answer(404, "404 page not found\n")
        return await self._resource(call, user)

    def _user(self, request: web.Request) -> User | None:
        if not self.tokens and self.server_tls is None:
            return User("system:anonymous")
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Bearer" and token in self.tokens:
            return self.tokens[token]
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        for pair in (certificate or {}).get("subject", ()):
            if pair[0][0] == "commonName":
                return User(pair[0][1])
        return None

    def _served_kinds(self) -> tuple[Kind, ...]:
        return tuple(
            Kind(k.group, versions, k.plural, k.kind, k.has_status, k.short_names)
            for k, versions in self.served.items()
            if versions
        )

    def _call(self, request: web.Request) -> Call | None:
        parts = request.path.strip("/").split("/")
        if parts[:2] == ["api", "v1"]:
            group, version, rest = "", "v1", parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return None
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        for kind, versions in self.served.items():
            if (kind.group, kind.plural) == (group, rest[0]) and version in versions:
                name = rest[1] if len(rest) > 1 else None
                subresource = rest[2] if len(rest) > 2 else None
                return Call(kind, version, namespace, name, subresource, request)
        return None

    async def _resource(self, call: Call, user: User) -> web.StreamResponse:
        resource = call.kind.plural
        self.requests.append((call.verb, resource, call.namespace))
        refusal = self.faults.refusal_for(call.verb, resource, call.namespace)
        if refusal is not None:
            return refused(refusal)
        if not self.allows(user, call.verb, resource, call.namespace):
            return failure(
                403,
                f'{resource}.{call.kind.group} is forbidden: User "{user.name}" cannot {call.verb} '
                f'resource "{resource}" in API group "{call.kind.group}" '
                + (
                    f'in the namespace "{call.namespace}"'
                    if call.namespace
                    else "at the cluster scope"
                ),
            )
        try:
            if call.verb == "watch":
                if call.request.query.get("sendInitialEvents") and not self.streams_lists:
                    return failure(422, "sendInitialEvents: Forbidden: for watch", reason="Invalid")
                return await serve_watch(self.store, self.faults, call, self.bookmark_interval_s)
            if call.verb == "list":
                return await self._list(call)
            return await self._one(call)
        except NotFound as error:
            return failure(404, str(error))
        except Conflict as error:
            reason = "AlreadyExists" if call.verb == "create" else "Conflict"
            return failure(409, str(error), reason=reason)
        except Expired:
            return failure(410, "The provided continue parameter is too old")
        except UnsupportedPatch as error:
            return failure(415, str(error))
        except RefusedPatch as error:
            # The real one's words, which don't say what failed.
            message = "the server rejected our request due to an error in our request"
            return failure(422, message, reason="Invalid", test=str(error))

    async def _one(self, call: Call) -> web.Response:
        namespace, name = call.namespace or "default", call.name or ""
        if call.verb == "get":
            return self._object(call, self.store.get(call.kind, namespace, name))
        body = await call.request.read()
        if call.verb == "create":
            item = from_version(call.kind, orjson.loads(body))
            item.setdefault("metadata", {}).setdefault("namespace", namespace)
            return self._object(call, self.store.create(call.kind, item), status=201)
        if call.verb == "delete":
            return self._object(call, self.store.delete(call.kind, namespace, name))

        def changed(item: JsonObject) -> JsonObject:
            if call.verb == "update":
                new = from_version(call.kind, orjson.loads(body))
                seen = new["metadata"].get("resourceVersion")
                if seen and seen != item["metadata"]["resourceVersion"]:
                    raise Conflict(
                        "the object has been modified; please apply your changes to the latest version"
                    )
            else:
                # A patch is about the object as that version shows it.
                shown = to_version(call.kind, call.version, item)
                patched = apply_patch(call.request.content_type, shown, body)
                new = from_version(call.kind, patched)
                for key in ("apiVersion", "kind"):
                    if key not in item:
                        del new[key]
            if call.subresource == "status":
                return {**item, "status": new.get("status", {})}
            return (
                {**new, "status": item["status"]}
                if "status" in item and call.kind.has_status
                else new
            )

        return self._object(call, self.store.update(call.kind, namespace, name, changed))

    def _object(self, call: Call, item: JsonObject, status: int = 200) -> web.Response:
        return json_answer(to_version(call.kind, call.version, item), status)

    # --- list -------------------------------------------------------------------------------

    async def _list(self, call: Call) -> web.StreamResponse:
        query = call.request.query
        token = query.get("continue", "")
        if token:
            version, items = self._snapshots.get(token, (0, []))
            if version < self.store.compacted or not version:
                raise Expired
        else:
            version, matches = self.store.version, selected(call)
            items = [i for i in self.store.items(call.kind, call.namespace) if matches(i)]
        limit = int(query.get("limit") or 0) or len(items)
        page, rest = items[:limit], items[limit:]
        metadata: JsonObject = {"resourceVersion": str(version)}
        if rest:
            token = base64.urlsafe_b64encode(
                f"{version}:{len(rest)}:{time.monotonic_ns()}".encode()
            ).decode()
            self._snapshots[token] = (version, rest)
            metadata |= {"continue": token, "remainingItemCount": len(rest)}
        body = orjson.dumps(
            {
                "kind": f"{call.kind.kind}List",
                "apiVersion": call.kind.api_version(call.version),
                "metadata": metadata,
                "items": [to_version(call.kind, call.version, item) for item in page],
            }
        )
        if self.faults.lists_stall:
            return await self._stalled(call.request, body)
        return web.Response(body=body, content_type="application/json")

    async def _stalled(self, request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        while self.faults.lists_stall:
            await self.store.changed(0.1)
        await response.write(body[len(body) // 2 :])
        return response

    # --- reviews ----------------------------------------------------------------------------

    async def _review(self, request: web.Request, user: User) -> web.Response:
        resource = request.path.split("/")[-1]
        self.requests.append(("create", resource, None))
        refusal = self.faults.refusal_for("create", resource, None)
        if refusal is not None:
            return refused(refusal)
        if not self.allows(user, "create", resource, None):
            return failure(403, f'{resource} is forbidden: User "{user.name}" cannot create it')
        review = await request.json()
        self.reviews.append(review)
        if resource == "subjectaccessreviews":
            status: JsonObject = {"allowed": bool(self.grants_access(review["spec"]))}
        else:
            status = self._token_status(review["spec"])
        return json_answer({**review, "status": status}, 201)

    def _token_status(self, spec: JsonObject) -> JsonObject:
        user = self.tokens.get(spec.get("token", ""))
        wanted = spec.get("audiences") or ["https://kubernetes.default.svc"]
        audiences = [each for each in wanted if user is not None and each in user.audiences]
        if user is None or not audiences:
            return {"authenticated": False, "error": "[invalid bearer token]"}
        who = {"username": user.name, "groups": list(user.groups), "uid": user.uid}
        return {"authenticated": True, "user": who, "audiences": audiences}
