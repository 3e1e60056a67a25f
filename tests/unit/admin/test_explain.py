import asyncio
import time
from types import MappingProxyType

import pytest

from router.admin.explain import Explainer, Question
from router.auth.authenticator import Authenticated
from router.auth.chain import AuthenticatorChain
from router.auth.claims import ClaimRules
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.jwt import JwtVerifier
from router.auth.keys import KeyRing
from router.auth.mtls import CertificateAuthenticator, parse_xfcc
from router.auth.policy import CurrentPolicy
from router.auth.principal import Principal
from router.auth.static import StaticTokenAuthenticator
from router.auth.subject_access_review import SubjectAccessReviewAuthorizer
from router.auth.token_review import TokenReviewVerifier
from router.errors import AuthUnavailable, BadRequest
from router.proxy.admission import Admission
from router.proxy.options import ProxyOptions
from router.proxy.signs_of_life import Dialled
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from router.routing.source import IndexSource
from router.routing.target import TargetParser
from tests.fakes.deciders import DecidesEachTime
from tests.unit.auth.tokens import every_key, sign

BOX = Endpoint(
    ref=SandboxRef("team-a", "box"),
    uid="pod-1",
    sandbox_uid="sandbox-1",
    state=State.READY,
    addresses=("192.0.2.9",),
    ports={8888: 40001},
)


class Reviewer:
    """An API server that takes its time and counts what it is asked."""

    def __init__(self):
        self.asked = []

    async def review(self, body):
        self.asked.append(body["kind"])
        await asyncio.sleep(0.02)
        return {
            "status": {
                "authenticated": True,
                "user": {"username": "system:serviceaccount:a:b"},
                "allowed": True,
            }
        }


@pytest.fixture
def index():
    table = EndpointIndex(waiting_room=4, waiting_room_per_namespace=4)
    table.upsert(BOX)
    table.set_alias(SandboxRef("team-a", "claim"), BOX.ref)
    table.set_synced()
    return table


@pytest.fixture
def policy():
    return CurrentPolicy()


@pytest.fixture
async def make_explainer(index, policy):
    """Returns a maker of explainers over the real parts; the reviewer answers mode token-review."""
    closers = []

    def make(*, reviewer=None, own=(), anonymous=False, dials=MappingProxyType({}), **limits):
        ring = KeyRing()
        ring.replace("test", every_key())
        jwt = JwtVerifier(
            keys=ring,
            rules=ClaimRules(None, (), 0.0),
            is_refused=lambda principal: False,
            remote=None,
        )
        bearer = [] if anonymous else [jwt, StaticTokenAuthenticator(tokens=[b"s3cret-static"])]
        authorizer = GrantAuthorizer(policy=policy)
        if reviewer is not None:
            tokens = TokenReviewVerifier(
                reviewer=reviewer, audiences=(), ttl_s=30, is_refused=lambda principal: False
            )
            bearer.append(tokens)
            authorizer = SubjectAccessReviewAuthorizer(
                grants=authorizer, reviewer=reviewer, ttl_s=30
            )
            closers.extend([tokens, authorizer])
        source = IndexSource(index)
        admission = Admission(
            targets=TargetParser(
                base_domain="box.example",
                path_prefix="/sandboxes",
                default_port=8888,
                default_namespace="default",
                proxy_timeout_s=180,
            ),
            authenticator=AuthenticatorChain(
                bearer=bearer,
                certificate=CertificateAuthenticator(),
                anonymous=anonymous,
            ),
            source=source,
            authorizer=authorizer,
            identity_in_header=parse_xfcc,
            options=ProxyOptions(wait_for_ready_s=10, **limits),
        )
        return Explainer(
            admission=admission,
            source=source,
            authorizer=authorizer,
            is_own_listener=lambda address, port: (address, port) in own,
            is_draining=lambda: False,
            last_seen=dials.get,
            wake_outlook=lambda endpoint: "it would be woken at once",
            timeout_s=180.0,
        )

    yield make
    for closer in closers:
        await closer.close()


def token(*grants, **claims):
    return sign({"sub": "alice", "sandboxes": list(grants), **claims})


GRANT = {"namespace": "team-a", "name": "box", "ports": [8888]}


