from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from router.kube.api_client import ApiError, KubernetesApi
from router.kube.cluster_access import ClusterAccess, kubeconfig_access
from tests.fakes.cluster_objects import sandbox
from tests.fakes.kubernetes_api import FakeKubernetes, User
from tests.fakes.kubernetes_store import SANDBOXES

LIST = "/api/v1/pods"
BOX = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes/box"


async def get(api: KubernetesApi) -> dict[str, Any]:
    return await api.get_json(LIST, {}, read_timeout_s=1.0)


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "kind", "is_expired"),
        [
            (401, "unauthorized", False),
            (403, "forbidden", False),
            (404, "other", False),
            (410, "expired", True),
            (429, "throttled", False),
            (500, "server_error", False),
            (503, "server_error", False),
        ],
    )
    async def test_a_refusal_is_an_error_with_the_servers_words(
        self, status: int, kind: str, is_expired: bool
    ) -> None:
        async with (
            FakeKubernetes() as fake,
            KubernetesApi(access=ClusterAccess(server=fake.url)) as api,
        ):
            with (
                fake.faults.refusing(status, message="because", retry_after_s=7),
                pytest.raises(ApiError) as caught,
            ):
                await get(api)

        assert (caught.value.status, caught.value.kind) == (status, kind)
        assert caught.value.is_expired is is_expired
        assert caught.value.message == "because"
        assert caught.value.retry_after_s == 7.0

    async def test_a_proxys_page_is_an_error_too(self) -> None:
        async with (
            FakeKubernetes() as fake,
            KubernetesApi(access=ClusterAccess(server=fake.url)) as api,
        ):
            with (
                fake.faults.refusing(502, plain_text=True, message="<html>" * 50_000),
                pytest.raises(ApiError) as caught,
            ):
                await get(api)

        assert (caught.value.status, caught.value.message) == (502, "HTTP 502")

    async def test_an_answer_that_is_no_json_object_is_an_error(self) -> None:
        async with (
            FakeKubernetes() as fake,
            KubernetesApi(access=ClusterAccess(server=fake.url)) as api,
        ):
            for text in ("<html>", "[]", ""):
                with (
                    fake.faults.refusing(200, plain_text=True, message=text),
                    pytest.raises(ApiError, match="JSON"),
                ):
                    await get(api)

    async def test_a_redirect_is_not_followed(self) -> None:
        async with (
            FakeKubernetes() as fake,
            KubernetesApi(access=ClusterAccess(server=fake.url)) as api,
        ):
            with fake.faults.refusing(307), pytest.raises(ApiError) as caught:
                await get(api)

        assert caught.value.status == 307

    async def test_nobody_there_is_an_error_without_a_status(self) -> None:
        async with FakeKubernetes() as fake:
            url = fake.url
        async with KubernetesApi(access=ClusterAccess(server=url)) as api:
            with pytest.raises(ApiError) as caught:
                await get(api)

        assert (caught.value.status, caught.value.kind) == (0, "connection")

    async def test_silence_is_a_timeout(self) -> None:
        async with (
            FakeKubernetes() as fake,
            KubernetesApi(access=ClusterAccess(server=fake.url)) as api,
        ):
            fake.faults.lists_stall = True
            with pytest.raises(ApiError) as caught:
                await api.get_json(LIST, {}, read_timeout_s=0.1)
            fake.faults.lists_stall = False

        assert caught.value.kind == "timeout"

    def test_a_watchs_error_event_reads_like_an_answer(self) -> None:
        error = ApiError.of_status(0, {"code": 410, "message": "too old", "reason": "Expired"})

        assert (error.status, error.is_expired) == (410, True)

    @pytest.mark.parametrize("junk", [None, 7, "x", [], {"code": "x", "details": 7}])
    def test_a_status_of_any_shape_is_survived(self, junk: object) -> None:
        assert ApiError.of_status(500, junk).status == 500


