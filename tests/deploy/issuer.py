"""An OpenID Connect issuer for tests, over real HTTP: whoever asks is signed in as the person that the test names."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID = "sandboxes"


@dataclass(slots=True)
class Issuer:
    """Keeps what it signed and for whom; `claims` is who the next person is."""

    claims: dict[str, Any] = field(default_factory=dict)
    url: str = ""
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )
    nonces: dict[str, str] = field(default_factory=dict)

    def id_token(self, **more: Any) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 600}
        return jwt.encode(
            {**claims, **self.claims, **more}, self.key, "RS256", headers={"kid": "k1"}
        )

    async def configuration(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def authorize(self, request: web.Request) -> web.Response:
        code = secrets.token_urlsafe()
        self.nonces[code] = request.query.get("nonce", "")
        there = f"{request.query['redirect_uri']}?code={code}&state={request.query['state']}"
        raise web.HTTPFound(there)

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        nonce = self.nonces.pop(str(form["code"]))
        return web.json_response(
            {
                "access_token": secrets.token_urlsafe(),
                "token_type": "Bearer",
                "expires_in": 600,
                "id_token": self.id_token(nonce=nonce),
            }
        )

    async def keys(self, _: web.Request) -> web.Response:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return web.json_response({"keys": [{**public, "kid": "k1", "use": "sig", "alg": "RS256"}]})


@contextlib.asynccontextmanager
async def issuer(**claims: Any) -> AsyncIterator[Issuer]:
    """Serves an Issuer on a port of its own."""
    it = Issuer(claims)
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", it.configuration)
    app.router.add_get("/authorize", it.authorize)
    app.router.add_post("/token", it.token)
    app.router.add_get("/keys", it.keys)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        it.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield it
    finally:
        await runner.cleanup()
