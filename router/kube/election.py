"""Election: one of several processes holds a Lease, by kubernetes_asyncio's own leader election."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast
from urllib.parse import quote

from router.kube.api_client import ApiError, JsonObject, KubernetesApi

logger = logging.getLogger("sandbox_router.election")

LIBRARY: Final = "kubernetes_asyncio.leaderelection.leaderelection"


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds. The holder asks to go on every `retry_period_s`; who can't for `renew_deadline_s` stops, before others may begin."""

    lease_duration_s: float = 30.0
    renew_deadline_s: float = 20.0
    retry_period_s: float = 5.0
    request_timeout_s: float = 4.0


DEFAULT_TERMS: Final = Terms()


_OF_A_HOLDER = ("holderIdentity", "acquireTime", "renewTime")


class LeaseLock:
    """The Lease as the library's lock.

    Its own LeaseLock waits on a silent server for ever, lets transport errors end the election, and writes local time as UTC.
    This one answers every failure with "no", in time, and remembers by a steady clock when it was granted last.
    """

    def __init__(
        self,
        *,
        api: KubernetesApi,
        namespace: str,
        name: str,
        identity: str,
        terms: Terms,
        clock: Callable[[], float],
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.identity = identity
        self.granted_at: float | None = None
        """When we asked for what was granted last; None while we hold nothing."""
        self.problem = ""
        """Why the last request failed, "" while all is well."""
        self._api = api
        self._terms = terms
        self._clock = clock
        self._lease: JsonObject = {}
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
        self._path = f"{self._leases}/{quote(name, safe='')}"

    def __repr__(self) -> str:
        return f"<LeaseLock {self.namespace}/{self.name} as {self.identity} {self.problem!r}>"

    async def get(self, _name: str, _namespace: str) -> tuple[bool, Any]:
        """Returns True with the library's record, or False with its exception: one with the code 404 has it create the Lease."""
        from kubernetes_asyncio.client.exceptions import ApiException

        try:
            async with asyncio.timeout(self._terms.request_timeout_s):
                self._lease = await self._api.get_json(
                    self._path, {}, read_timeout_s=self._terms.request_timeout_s
                )
        except (ApiError, TimeoutError) as error:
            status = error.status if isinstance(error, ApiError) else 0
            if status != 404:
                self._failed(error)
            refusal = ApiException(status=status, reason=str(error))
            refusal.body = json.dumps({"code": status}).encode()
            return False, refusal
        spec = self._lease.get("spec") or {}
        if spec.get("holderIdentity") != self.identity:
            self.granted_at = None
        return True, _record(spec)

    async def create(self, name: str, namespace: str, election_record: Any) -> bool:
        """Returns True when the Lease was made and is ours."""
        item = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self._claimed({}),
        }
        return await self._ask("POST", item)

    async def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        """Returns True when the Lease is ours, for the first time or again."""
        return await self._ask("PUT", {**self._lease, "spec": self._claimed(self._spec())})

    async def give_back(self) -> None:
        """Frees the Lease if it is ours, so that another needn't wait for its end."""
        if self.granted_at is None:
            return
        self.granted_at = None
        try:
            await self._free()
        except ApiError as error:
            logger.warning("lease not given back", extra={"fields": self.fields(str(error))})

    async def _free(self) -> None:
        """Takes our name off the Lease. Raises ApiError."""
        for is_last in (False, True):
            spec = self._spec()
            free = {name: spec[name] for name in spec if name not in _OF_A_HOLDER}
            try:
                await self._put({**self._lease, "spec": free})
            except ApiError as error:
                # A renewal that was cut off on its way may have arrived all the same: then its Lease is the newer one.
                if error.status != 409 or is_last or not (await self.get("", ""))[0]:
                    raise
                if self._spec().get("holderIdentity") != self.identity:
                    return
            else:
                return

    def fields(self, reason: str = "") -> dict[str, object]:
        """Returns what a log line says of this lock."""
        said = {"lease": f"{self.namespace}/{self.name}", "identity": self.identity}
        return {**said, "reason": reason} if reason else dict(said)

    def _spec(self) -> JsonObject:
        return dict(self._lease.get("spec") or {})

    def _claimed(self, spec: JsonObject) -> JsonObject:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        is_new = spec.get("holderIdentity") != self.identity
        return {
            **spec,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self._terms.lease_duration_s),
            "acquireTime": now if is_new else spec.get("acquireTime") or now,
            "renewTime": now,
            "leaseTransitions": (spec.get("leaseTransitions") or 0) + is_new,
        }

    async def _ask(self, method: str, item: JsonObject) -> bool:
        asked_at = self._clock()
        try:
            if method == "POST":
                timeout_s = self._terms.request_timeout_s
                self._lease = await self._api.post_json(self._leases, item, timeout_s=timeout_s)
            else:
                await self._put(item)
        except ApiError as error:
            # Somebody was faster: nothing is wrong.
            if error.status != 409:
                self._failed(error)
            return False
        self.granted_at = asked_at
        self.problem = ""
        return True

    async def _put(self, item: JsonObject) -> None:
        self._lease = await self._api.put_json(
            self._path, item, timeout_s=self._terms.request_timeout_s
        )

    def _failed(self, error: Exception) -> None:
        problem = str(error) or "no answer in time"
        if problem != self.problem:
            self.problem = problem
            logger.warning("lease not renewed", extra={"fields": self.fields(problem)})


