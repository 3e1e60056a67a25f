"""What authentication and authorisation cost a request, in microseconds of one core: `python -m bench.auth`."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from router.auth.algorithms import family_of
from router.auth.authenticator import CertificateIdentity, Credentials
from router.auth.chain import AuthenticatorChain
from router.auth.claims import ClaimRules
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.jwt import JwtVerifier
from router.auth.keys import KeyRing, VerificationKey
from router.auth.mtls import CertificateAuthenticator
from router.auth.policy import CurrentPolicy
from router.auth.principal import Grant, Principal
from router.auth.revocation import Revocation
from router.auth.static import StaticTokenAuthenticator
from router.routing.endpoint import Endpoint, SandboxRef, State

ROUNDS = 15
PER_ROUND = 20_000
BOX = SandboxRef("team-a", "box-a")
ENDPOINT = Endpoint(BOX, "pod-uid", State.READY, ("192.0.2.1",))
CLAIMS = {
    "iss": "https://platform.example",
    "aud": "sandbox-router",
    "sub": "session-8c1f",
    "jti": "5f0c6c7e",
    "sandboxes": [{"namespace": "team-a", "name": "box-a", "ports": [8888]}],
}


def measure(call: Callable[[], object], *, per_round: int = PER_ROUND) -> float:
    """Returns the median over rounds of CPU microseconds per call, the loop's own cost taken off."""
    costs = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(per_round):
            call()
        spent = time.process_time() - started
        started = time.process_time()
        for _ in range(per_round):
            _nothing()
        costs.append((spent - (time.process_time() - started)) / per_round * 1e6)
    return statistics.median(costs)


def _nothing() -> None:
    pass


def _verifier(key: VerificationKey) -> JwtVerifier:
    keys = KeyRing()
    keys.replace("bench", (key,))
    return JwtVerifier(
        keys=keys,
        rules=ClaimRules("https://platform.example", ("sandbox-router",), 30.0),
        is_refused=Revocation(policy=CurrentPolicy(), auth_grace_s=60.0).is_refused,
        remote=None,
    )


def _chain(verifier: JwtVerifier | StaticTokenAuthenticator) -> AuthenticatorChain:
    return AuthenticatorChain(bearer=[verifier], certificate=None)


def _cached(token: bytes, verifier: JwtVerifier) -> Callable[[], object]:
    chain, offered = _chain(verifier), Credentials(authorization=b"Bearer " + token)
    chain.authenticate(offered)
    return lambda: chain.authenticate(offered)


def _first_use(token: bytes, verifier: JwtVerifier) -> Callable[[], object]:
    def call() -> object:
        verifier.forget()
        return verifier.verify(token)

    return call


def _authorized(principal: Principal) -> Callable[[], object]:
    authorizer = GrantAuthorizer(policy=CurrentPolicy())
    names = (BOX,)
    return lambda: authorizer.authorize(principal, ENDPOINT, names, 8888, b"GET")


def main() -> None:
    """Prints a table in Markdown."""
    static = secrets.token_urlsafe(32).encode()
    signing = {
        "HS256": secrets.token_bytes(48),
        "RS256": rsa.generate_private_key(65537, 2048),
        "ES256": ec.generate_private_key(ec.SECP256R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    }
    rows: list[tuple[str, float]] = []
    offered = Credentials(authorization=b"Bearer " + static)
    chain = _chain(StaticTokenAuthenticator(tokens=[static]))
    rows.append(("static token", measure(lambda: chain.authenticate(offered))))
    certificate = Credentials(certificate=CertificateIdentity("spiffe://x/a", "uri", 4e9))
    by_certificate = AuthenticatorChain(bearer=[], certificate=CertificateAuthenticator())
    rows.append(("certificate, known", measure(lambda: by_certificate.authenticate(certificate))))
    claims = {**CLAIMS, "iat": int(time.time()), "exp": int(time.time()) + 3600}
    for algorithm, key in signing.items():
        token = jwt.encode(claims, key, algorithm=algorithm).encode()
        public = key if isinstance(key, bytes) else key.public_key()
        verifier = _verifier(VerificationKey("", family_of(public), public))
        size = f"{len(token)} bytes"
        rows.append(
            (f"gateway token {algorithm}, known, {size}", measure(_cached(token, verifier)))
        )
        first = measure(_first_use(token, verifier), per_round=500)
        rows.append((f"gateway token {algorithm}, first use", first))
    one = Principal("a", "jwt", grants=(Grant("team-a", "box-a", ports=frozenset({8888})),))
    wide = Principal("a", "jwt", grants=(Grant("team-a", "*"),))
    many = Principal(
        "a", "jwt", grants=tuple(Grant("team-a", f"box-{n}") for n in range(500)) + one.grants
    )
    rows.append(("authorise, one grant", measure(_authorized(one))))
    rows.append(("authorise, a wildcard", measure(_authorized(wide))))
    rows.append(("authorise, 501 grants", measure(_authorized(many))))
    print("| step | µs |\n|---|---|")
    for name, cost_us in rows:
        print(f"| {name} | {cost_us:.2f} |")


if __name__ == "__main__":
    main()
