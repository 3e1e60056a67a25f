"""Verification keys: files of secrets, PEM or JWKS to keys that each belong to one algorithm family.

A file of secrets holds one `secret` or `kid secret` a line; `#` begins a comment line.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import InvalidKeyError

from router.auth.algorithms import family_of, implementation
from router.auth.grants import shown
from router.watched_file import WatchedFiles

MAX_KEYS = 64
MAX_KID_BYTES = 256

_PEM_BLOCK = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]{1,40})-----.*?-----END \1-----", re.ASCII | re.DOTALL
)
_PRINTABLE = re.compile(rb"[!-~]+", re.ASCII)
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key with what it may verify. `kid` is "" for a key that has no name: it stands for any."""

    kid: str
    algorithms: frozenset[str]
    material: Any = field(repr=False)

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Returns True when `signature` over `signed` is this key's; `algorithm` must be one of the key's own."""
        return algorithm in self.algorithms and implementation(algorithm).verify(
            signed, self.material, signature
        )


Keys: TypeAlias = tuple[VerificationKey, ...]


class KeyRing:
    """All keys in force, by where they come from; replaced source by source."""

    def __init__(self) -> None:
        self._by_source: dict[str, Keys] = {}
        self._by_kid: dict[str, Keys] = {}
        self._all: Keys = ()
        self._unnamed: Keys = ()
        self._listeners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        counts = {source: len(keys) for source, keys in self._by_source.items()}
        return f"<KeyRing {counts}>"

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after every change."""
        self._listeners.append(listener)

    def replace(self, source: str, keys: Keys) -> None:
        """Puts the keys of one source in force instead of its former ones."""
        self._by_source[source] = keys
        self._all = tuple(key for some in self._by_source.values() for key in some)
        self._unnamed = tuple(key for key in self._all if not key.kid)
        kids = {key.kid for key in self._all if key.kid}
        self._by_kid = {kid: tuple(key for key in self._all if key.kid == kid) for kid in kids}
        for listener in self._listeners:
            listener()

    def knows(self, kid: str | None) -> bool:
        """Returns True when a key of this very name is in force."""
        return kid is not None and kid in self._by_kid

    def candidates(self, kid: str | None) -> Keys:
        """Returns the keys that may have signed a token with this `kid`: those so named and those without a name; all without a `kid`."""
        if kid is None:
            return self._all
        return self._by_kid.get(kid, ()) + self._unnamed


def watch_keys(
    ring: KeyRing, path: Path, *, source: str, allow_secrets: bool, poll_interval_s: float = 1.0
) -> WatchedFiles[Keys]:
    """Returns the watcher that keeps `ring` at the file's keys."""
    return WatchedFiles(
        (path,),
        parse=lambda contents: parse_key_file(contents[0], allow_secrets=allow_secrets),
        apply=lambda keys: ring.replace(source, keys),
        poll_interval_s=poll_interval_s,
    )


def parse_key_file(content: bytes, *, allow_secrets: bool) -> Keys:
    """Returns the keys of a JWKS, PEM or (where allowed) secrets file. Raises ValueError that says what to do.

    A JWKS or PEM file is never taken for a secret, or its public text would become one.
    """
    text = content.strip()
    if text.startswith((b"{", b"[")):
        return parse_jwks(text, allow_secrets=True)
    if b"-----BEGIN" in text:
        return _bounded(tuple(_pem_keys(text)))
    if not allow_secrets:
        raise ValueError("holds neither a JWKS nor PEM")
    return _bounded(tuple(_secrets(content)))


def parse_jwks(content: bytes, *, allow_secrets: bool) -> Keys:
    """Returns the usable keys of a JWK Set (RFC 7517 §5). Raises ValueError when there is none.

    Keys for other purposes stand in many sets; they are left out. Secrets are left out of a set that came by URL.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("is not valid JSON") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("is not a JWK Set: an object with a list `keys`")
    if len(entries) > MAX_KEYS:
        raise ValueError(f"holds more than {MAX_KEYS} keys")
    keys, faults = [], []
    for position, entry in enumerate(entries):
        try:
            keys.append(_jwk(entry, allow_secrets=allow_secrets))
        except ValueError as error:
            faults.append(f"key {position}{_named(entry)}: {error}")
    if not keys:
        raise ValueError("; ".join(["holds no usable key", *faults]))
    return tuple(keys)


def parse_secrets(content: bytes) -> list[tuple[str, bytes]]:
    """Returns (kid, secret) for each line of a file of secrets; white space around a secret is not part of it.

    Raises ValueError with the line's number.
    """
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        if len(words) > 2:
            raise ValueError(
                f"line {number} has {len(words)} words: write `secret` or `kid secret`"
            )
        if not all(_PRINTABLE.fullmatch(word) for word in words):
            raise ValueError(f"line {number}: write `secret` or `kid secret` in printable ASCII")
        kid = words[0].decode("ascii") if len(words) == 2 else ""
        try:
            _check_secret(words[-1], line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        found.append((kid, words[-1]))
    if not found:
        raise ValueError("holds no secret")
    return found


def _secrets(content: bytes) -> Iterator[VerificationKey]:
    for kid, secret in parse_secrets(content):
        yield VerificationKey(kid, family_of(secret), secret)


def _check_secret(secret: bytes, line: bytes) -> None:
    """Raises ValueError for a secret that is short, or is no secret at all but somebody's public key."""
    family_of(secret)
    if line.lstrip().startswith((b"ssh-", b"ecdsa-", b"sk-")) or _is_public(secret):
        raise ValueError("this is a public key, not a secret: write it as PEM")