class TestRequests:
    async def test_a_review_is_posted_and_its_answer_returned(self) -> None:
        async with FakeKubernetes(tokens={"t": User("router"), "u": User("alice", ("a",))}) as fake:
            access = ClusterAccess(server=fake.url, authorization="Bearer t")
            async with KubernetesApi(access=access) as api:
                answer = await api.post_json(
                    "/apis/authentication.k8s.io/v1/tokenreviews",
                    {"kind": "TokenReview", "spec": {"token": "u"}},
                    timeout_s=1.0,
                )

        assert answer["status"]["user"]["username"] == "alice"

    async def test_a_post_has_a_deadline(self) -> None:
        # The kernel accepts for it; nobody ever answers.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            access = ClusterAccess(server=f"http://127.0.0.1:{silent.getsockname()[1]}")
            async with KubernetesApi(access=access) as api:
                with pytest.raises(ApiError, match="in time"):
                    await api.post_json("/x", {}, timeout_s=0.1)

    async def test_a_rotated_token_is_sent_with_the_next_request(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("one")
        async with FakeKubernetes(tokens={"one": User("r"), "two": User("r")}) as fake:
            access = ClusterAccess(server=fake.url, token_file=tmp_path / "token")
            async with KubernetesApi(access=access) as api:
                await get(api)
                (tmp_path / "token").write_text("two\n")
                await get(api)

        assert fake.authorizations == ["Bearer one", "Bearer two"]

    async def test_proxies_of_the_environment_are_ignored(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        async with (
            FakeKubernetes() as fake,
            KubernetesApi(access=ClusterAccess(server=fake.url)) as api,
        ):
            assert (await get(api))["kind"] == "PodList"

    async def test_it_must_be_open(self) -> None:
        with pytest.raises(RuntimeError):
            await get(KubernetesApi(access=ClusterAccess(server="http://127.0.0.1:1")))


class TestTls:
    async def test_the_clusters_authority_is_trusted_and_no_other(self, tmp_path: Path) -> None:
        authority, stranger = trustme.CA(), trustme.CA()
        for name, each in (("ca", authority), ("stranger", stranger)):
            each.cert_pem.write_to_path(tmp_path / name)
        async with FakeKubernetes(
            server_tls=_server_tls(authority), tokens={"t": User("r")}
        ) as fake:
            for name, works in (("ca", True), ("stranger", False)):
                access = ClusterAccess(
                    server=fake.url, ca_file=str(tmp_path / name), authorization="Bearer t"
                )
                async with KubernetesApi(access=access) as api:
                    if works:
                        assert (await get(api))["kind"] == "PodList"
                    else:
                        with pytest.raises(ApiError, match="certificate"):
                            await get(api)

    async def test_a_client_certificate_from_a_kubeconfig_names_the_caller(
        self, tmp_path: Path
    ) -> None:
        authority = trustme.CA()
        mine = authority.issue_cert("x@example.com", common_name="router")
        chain = b"".join(part.bytes() for part in mine.cert_chain_pems)
        (tmp_path / "cert").write_bytes(chain)
        mine.private_key_pem.write_to_path(tmp_path / "key")
        seen: list[str] = []

        def allows(user: User, *_: object) -> bool:
            seen.append(user.name)
            return True

        async with FakeKubernetes(server_tls=_server_tls(authority), allows=allows) as fake:
            config = fake.write_kubeconfig(
                tmp_path / "config",
                user={"client-certificate": "cert", "client-key": "key"},
                ca_pem=authority.cert_pem.bytes(),
            )
            async with KubernetesApi(access=await kubeconfig_access(str(config))) as api:
                await get(api)

        assert seen == ["router"]

    async def test_a_rotated_authority_is_trusted_from_the_next_connection_on(
        self, tmp_path: Path
    ) -> None:
        old, new = trustme.CA(), trustme.CA()
        old.cert_pem.write_to_path(tmp_path / "ca")
        access_of = {"ca_file": str(tmp_path / "ca"), "authorization": "Bearer t"}
        async with (
            FakeKubernetes(server_tls=_server_tls(new), tokens={"t": User("r")}) as fake,
            KubernetesApi(access=ClusterAccess(server=fake.url, **access_of)) as api,
        ):
            with pytest.raises(ApiError):
                await get(api)

            (tmp_path / "ca").write_text("half-written")
            with pytest.raises(ApiError):
                await get(api)

            new.cert_pem.write_to_path(tmp_path / "ca")
            assert (await get(api))["kind"] == "PodList"


def _server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


class TestWriting:
    """What changes objects."""

    async def test_a_patch_changes_what_its_tests_let_it(self) -> None:
        async with (
            FakeKubernetes() as fake,
            KubernetesApi(access=ClusterAccess(server=fake.url)) as api,
        ):
            box = fake.store.create(SANDBOXES, sandbox("box"))
            operations = [
                {"op": "test", "path": "/metadata/uid", "value": box["metadata"]["uid"]},
                {"op": "replace", "path": "/spec/operatingMode", "value": "Suspended"},
            ]

            changed = await api.patch_json(BOX, operations, timeout_s=2.0)

        assert changed["spec"]["operatingMode"] == "Suspended"

    async def test_a_patch_whose_test_fails_is_a_422_and_changes_nothing(self) -> None:
        async with (
            FakeKubernetes() as fake,
            KubernetesApi(access=ClusterAccess(server=fake.url)) as api,
        ):
            fake.store.create(SANDBOXES, sandbox("box"))
            operations = [
                {"op": "test", "path": "/metadata/uid", "value": "another"},
                {"op": "replace", "path": "/spec/operatingMode", "value": "Suspended"},
            ]

            with pytest.raises(ApiError) as caught:
                await api.patch_json(BOX, operations, timeout_s=2.0)
            box = await api.get_json(BOX, {}, read_timeout_s=2.0)

        assert caught.value.status == 422
        assert box["spec"]["operatingMode"] == "Running"

    async def test_an_object_is_replaced_only_as_the_version_that_was_read(self) -> None:
        async with (
            FakeKubernetes() as fake,
            KubernetesApi(access=ClusterAccess(server=fake.url)) as api,
        ):
            read = fake.store.create(SANDBOXES, sandbox("box"))
            labelled = {**read, "metadata": {**read["metadata"], "labels": {"a": "b"}}}
            await api.put_json(BOX, labelled, timeout_s=2.0)

            with pytest.raises(ApiError) as caught:
                await api.put_json(BOX, labelled, timeout_s=2.0)

        assert caught.value.status == 409
