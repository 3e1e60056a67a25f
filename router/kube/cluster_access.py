"""ClusterAccess: where the Kubernetes API is, which certificates it is trusted by, and who we are there."""

from __future__ import annotations

import base64
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

logger = logging.getLogger("sandbox_router.discovery")

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ClusterAccessError(ValueError):
    """The cluster can't be talked to as configured; the message says what to change."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """One way into one cluster. Files are read again when they are used, so that rotation needs no restart."""

    server: str
    """Base URL without a trailing slash."""
    ca_file: str | None = None
    verifies_server: bool = True
    cert_file: str | None = None
    key_file: str | None = None
    tls_server_name: str | None = None
    proxy: str | None = None
    """Only a kubeconfig's `proxy-url`: HTTP_PROXY and its kin are not honoured."""
    authorization: str = field(default="", repr=False)
    """A fixed Authorization header value; "" for none."""
    token_file: Path | None = None
    """Read for each request, before `authorization`: bound service-account tokens rotate on disk."""
    origin: str = ""
    """Where this came from, for the log."""

    def header(self) -> str:
        """Returns the Authorization header value of this moment, "" for none.

        A token file that is gone or empty for a moment (it is being replaced) falls back to `authorization`.
        """
        if self.token_file is not None:
            try:
                token = self.token_file.read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                token = ""
            if token:
                return f"Bearer {token}"
            logger.warning(
                "token file unreadable", extra={"fields": {"path": str(self.token_file)}}
            )
        return self.authorization

    def ssl_context(self) -> ssl.SSLContext:
        """Returns a TLS client context made from the files as they are now. Raises ClusterAccessError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            # Many clusters' own CAs lack the key identifiers that Python 3.13 began to insist on.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if not self.verifies_server:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, keyfile=self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise ClusterAccessError(
                f"cannot load the certificates for {self.server}: {error}"
            ) from error
        return context

    def certificate_files_changed_at(self) -> tuple[int, ...]:
        """Returns the modification times (ns) of the certificate files, to notice their rotation."""
        return tuple(
            _changed_at(Path(path))
            for path in (self.ca_file, self.cert_file, self.key_file)
            if path
        )


def in_cluster_access(environ: Mapping[str, str], folder: Path | None = None) -> ClusterAccess:
    """Returns the access of a pod's service account.

    Written out here because importing kubernetes_asyncio costs 40 MB and 0.4 s for two environment names and two files.
    Raises ClusterAccessError when this is not a pod, or its service account is not mounted.
    """
    folder = folder or SERVICE_ACCOUNT_FOLDER
    host, port = (
        environ.get("KUBERNETES_SERVICE_HOST", ""),
        environ.get("KUBERNETES_SERVICE_PORT", ""),
    )
    if not host or not port:
        raise ClusterAccessError("not in a cluster: KUBERNETES_SERVICE_HOST and _PORT are not set")
    for name in ("token", "ca.crt"):
        if not (folder / name).is_file():
            raise ClusterAccessError(
                f"{folder / name} is missing: set automountServiceAccountToken: true on the pod"
            )
    return ClusterAccess(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_file=str(folder / "ca.crt"),
        token_file=folder / "token",
        origin="service account",
    )


async def kubeconfig_access(paths: str) -> ClusterAccess:
    """Returns the access that the current context of a kubeconfig gives (`paths` may be several, joined by `:`).

    Raises ClusterAccessError for a missing or broken file, and for `exec` and `auth-provider` users: a daemon must not
    start programs that a file names, and their tokens end after minutes.
    """
    # Imported only here: see in_cluster_access.
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.kube_config import (
        KubeConfigLoader,
        KubeConfigMerger,
    )

    try:
        merged = KubeConfigMerger(paths).config
        if merged is None:
            raise ClusterAccessError(f"kubeconfig not found: {paths}")
        user, base_folder = _current_user(merged)
        _refuse_plugins(user, paths)
        configuration = Configuration()
        await KubeConfigLoader(config_dict=merged, config_base_path=None).load_and_set(
            configuration
        )
    except ClusterAccessError:
        raise
    # The library checks little itself: a file of another shape makes it fall over its own feet in any of these ways.
    except (
        ConfigException,
        yaml.YAMLError,
        AssertionError,
        AttributeError,
        OSError,
        TypeError,
        ValueError,
    ) as error:
        raise ClusterAccessError(f"kubeconfig {paths} cannot be used: {error}") from error
    token_file = user.get("tokenFile")
    return ClusterAccess(
        server=str(configuration.host).rstrip("/"),
        ca_file=configuration.ssl_ca_cert,
        verifies_server=bool(configuration.verify_ssl),
        cert_file=configuration.cert_file,
        key_file=configuration.key_file,
        tls_server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        authorization=_authorization(user),
        token_file=(base_folder / token_file) if token_file else None,
        origin=f"kubeconfig {paths}",
    )


async def cluster_access(kubeconfig: Path | None, environ: Mapping[str, str]) -> ClusterAccess:
    """Returns the way into the cluster: the kubeconfig that was named, else the pod's service account.

    Raises ClusterAccessError when neither works.
    """
    if kubeconfig is not None:
        return await kubeconfig_access(str(kubeconfig))
    try:
        return in_cluster_access(environ)
    except ClusterAccessError as error:
        raise ClusterAccessError(
            f"{error}; outside a cluster name a file with `kubeconfig` or KUBECONFIG"
        ) from None


def _current_user(merged: Any) -> tuple[dict[str, Any], Path]:
    """Returns the current context's user entry with the folder that its relative paths start from."""
    context = merged["contexts"].get_with_name(merged["current-context"])["context"]
    name = context.safe_get("user")
    node = (
        merged["users"].get_with_name(name, safe=True)
        if name and merged.safe_get("users")
        else None
    )
    if node is None:
        return {}, Path()
    user = node.safe_get("user") or {}
    return user, Path(node.path).resolve().parent if node.path else Path()


def _refuse_plugins(user: Mapping[str, Any], paths: str) -> None:
    for kind in ("exec", "auth-provider"):
        if kind in user:
            raise ClusterAccessError(
                f"kubeconfig {paths}: the current user signs in with `{kind}`, which the router does not run; "
                "use a token, a tokenFile or a client certificate (for example of a service account)"
            )


def _authorization(user: Mapping[str, Any]) -> str:
    if user.get("token"):
        return f"Bearer {str(user['token']).strip()}"
    if user.get("username") and user.get("password"):
        pair = f"{user['username']}:{user['password']}".encode()
        return "Basic " + base64.b64encode(pair).decode("ascii")
    return ""


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