def _is_public(secret: bytes) -> bool:
    try:
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(secret)
        der = base64.b64decode(secret, validate=True)
    except InvalidKeyError:
        return True
    except (binascii.Error, ValueError):
        return False
    for load in (load_der_public_key, x509.load_der_x509_certificate):
        try:
            load(der)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        return True
    return False


def _pem_keys(text: bytes) -> Iterator[VerificationKey]:
    blocks = list(_PEM_BLOCK.finditer(text))
    if not blocks or len(blocks) != text.count(b"-----BEGIN"):
        raise ValueError("holds broken PEM")
    for number, block in enumerate(blocks, 1):
        kind = block.group(1)
        if b"PRIVATE" in kind:
            raise ValueError(
                f"PEM block {number} is a private key: give the router the public half alone"
            )
        try:
            if kind == b"CERTIFICATE":
                key: Any = x509.load_pem_x509_certificate(block.group()).public_key()
            else:
                key = load_pem_public_key(block.group())
            yield VerificationKey("", family_of(key), key)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ValueError(f"PEM block {number}: {error}") from None


def _jwk(entry: object, *, allow_secrets: bool) -> VerificationKey:
    """Returns the key of one JWK. Raises ValueError when it can't verify a token's signature."""
    if not isinstance(entry, dict):
        raise ValueError("is not an object")
    _check_purpose(entry)
    kid = entry.get("kid", "")
    if not isinstance(kid, str) or len(kid.encode("utf-8", "replace")) > MAX_KID_BYTES:
        raise ValueError("`kid` must be a text of at most 256 bytes")
    material = _jwk_material(entry, allow_secrets=allow_secrets)
    algorithms = family_of(material)
    if "alg" in entry:
        # A list and not a set: anything can stand here, also what can't be hashed.
        if entry["alg"] not in list(algorithms):
            raise ValueError(
                f"`alg` is {shown(entry['alg'])}; a key of this kind can be used with"
                f" {', '.join(sorted(algorithms))}"
            )
        algorithms = frozenset({entry["alg"]})
    return VerificationKey(kid, algorithms, material)


def _check_purpose(entry: dict[str, Any]) -> None:
    if entry.get("use", "sig") != "sig":
        raise ValueError(f"is not for signatures: `use` is {shown(entry['use'])}, not `sig`")
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise ValueError("is not for verifying: `key_ops` must list `verify`")
    if "d" in entry:
        raise ValueError("is a private key: publish the public half alone")


def _jwk_material(entry: dict[str, Any], *, allow_secrets: bool) -> Any:
    kind = entry.get("kty")
    for name in ("k", "n", "e", "x", "y"):
        if name in entry and not _is_base64url(entry[name]):
            raise ValueError(f"`{name}` is not base64url")
    try:
        if kind == "RSA":
            return RSAAlgorithm.from_jwk(entry)
        if kind == "EC":
            return ECAlgorithm.from_jwk(entry)
        if kind == "OKP":
            return OKPAlgorithm.from_jwk(entry)
        if kind == "oct" and allow_secrets:
            return HMACAlgorithm.from_jwk(entry)
    except (InvalidKeyError, ValueError, TypeError, KeyError, UnsupportedAlgorithm) as error:
        raise ValueError(f"is broken: {error}") from None
    if kind == "oct":
        raise ValueError("is a secret, and this set is public")
    raise ValueError(f"`kty` is {shown(kind)}, not one of RSA, EC, OKP")


def _named(entry: object) -> str:
    """Returns which key it is, for a message: its `kid`, which is no secret."""
    kid = entry.get("kid") if isinstance(entry, dict) else None
    return f" (kid {shown(kid)})" if isinstance(kid, str) and kid else ""


def _is_base64url(value: object) -> bool:
    return isinstance(value, str) and _BASE64URL.fullmatch(value) is not None


def _bounded(keys: Keys) -> Keys:
    if len(keys) > MAX_KEYS:
        raise ValueError(f"holds more than {MAX_KEYS} keys")
    return keys