def question(credential=None, /, query=None, **headers):
    """Names team-a/box by query unless told otherwise; keywords are headers."""
    lines = [(b"Host", b"127.0.0.1:9090")]
    if credential is not None:
        lines.append((b"Authorization", b"Bearer " + credential))
    lines += [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    return Question.of(lines, {"namespace": "team-a", "name": "box"} if query is None else query)


# --- a request that goes through -------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (Dialled(3.0, "connect_refused"), "3 s ago, was refused: nothing listens on that port."),
        (Dialled(0.25, "connect_timeout"), "0.25 s ago, got no answer"),
        (Dialled(9.0, "connect_error"), "9 s ago, failed."),
        (Dialled(9.0, ""), "9 s ago, was accepted."),
    ],
)
async def test_it_says_what_the_last_dial_of_the_port_came_to(make_explainer, seen, told):
    dials = {("pod-1", BOX.addresses, 40001): seen, ("pod-1", BOX.addresses, 9): None}
    explained = await make_explainer(dials=dials).explain(question(token(GRANT)))
    assert f"its port 40001, {told}" in explained["outcome"]["detail"]


async def test_of_a_port_that_was_never_dialled_it_says_nothing(make_explainer):
    explained = await make_explainer().explain(question(token(GRANT)))
    assert "The last" not in explained["outcome"]["detail"]


async def test_every_step_of_a_request_that_goes_through(make_explainer):
    explained = await make_explainer().explain(question(token(GRANT, jti="token-7")))

    assert explained["target"] == {
        "namespace": "team-a",
        "name": "box",
        "port": 8888,
        "named_by": "header",
        "uid": "",
        "timeout_s": None,
        "pod_ip": None,
    }
    principal = explained["principal"]
    assert (principal["recognised"], principal["mode"], principal["subject"]) == (
        True,
        "jwt",
        "alice",
    )
    assert principal["offered"] == ["authorization"]
    assert principal["token_id"] == "token-7"
    assert explained["endpoint"] == {
        "known": True,
        "namespace": "team-a",
        "name": "box",
        "names": ["team-a/box", "team-a/claim"],
        "state": "ready",
        "reason": "",
        "pod_uid": "pod-1",
        "sandbox_uid": "sandbox-1",
        "wakes_on_request": False,
        "addresses": ["192.0.2.9"],
        "port": 40001,
    }
    assert explained["decision"]["decision"] == "allowed"
    assert explained["decision"]["by"] == "token claim sandboxes, entry 1"
    assert explained["outcome"]["status"] is None
    assert explained["outcome"]["code"] == ""


async def test_a_claims_name_leads_to_its_sandbox(make_explainer):
    grant = {"namespace": "team-a", "name": "claim"}

    explained = await make_explainer().explain(
        question(token(grant), query={"namespace": "team-a", "name": "claim"})
    )

    assert explained["target"]["name"] == "claim"
    assert explained["endpoint"]["name"] == "box"
    assert explained["outcome"]["code"] == ""


@pytest.mark.parametrize(
    ("query", "headers", "named_by"),
    [
        ({}, {"X_Sandbox_ID": b"box", "X_Sandbox_Namespace": b"team-a"}, "header"),
        ({"path": "/sandboxes/team-a/box/8888/x"}, {}, "path"),
        ({"namespace": "team-a", "name": "box", "port": "8888"}, {}, "header"),
    ],
)
async def test_each_way_of_naming_a_sandbox(make_explainer, query, headers, named_by):
    explained = await make_explainer().explain(question(token(GRANT), query=query, **headers))

    assert explained["target"]["named_by"] == named_by
    assert explained["endpoint"]["pod_uid"] == "pod-1"
    assert explained["outcome"]["code"] == ""


async def test_a_host_may_name_the_sandbox(make_explainer):
    asked = Question.of(
        [
            (b"Host", b"8888-box--team-a.box.example"),
            (b"Authorization", b"Bearer " + token(GRANT)),
        ],
        {},
    )

    explained = await make_explainer().explain(asked)

    assert explained["target"]["named_by"] == "host"
    assert explained["outcome"]["code"] == ""


@pytest.mark.parametrize(
    ("headers", "mode", "subject"),
    [
        ({"X_Sandbox_Token": b"s3cret-static"}, "static", "static-token"),
        (
            {"X_Forwarded_Client_Cert": b"URI=spiffe://example/alice"},
            "mtls",
            "spiffe://example/alice",
        ),
        (
            {"Sec_WebSocket_Protocol": b"sandbox-router.bearer.s3cret-static"},
            "static",
            "static-token",
        ),
    ],
)
async def test_each_way_of_saying_who_calls(make_explainer, headers, mode, subject):
    explained = await make_explainer().explain(question(**headers))

    assert explained["principal"]["mode"] == mode
    assert explained["principal"]["subject"] == subject


