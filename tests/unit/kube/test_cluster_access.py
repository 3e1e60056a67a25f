from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from router.kube.cluster_access import (
    ClusterAccess,
    ClusterAccessError,
    cluster_access,
    in_cluster_access,
    kubeconfig_access,
)

POD_ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def service_account(tmp_path: Path, authority: trustme.CA) -> Path:
    (tmp_path / "token").write_text("first\n")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    return tmp_path


def kubeconfig(path: Path, user: Any, *, cluster: dict[str, Any] | None = None) -> str:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://k8s.example:6443/"} | (cluster or {})}
        ],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


class TestInCluster:
    def test_a_pod_uses_its_service_account(self, service_account: Path) -> None:
        access = in_cluster_access(POD_ENVIRONMENT, service_account)

        assert access.server == "https://10.0.0.1:443"
        assert access.header() == "Bearer first"
        assert isinstance(access.ssl_context(), ssl.SSLContext)

    def test_an_ipv6_service_address_is_bracketed(self, service_account: Path) -> None:
        environment = POD_ENVIRONMENT | {"KUBERNETES_SERVICE_HOST": "fd00::1"}

        assert in_cluster_access(environment, service_account).server == "https://[fd00::1]:443"

    def test_a_rotated_token_is_read_anew(self, service_account: Path) -> None:
        access = in_cluster_access(POD_ENVIRONMENT, service_account)

        (service_account / "token").write_text("second")

        assert access.header() == "Bearer second"

    def test_a_token_that_is_gone_for_a_moment_raises_nothing(self, service_account: Path) -> None:
        access = in_cluster_access(POD_ENVIRONMENT, service_account)

        (service_account / "token").unlink()

        assert access.header() == ""

    def test_rotated_certificates_are_noticed(self, service_account: Path) -> None:
        access = in_cluster_access(POD_ENVIRONMENT, service_account)
        before = access.certificate_files_changed_at()

        trustme.CA().cert_pem.write_to_path(service_account / "ca.crt")

        assert access.certificate_files_changed_at() != before

    @pytest.mark.parametrize("missing", ["token", "ca.crt"])
    def test_an_unmounted_service_account_says_what_to_do(
        self, service_account: Path, missing: str
    ) -> None:
        (service_account / missing).unlink()

        with pytest.raises(ClusterAccessError, match="automountServiceAccountToken"):
            in_cluster_access(POD_ENVIRONMENT, service_account)

    async def test_outside_a_cluster_the_message_names_the_setting(self) -> None:
        with pytest.raises(ClusterAccessError, match="kubeconfig"):
            await cluster_access(None, {})


class TestKubeconfig:
    async def test_a_token_is_used(self, tmp_path: Path) -> None:
        access = await kubeconfig_access(kubeconfig(tmp_path / "config", {"token": "secret"}))

        assert access.server == "https://k8s.example:6443"
        assert access.header() == "Bearer secret"
        assert "secret" not in repr(access)

    async def test_a_token_file_is_read_for_each_request_and_may_be_relative(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text("first\n")
        path = kubeconfig(tmp_path / "config", {"tokenFile": "token", "token": "old"})
        access = await kubeconfig_access(path)
        assert access.header() == "Bearer first"

        (tmp_path / "token").write_text("second")
        assert access.header() == "Bearer second"

        (tmp_path / "token").unlink()
        assert access.header() == "Bearer old"

    async def test_a_password_is_used(self, tmp_path: Path) -> None:
        path = kubeconfig(tmp_path / "config", {"username": "me", "password": "pw"})

        access = await kubeconfig_access(path)

        assert access.header() == "Basic " + base64.b64encode(b"me:pw").decode()

    async def test_client_certificate_and_authority_may_be_data_or_files(
        self, tmp_path: Path, authority: trustme.CA
    ) -> None:
        certificate = authority.issue_cert("router@example.com")
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
        user = {
            "client-certificate-data": base64.b64encode(chain).decode(),
            "client-key-data": base64.b64encode(certificate.private_key_pem.bytes()).decode(),
        }
        cluster = {"certificate-authority": "ca.pem", "tls-server-name": "kubernetes"}
        path = kubeconfig(tmp_path / "config", user, cluster=cluster)

        access = await kubeconfig_access(path)

        assert access.ca_file == str(tmp_path / "ca.pem")
        assert access.tls_server_name == "kubernetes"
        assert access.ssl_context().verify_mode is ssl.CERT_REQUIRED
        assert access.header() == ""

    async def test_insecure_skip_tls_verify_is_honoured(self, tmp_path: Path) -> None:
        cluster = {"insecure-skip-tls-verify": True}
        path = kubeconfig(tmp_path / "config", {"token": "t"}, cluster=cluster)

        access = await kubeconfig_access(path)

        assert access.ssl_context().verify_mode is ssl.CERT_NONE

    async def test_a_proxy_url_is_honoured(self, tmp_path: Path) -> None:
        cluster = {"proxy-url": "http://proxy.example:3128"}
        path = kubeconfig(tmp_path / "config", {"token": "t"}, cluster=cluster)

        assert (await kubeconfig_access(path)).proxy == "http://proxy.example:3128"

    async def test_several_files_are_merged(self, tmp_path: Path) -> None:
        first = kubeconfig(tmp_path / "one", {"token": "one"})
        second = kubeconfig(tmp_path / "two", {"token": "two"})

        access = await kubeconfig_access(f"{first}:{second}:{tmp_path / 'absent'}")

        assert access.header() == "Bearer one"

    @pytest.mark.parametrize(
        ("kind", "user"),
        [
            ("exec", {"exec": {"command": "/bin/false", "apiVersion": "v1"}, "token": "t"}),
            ("auth-provider", {"auth-provider": {"name": "oidc", "config": {}}}),
        ],
    )
    async def test_plugins_are_refused_by_name_and_never_run(
        self, tmp_path: Path, kind: str, user: dict[str, Any]
    ) -> None:
        path = kubeconfig(tmp_path / "config", user)

        with pytest.raises(ClusterAccessError, match=f"`{kind}`.*use a token"):
            await kubeconfig_access(path)

    async def test_a_user_without_credentials_is_nobody(self, tmp_path: Path) -> None:
        assert (await kubeconfig_access(kubeconfig(tmp_path / "config", {}))).header() == ""

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "just text",
            "[1, 2]",
            "current-context: here",
            "{current-context: here, contexts: [], clusters: [], users: []}",
            "current-context: 7\ncontexts: 8",
            "a: b: c",
        ],
    )
    async def test_a_broken_file_is_named(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "config").write_text(text)

        with pytest.raises(ClusterAccessError, match="config"):
            await kubeconfig_access(str(tmp_path / "config"))

    async def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ClusterAccessError, match="absent"):
            await cluster_access(tmp_path / "absent", POD_ENVIRONMENT)


def test_certificates_that_cannot_be_loaded_are_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("junk")

    with pytest.raises(ClusterAccessError):
        ClusterAccess(server="https://x", ca_file=str(tmp_path / "ca")).ssl_context()
