"""Admission: which sandbox is asked for, by whom, and whether they may: one step at a time, without waiting.

Everything that needs this decision runs the same step(): the gateway for each request, the connector after each wait, and
`/debug/route` to explain it. A step reads no socket and awaits nothing; what has to be waited for is returned as Pending.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from router.auth.anonymous import PREFLIGHT
from router.auth.authenticator import (
    Authenticated,
    Authenticator,
    CertificateIdentity,
    Credentials,
)
from router.auth.authorizer import Authorizer, Permit
from router.auth.principal import AMBIENT_MODES, CONNECT
from router.errors import (
    BodyTooLarge,
    IndexStale,
    MethodNotSupported,
    RouterError,
    SandboxReplaced,
)
from router.proxy.absence import Absence, no_table_yet
from router.proxy.caller import Remembered
from router.proxy.options import ProxyOptions
from router.proxy.ports import EndpointSource
from router.proxy.request import (
    AwaitAuthorization,
    AwaitCredential,
    AwaitWakeRight,
    Pending,
    Request,
    is_for_router,
)
from router.proxy.request_slots import RequestSlots
from router.proxy.session_use import SessionUse
from router.proxy.wire.forwarding import subprotocol_token
from router.proxy.wire.navigation import fetch_mode, is_preflight
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.router_paths import PREFIX, TCP, own_path
from router.routing.elsewhere import ALONE, Elsewhere
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.target import Target, TargetParser

_NOT_PROXIED: Final = frozenset({b"CONNECT", b"TRACE"})
HEALTH_PATH: Final = b"/healthz"
_READY: Final = State.READY
_UNASKED_MODES: Final = frozenset({"none", "mtls"})
"""Modes that a foreign page's WebSocket may have without its user's doing: it asks for a raw connection in vain."""
_MAX_REMEMBERED_COOKIE: Final = 4096


class Admission:
    """Decides about requests. The order is fixed: target, caller, sandbox, permission; nothing costly comes before its turn."""

    def __init__(
        self,
        *,
        targets: TargetParser,
        authenticator: Authenticator,
        source: EndpointSource,
        authorizer: Authorizer,
        identity_in_header: Callable[[bytes], CertificateIdentity | None],
        options: ProxyOptions,
        requests_elsewhere: Elsewhere = ALONE,
        tunnels_elsewhere: Elsewhere = ALONE,
        connects_elsewhere: Elsewhere = ALONE,
    ) -> None:
        """What is `elsewhere` is open in the pod's other workers."""
        self._targets = targets
        self._authenticator = authenticator
        self._source = source
        self._authorizer = authorizer
        self._identity_in_header = identity_in_header
        self._options = options
        self._identity_headers = options.identity_headers
        self._public_ports = options.public_ports
        self._session_use = SessionUse(options.sessions)
        self._has_sessions = options.sessions is not None
        self._connects = options.connects
        self._has_own_rights = self._has_sessions or self._connects  # on some of the router's paths
        self._absence = Absence(source=source, authorizer=authorizer, options=options)
        self.is_on_its_way = self._absence.is_on_its_way
        self.waking_until = self._absence.waking_until
        self._names_generation = source.names_generation
        self._find = source.find
        self.path_root = self._path_root = targets.path_root
        self._max_body_bytes = options.max_body_bytes
        self._max_staleness_s = options.max_staleness_s
        self._has_bounds = bool(options.max_body_bytes or options.max_staleness_s)
        self.slots = RequestSlots(
            options,
            requests_elsewhere=requests_elsewhere,
            tunnels_elsewhere=tunnels_elsewhere,
            connects_elsewhere=connects_elsewhere,
        )
        self._has_slots = self.slots.is_on

    def __repr__(self) -> str:
        return f"<Admission {self._source!r}>"

    def is_health_check(self, head: RequestHead) -> bool:
        """Returns True for a load balancer's check; a request that names a sandbox means the sandbox's own /healthz."""
        return (
            head.target.startswith(HEALTH_PATH)
            and head.target.partition(b"?")[0] == HEALTH_PATH
            and head.method in (b"GET", b"HEAD")
            and not self._targets.names_sandbox(head.asked, head.host, head.target)
        )

    def step(self, request: Request) -> Permit | Pending:
        """Returns the right to dial this very pod, or what has to be waited for. Raises the RouterError of a refusal."""
        permit = self._as_before(request)
        if permit is None:
            target = request.target or self._target(request)
            if request.authenticated is None and self._passes_without_credential(request):
                self.authenticated(request, Authenticated(PREFLIGHT, consumed_authorization=True))
            if request.authenticated is None:
                answer = self._same_caller(request) or self._session_use.authenticate(
                    request, target, self._credentials(request), self._authenticator
                )
                if not isinstance(answer, Authenticated):
                    return AwaitCredential(answer)
                self.authenticated(request, answer)
            self._check_bounds(request)
            endpoint = self._find(target.ref, target.pod_ip)
            if endpoint is None or (
                endpoint.state is not _READY
                and not (request.needs_no_pod and (endpoint.sandbox_uid or endpoint.uid))
            ):
                return self._absence.step(request, target, endpoint)
            decided = self._authorize(request, target, endpoint)
            if not isinstance(decided, Permit):
                return decided
            permit = decided
        if self._has_slots or request.grant_method is CONNECT:
            self.slots.take(request, permit.endpoint)
        return permit

    def unknown(self, ref: SandboxRef) -> RouterError:
        """Returns what a request for an unknown sandbox gets. Before the first table that is no 404, which would be final."""
        return self._absence.unknown(ref)

    def check_table(self) -> None:
        """Raises IndexStale while there is no table yet."""
        if not self._source.is_complete():
            raise no_table_yet()

    def caller(self, request: Request) -> Authenticated | Awaitable[Authenticated]:
        """Returns who sends a request that names no sandbox, or who has to be asked. Raises Unauthenticated, AuthUnavailable."""
        return self._authenticator.authenticate(self._credentials(request))

    # --- what was waited for ----------------------------------------------------------------

    def authenticated(self, request: Request, authenticated: Authenticated) -> None:
        """Takes the answer to who calls. Raises CrossOrigin."""
        head = request.head
        if head.sandbox_token and head.sandbox_token in (head.authorization or b""):
            # The app's own Authorization may pass beside X-Sandbox-Token, but not our token in its place.
            authenticated = authenticated._replace(consumed_authorization=True)
        request.authenticated = authenticated
        self.note_caller(request, authenticated)
        mode = authenticated.principal.mode
        if mode in AMBIENT_MODES or (
            request.grant_method is CONNECT and mode in _UNASKED_MODES and head.origin is not None
        ):
            self._session_use.refuse_foreign_pages(request, authenticated.principal)

    def authorized(
        self, request: Request, asked: AwaitAuthorization, permit: Permit | None
    ) -> None:
        """Takes the answer to whether they may; the next step() uses it if it still is about the right pod."""
        request.permit = permit
        request.admitted = asked.names

    def wake_right(self, request: Request, asked: AwaitWakeRight, may_wake: bool) -> None:
        """Takes the answer to whether they may wake the sandbox. Raises SandboxSuspended when not."""
        self._absence.wake_right(request, asked.endpoint, may_wake=may_wake)

    # --- the same again ---------------------------------------------------------------------

    def _as_before(self, request: Request) -> Permit | None:
        """Returns the Permit of the connection's last request when this one asks for the same; else None."""
        known = request.caller.remembered
        if known is None or request.target is not None:
            return None
        head = request.head
        if (
            head.asked != known.asked
            or head.authorization != known.authorization
            or head.host != known.host
            or head.method != known.method
            or head.sandbox_token != known.sandbox_token
            or head.subprotocols is not None
            or head.client_cert != known.client_cert
            or known.valid_until <= request.outcome.started_at
            or known.authenticator_generation != self._authenticator.generation
            or known.authorizer_generation != self._authorizer.generation
            or known.names_generation != self._names_generation.number
            or (known.counts_cookie and head.cookie != known.cookie)
            or (self._path_root and head.target.startswith(self._path_root))
            or (self._has_own_rights and head.target.startswith(PREFIX))
        ):
            return None
        permit, target = known.permit, known.target
        endpoint = permit.endpoint
        if self._find(target.ref, target.pod_ip) is not endpoint:
            return None
        request.target = target
        request.authenticated = known.authenticated
        if target.timeout_s is not None:
            request.timeout_s = target.timeout_s
        outcome = request.outcome
        outcome.asked_namespace = target.ref.namespace
        outcome.sandbox = target.ref.name
        outcome.port = target.port
        # What note_caller() and _note() do, without the calls (bench/walk.py).
        principal = permit.principal
        outcome.principal = principal.subject
        outcome.token_id = principal.token_id
        outcome.key_id = principal.key_id
        if self._has_bounds:
            self._check_bounds(request)
        request.permit = permit
        outcome.authz = known.authz
        outcome.namespace = endpoint.ref.namespace
        outcome.pod_uid = endpoint.uid
        if known.is_ambient:
            self._session_use.refuse_foreign_pages(request, principal)
        return permit

    def _same_caller(self, request: Request) -> Authenticated | None:
        """Returns who the connection's last request came from when this one, for another sandbox, has the same credential."""
        known = request.caller.remembered
        if (
            known is None
            or known.authz == "public"  # without a credential, it was that port's alone
            or known.valid_until <= request.outcome.started_at
            or known.authenticator_generation != self._authenticator.generation
            or not known.has_credential_of(request.head)
            or (self._has_sessions and is_for_router(request))
        ):
            return None
        return known.authenticated

    def _remember(self, request: Request, target: Target, permit: Permit) -> None:
        authenticated, generations = request.authenticated, request.generations
        assert authenticated is not None
        if (
            generations is None
            or generations[1] < 0
            or request.is_preflight
            or request.head.subprotocols is not None
            or request.needs_no_pod
            or request.grant_method is CONNECT
            or target.path_root
        ):
            return
        head = request.head
        is_bearer = authenticated.consumed_authorization or head.sandbox_token is not None
        counts_cookie = self._has_sessions and not is_bearer
        if counts_cookie and head.cookie and len(head.cookie) > _MAX_REMEMBERED_COOKIE:
            return
        known = request.caller.remembered
        if (
            known is not None
            and known.authenticated is authenticated
            and known.authenticator_generation == generations[0]
        ):
            valid_until = known.valid_until
        else:
            valid_until = self._authenticator.valid_until(authenticated)
        if valid_until > request.outcome.started_at:
            request.caller.remembered = Remembered(
                head,
                target,
                authenticated,
                permit,
                generations,
                valid_until,
                counts_cookie=counts_cookie,
                is_ambient=authenticated.principal.mode in AMBIENT_MODES,
            )

    # --- the steps --------------------------------------------------------------------------

    def _target(self, request: Request) -> Target:
        head = request.head
        if head.method in _NOT_PROXIED:
            raise MethodNotSupported
        target = request.target = self._targets.parse(head.asked, head.host, head.target)
        outcome = request.outcome
        if self._connects and own_path(head.target, target.path_root) == TCP:
            request.grant_method = outcome.method = CONNECT
        outcome.asked_namespace = target.ref.namespace
        outcome.sandbox = target.ref.name
        outcome.port = target.port
        if target.timeout_s is not None:
            request.timeout_s = target.timeout_s
        request.generations = (
            self._authenticator.generation,
            self._authorizer.generation,
            self._names_generation.number,
        )
        return target

    def _passes_without_credential(self, request: Request) -> bool:
        """Returns True for a CORS preflight where the operator lets them pass; a certificate's holder calls as any other."""
        request.is_preflight = (
            self._options.passes_preflights
            and request.caller.certificate is None
            and is_preflight(request.head)
        )
        return request.is_preflight

    def _credentials(self, request: Request) -> Credentials:
        head, caller = request.head, request.caller
        certificate = caller.certificate
        if head.client_cert is not None and caller.peer.is_trusted:
            certificate = self._identity_in_header(head.client_cert)
        return Credentials(
            head.authorization,
            head.sandbox_token,
            subprotocol_token(head.subprotocols),
            certificate,
            fetch_mode(head),
            forwarded=self._identity_headers.read(head)
            if self._identity_headers is not None and caller.peer.is_trusted
            else None,
            is_public=self._public_ports and self._is_public(request),
        )

    def _is_public(self, request: Request) -> bool:
        """Returns True for a port that its sandbox's owner has opened to everybody."""
        target = request.target
        endpoint = None if target is None else self._find(target.ref, target.pod_ip)
        return (
            target is not None
            and endpoint is not None
            and request.grant_method is not CONNECT
            and target.port in endpoint.wishes.public_ports
        )

    def _check_bounds(self, request: Request) -> None:
        """Refuses what can be refused before anything costly. Raises BodyTooLarge, IndexStale."""
        length = request.head.content_length
        if self._max_body_bytes and length is not None and length > self._max_body_bytes:
            raise BodyTooLarge(f"The request body is larger than {self._max_body_bytes} bytes.")
        if self._max_staleness_s and self._source.is_stale(self._max_staleness_s):
            raise IndexStale

    def _authorize(
        self, request: Request, target: Target, endpoint: Endpoint
    ) -> Permit | AwaitAuthorization:
        """Returns the Permit for this very pod, or what has to be asked first. Raises Forbidden, SandboxReplaced."""
        permit, is_new = request.permit, False
        if permit is None or not self._source.is_current(permit.endpoint):
            assert request.authenticated is not None
            names = self._source.names(endpoint, target.ref)
            answer = self._authorizer.authorize(
                request.authenticated.principal, endpoint, names, target.port, request.grant_method
            )
            if not isinstance(answer, Permit):
                return AwaitAuthorization(answer, endpoint, names)
            permit, is_new = answer, True
        self._note(request, permit)
        if target.uid and not permit.endpoint.answers_to_uid(target.uid):
            raise SandboxReplaced
        if is_new:  # behind every check: what is remembered is never checked again
            self._remember(request, target, permit)
        return permit

    def note_caller(self, request: Request, authenticated: Authenticated) -> None:
        """Notes in the outcome who calls."""
        principal, outcome = authenticated.principal, request.outcome
        outcome.principal = principal.subject
        outcome.token_id = principal.token_id
        outcome.key_id = principal.key_id

    def _note(self, request: Request, permit: Permit) -> None:
        request.permit = permit
        outcome = request.outcome
        outcome.authz = "public" if permit.principal.mode == "public" else "allowed"
        outcome.namespace = permit.endpoint.ref.namespace
        outcome.pod_uid = permit.endpoint.uid