async def test_two_valid_credentials_need_no_waiting(make_explainer):
    explained = await make_explainer().explain(
        question(token(GRANT), Sec_WebSocket_Protocol=b"sandbox-router.bearer.s3cret-static")
    )

    assert explained["principal"]["subject"] == "alice"


async def test_the_routers_own_paths_are_its_own_business_too(make_explainer):
    explained = await make_explainer().explain(
        question(
            token(GRANT),
            query={"namespace": "team-a", "name": "box", "path": "/.sandbox-router/awake"},
        )
    )

    assert explained["outcome"]["detail"].startswith("The router answers this path itself")
    assert explained["outcome"]["code"] == ""


async def test_a_health_check_is_the_routers_own_business(make_explainer):
    explained = await make_explainer().explain(question(query={"path": "/healthz"}))

    assert explained["outcome"]["status"] == 200
    assert explained["target"] is None


# --- what a request would be refused for -----------------------------------------------------


async def outcome_of(explainer, asked):
    explained = await explainer.explain(asked)
    return explained, explained["outcome"]["status"], explained["outcome"]["code"]


async def test_a_request_that_names_nothing(make_explainer):
    explained, *outcome = await outcome_of(make_explainer(), question(query={}))

    assert outcome == [421, "misdirected"]
    assert explained["target"] is None


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"name": "Box"}, "invalid_sandbox_id"),
        ({"name": "box", "namespace": "a.b"}, "invalid_namespace"),
        ({"name": "box", "port": "8_888"}, "invalid_port"),
        ({"name": "box\r\nX-Sandbox-Port: 1"}, "invalid_sandbox_id"),
        ({"name": "box", "path": "/a b"}, "bad_request"),
        ({"name": "box", "path": "/ HTTP/1.1\r\nX-Sandbox-ID: other"}, "bad_request"),
        ({"name": "box", "method": "GET /x"}, "bad_request"),
        ({"name": "box", "method": "TRACE"}, "method_not_supported"),
        ({"name": "other", "path": "/sandboxes/team-a/box/8888/"}, "ambiguous_target"),
    ],
)
async def test_a_bad_name_is_refused_as_the_proxy_port_would(make_explainer, query, code):
    explained, _, found = await outcome_of(make_explainer(), question(query=query))

    assert found == code
    assert explained["principal"] is None


async def test_contradicting_routing_headers(make_explainer):
    asked = Question.of([(b"Host", b"h"), (b"X-Sandbox-ID", b"a"), (b"x-sandbox-id", b"b")], {})

    assert (await outcome_of(make_explainer(), asked))[1:] == (400, "ambiguous_target")


async def test_a_caller_without_credentials(make_explainer):
    explained, *outcome = await outcome_of(make_explainer(), question())

    assert outcome == [401, "unauthenticated"]
    assert explained["target"]["name"] == "box"
    assert explained["endpoint"] is None


async def test_a_refused_credential_says_why(make_explainer):
    explained, *outcome = await outcome_of(
        make_explainer(), question(token(GRANT, exp=int(time.time()) - 60))
    )

    assert outcome == [401, "unauthenticated"]
    assert explained["outcome"]["reason"] == "jwt: expired"


async def test_a_caller_without_a_grant_and_the_grants_that_were_considered(make_explainer):
    grants = [{"namespace": "team-a", "name": "box", "ports": [1]}, {"namespace": "x", "name": "*"}]

    explained, *outcome = await outcome_of(make_explainer(), question(token(*grants)))

    assert outcome == [403, "forbidden"]
    assert explained["endpoint"]["pod_uid"] == "pod-1"
    assert [grant["why_not"] for grant in explained["decision"]["grants"]] == [
        ["port"],
        ["namespace"],
    ]


async def test_the_method_of_the_request_counts(make_explainer):
    grant = {**GRANT, "methods": ["POST"]}
    query = {"namespace": "team-a", "name": "box"}

    refused = await outcome_of(make_explainer(), question(token(grant), query=query))
    allowed = await outcome_of(
        make_explainer(), question(token(grant), query={**query, "method": "POST"})
    )

    assert (refused[2], allowed[2]) == ("forbidden", "")