def _record(spec: JsonObject) -> Any:
    """Returns the library's record; one without a holder is free to be taken."""
    from kubernetes_asyncio.leaderelection.leaderelectionrecord import LeaderElectionRecord

    times = (spec.get(key) or None for key in ("acquireTime", "renewTime"))
    duration_s = spec.get("leaseDurationSeconds")
    return LeaderElectionRecord(
        spec.get("holderIdentity") or None, str(duration_s) if duration_s else None, *times
    )


class Election:
    """Takes part in the election until cancelled; is_held() is true only while nobody else can hold the Lease.

    The library itself goes on leading while a renewal hangs, and by a clock that may be set back: so the term that was granted
    is counted here.
    """

    def __init__(
        self,
        *,
        api: KubernetesApi,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        terms: Terms = DEFAULT_TERMS,
    ) -> None:
        self._terms = terms
        self._clock = clock
        self._lock = LeaseLock(
            api=api,
            namespace=namespace,
            name=name,
            identity=identity,
            terms=terms,
            clock=clock,
        )

    def __repr__(self) -> str:
        return f"<Election {self._lock!r} held={self.is_held()}>"

    def is_held(self) -> bool:
        """Returns True while the Lease is certainly ours."""
        granted_at = self._lock.granted_at
        return granted_at is not None and self._clock() - granted_at < self._terms.renew_deadline_s

    async def run(self) -> None:
        """Takes part until cancelled. Never returns, never raises."""
        # Imported only here: the client library costs 40 MB and 0.4 s.
        from kubernetes_asyncio.leaderelection.electionconfig import Config
        from kubernetes_asyncio.leaderelection.leaderelection import LeaderElection

        # It says at every try what our own lines say once.
        logging.getLogger(LIBRARY).setLevel(logging.CRITICAL)
        while True:
            config = Config(
                lock=cast("Any", self._lock),  # its base class would have to be imported at once
                lease_duration=self._terms.lease_duration_s,
                renew_deadline=self._terms.renew_deadline_s,
                retry_period=self._terms.retry_period_s,
                # They end at once: the library runs them in a task that it forgets when it is cancelled.
                onstarted_leading=self._began,
                onstopped_leading=self._ended,
            )
            await LeaderElection(config).run()
            await asyncio.sleep(self._terms.retry_period_s)

    async def give_back(self) -> None:
        """Frees the Lease if it is ours: for the end, after run() was cancelled and nothing acts any more."""
        was_held = self._lock.granted_at is not None
        await self._lock.give_back()
        if was_held:
            logger.info("lease given back", extra={"fields": self._lock.fields()})

    async def _began(self) -> None:
        logger.info("lease acquired", extra={"fields": self._lock.fields()})

    async def _ended(self) -> None:
        self._lock.granted_at = None
        logger.warning("lease lost", extra={"fields": self._lock.fields(self._lock.problem)})
