"""The server certificate that all subjects show, and how the load speaks TLS to them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "sandboxes.example.com"
TLS_VERSION, CIPHER = "TLSv1.3", "TLS_AES_256_GCM_SHA384"
"""What load and subject must agree on: OpenSSL and BoringSSL both take the client's first choice."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate and its key in PEM, apart and in one file."""

    certificate: Path
    key: Path
    both: Path


def write_certificate(directory: Path) -> CertificateFiles:
    """Writes a new self-signed certificate (ECDSA, P-256), as most servers have today."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    shown = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    files = CertificateFiles(
        *(directory / f"{part}.pem" for part in ("certificate", "key", "both"))
    )
    for path, content in zip(
        (files.certificate, files.key, files.both), (shown, secret, shown + secret), strict=True
    ):
        path.write_bytes(content)
    return files


def client_context() -> ssl.SSLContext:
    """TLS 1.3, without verifying: that would cost the load's core, and no subject anything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