async def test_an_unknown_sandbox_is_not_found_only_for_those_who_may_see_it(make_explainer):
    query = {"namespace": "team-a", "name": "nothing"}
    wide = {"namespace": "team-a", "name": "*"}

    seeing = await outcome_of(make_explainer(), question(token(wide), query=query))
    blind = await outcome_of(make_explainer(), question(token(GRANT), query=query))

    assert seeing[1:] == (404, "sandbox_not_found")
    assert seeing[0]["endpoint"] == {"known": False}
    assert blind[1:] == (403, "forbidden")


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [
        (State.STARTING, 503, "sandbox_not_ready"),
        (State.SUSPENDED, 409, "sandbox_suspended"),
        (State.FINISHED, 410, "sandbox_finished"),
    ],
)
async def test_a_sandbox_that_cannot_be_dialled_is_told_at_once(
    make_explainer, index, state, status, code
):
    index.upsert(Endpoint(ref=BOX.ref, uid="", state=state, reason="Because"))

    async with asyncio.timeout(1):
        explained, *outcome = await outcome_of(make_explainer(), question(token(GRANT)))

    assert outcome == [status, code]
    assert explained["endpoint"]["state"] == state.value
    assert "Because" in explained["outcome"]["reason"]
    assert index.waiting() == 0


async def test_a_starting_sandbox_says_how_long_it_would_be_waited_for(make_explainer, index):
    index.upsert(Endpoint(ref=BOX.ref, uid="", state=State.STARTING))

    patient = await make_explainer().explain(question(token(GRANT)))
    hasty = await make_explainer().explain(question(token(GRANT), X_Sandbox_Timeout=b"2"))

    assert "up to 10 s" in patient["outcome"]["reason"]
    assert "up to 2 s" in hasty["outcome"]["reason"]


@pytest.mark.parametrize(
    ("uid", "code"),
    [(b"pod-1", ""), (b"sandbox-1", ""), (b"pod-0", "sandbox_replaced")],
)
async def test_the_uid_asked_for_must_be_the_one_found(make_explainer, uid, code):
    asked = question(token(GRANT), X_Sandbox_UID=uid)

    assert (await outcome_of(make_explainer(), asked))[2] == code


async def test_a_token_older_than_the_sandbox_allows(make_explainer, index):
    now = time.time()
    index.upsert(
        Endpoint(
            ref=BOX.ref,
            uid="pod-1",
            state=State.READY,
            addresses=BOX.addresses,
            tokens_not_before=now,
        )
    )

    explained = await outcome_of(make_explainer(), question(token(GRANT, iat=int(now) - 60)))

    assert explained[1:] == (401, "unauthenticated")
    assert explained[0]["outcome"]["reason"] == "tokens-not-before"


async def test_a_table_that_is_too_old(make_explainer, index):
    index.set_synced(time.monotonic() - 100)

    asked = question(token(GRANT))

    assert (await outcome_of(make_explainer(max_staleness_s=60), asked))[2] == "index_stale"
    assert (await outcome_of(make_explainer(max_staleness_s=0), asked))[2] == ""


async def test_an_unknown_name_is_not_known_to_be_missing_before_the_first_table(
    make_explainer, index
):
    index.remove(BOX.ref)
    index.remove_alias(SandboxRef("team-a", "claim"))
    index.set_awaited(None)
    asked = question(token(GRANT))
    assert (await outcome_of(make_explainer(), asked))[1:] == (503, "index_stale")

    index.set_awaited(frozenset())

    assert (await outcome_of(make_explainer(), asked))[1:] == (404, "sandbox_not_found")


async def test_the_router_itself_is_no_sandbox(make_explainer):
    explainer = make_explainer(own={("192.0.2.9", 40001)})

    assert (await outcome_of(explainer, question(token(GRANT))))[1:] == (403, "forbidden")


# --- it asks nobody and waits for nothing ----------------------------------------------------


async def test_a_credential_that_only_kubernetes_can_judge_is_asked_about_once(make_explainer):
    reviewer = Reviewer()
    explainer = make_explainer(reviewer=reviewer)
    asked = question(b"opaque-kubernetes-token")

    for _ in range(2):
        explained = await explainer.explain(asked)
        assert explained["principal"]["subject"] == "system:serviceaccount:a:b"

    assert reviewer.asked.count("TokenReview") == 1


async def test_rbac_is_asked_as_for_a_request(make_explainer):
    reviewer = Reviewer()

    explained = await make_explainer(reviewer=reviewer).explain(
        question(b"opaque-kubernetes-token")
    )

    assert explained["decision"]["decision"] == "allowed"
    assert explained["outcome"]["status"] is None
    assert reviewer.asked == ["TokenReview", "SubjectAccessReview"]


async def test_a_review_that_fails_is_told_as_the_request_would_be(make_explainer):
    class Away(Reviewer):
        async def review(self, body):
            raise AuthUnavailable(reason="the API server answered 500")

    explained = await make_explainer(reviewer=Away()).explain(question(b"opaque-kubernetes-token"))

    assert explained["outcome"]["code"] == "auth_unavailable"
    assert "500" in explained["outcome"]["reason"]


async def test_a_review_that_takes_too_long_is_not_waited_for(make_explainer, monkeypatch):
    class Slow(Reviewer):
        async def review(self, body):
            await asyncio.sleep(60)

    monkeypatch.setattr("router.admin.explain._REVIEW_PATIENCE_S", 0.01)
    explained = await make_explainer(reviewer=Slow()).explain(question(b"opaque-kubernetes-token"))

    assert explained["principal"] == {"recognised": False, "offered": ["authorization"]}
    assert explained["outcome"]["status"] is None
    assert "still being checked" in explained["outcome"]["detail"]


async def test_an_explanation_keeps_no_place_of_a_limit(make_explainer):
    explainer = make_explainer(max_requests_per_sandbox=1)

    for _ in range(3):
        assert (await outcome_of(explainer, question(token(GRANT))))[1:] == (None, "")


async def test_a_place_that_would_be_missing_is_told(make_explainer):
    explainer = make_explainer(max_requests_per_sandbox=1)
    taken = explainer._admission.slots.requests_by_sandbox.take(str(BOX.ref))

    assert (await outcome_of(explainer, question(token(GRANT))))[1:] == (429, "too_many_requests")
    taken.give_back()


async def test_everybody_is_anonymous_where_the_operator_said_so(make_explainer):
    explained = await make_explainer(anonymous=True).explain(question())

    assert explained["principal"]["mode"] == "none"
    assert explained["decision"]["by"] == "mode none may call every sandbox"


async def test_a_name_that_cannot_be_printed_is_shown_with_escapes(make_explainer):
    class Odd(DecidesEachTime):
        def authenticate(self, credentials):
            return Authenticated(
                Principal(subject="a\ud800\x1b[2J", mode="static", groups=("g" * 9999,)), True
            )

    explainer = make_explainer()
    explainer._admission._authenticator = Odd()

    principal = (await explainer.explain(question()))["principal"]

    assert principal["subject"] == r"a\ud800\x1b[2J"
    assert len(principal["groups"][0]) == 1024


# --- the question ----------------------------------------------------------------------------


def test_an_unknown_parameter_is_refused():
    with pytest.raises(BadRequest):
        Question.of([], {"sandbox": "box"})


def test_an_empty_parameter_says_nothing():
    assert Question.of([], {"port": "", "path": "", "name": ""}) == Question(headers=())


# --- a suspended sandbox ---------------------------------------------------------------------

ASLEEP = Endpoint(BOX.ref, "", State.SUSPENDED, sandbox_uid="sandbox-1")
WAKES = {"wakes": "all", "wake_timeout_s": 60.0}


async def test_it_says_that_the_request_would_wake_the_sandbox_and_wakes_nothing(
    make_explainer, index
):
    index.upsert(ASLEEP)
    explained = await make_explainer(**WAKES).explain(question(token({**GRANT, "wake": True})))
    assert explained["outcome"]["status"] is None
    detail = explained["outcome"]["detail"]
    assert "wakes the sandbox, waits up to 60 s for it" in detail
    assert "it would be woken at once" in detail
    assert "page" not in detail


async def test_it_says_that_a_browser_is_shown_a_page(make_explainer, index):
    index.upsert(ASLEEP)
    asked = question(token({**GRANT, "wake": True}), Sec_Fetch_Mode=b"navigate")
    explained = await make_explainer(**WAKES).explain(asked)
    assert "After 2 s a browser is shown a page" in explained["outcome"]["detail"]


async def test_it_says_why_the_request_would_not_wake_it(make_explainer, index):
    index.upsert(ASLEEP)
    explained = await make_explainer(**WAKES).explain(question(token(GRANT)))
    assert explained["outcome"]["code"] == "sandbox_suspended"
    assert "no right to wake it" in explained["outcome"]["reason"]
    asked = question(token({**GRANT, "wake": True}), Sec_Purpose=b"prefetch")
    explained = await make_explainer(**WAKES).explain(asked)
    assert "a prefetch never wakes" in explained["outcome"]["reason"]


async def test_rbac_is_asked_about_the_right_to_wake(make_explainer, index):
    index.upsert(ASLEEP)
    explained = await make_explainer(reviewer=Reviewer(), **WAKES).explain(
        question(b"opaque-kubernetes-token")
    )
    assert "wakes the sandbox" in explained["outcome"]["detail"]
