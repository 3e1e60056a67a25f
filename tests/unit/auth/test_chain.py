"""AuthenticatorChain: which credential decides, and that none is passed over."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Awaitable, Callable

import pytest

from router.auth.authenticator import (
    Authenticated,
    CertificateIdentity,
    Credentials,
    ForwardedIdentity,
)
from router.auth.chain import MAX_TOKEN_BYTES, AuthenticatorChain, bearer_token
from router.auth.forwarded import ForwardedAuthenticator
from router.auth.mtls import NOBODY, CertificateAuthenticator
from router.auth.principal import Principal
from router.auth.static import StaticTokenAuthenticator
from router.auth.verifier import Reason, Refusal, Verdict
from router.errors import AuthUnavailable, Unauthenticated

ALICE = CertificateIdentity("spiffe://example/alice", "uri")
STALE = CertificateIdentity("spiffe://example/alice", "uri", not_after=1.0)


class Fake:
    """What every verifier has beside its verdicts."""

    is_local = True

    def __init__(self) -> None:
        self.listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def valid_until(self, principal: Principal) -> float:
        return 1000.0


class Remote(Fake):
    """A verifier that answers later, about tokens that begin with its prefix."""

    mode = "token-review"
    is_local = False

    def __init__(self, prefix: bytes = b"k8s-") -> None:
        super().__init__()
        self.prefix = prefix
        self.asked: list[bytes] = []

    def verify(self, token: bytes) -> Verdict | Awaitable[Verdict]:
        return self._later(token)

    async def _later(self, token: bytes) -> Verdict:
        await asyncio.sleep(0)
        self.asked.append(token)
        if token == b"k8s-down":
            return Refusal(self.mode, Reason.UNAVAILABLE, "", log="no answer")
        if token.startswith(self.prefix):
            return Principal("system:serviceaccount:a:b", self.mode)
        return Refusal(self.mode, Reason.REJECTED, "Rejected.", is_final=False)


class Strict(Fake):
    """A verifier at once: `mine-good` is good, other `mine-` tokens are bad for good, the rest is somebody else's."""

    mode = "jwt"

    def verify(self, token: bytes) -> Verdict:
        if token == b"mine-good":
            return Principal("alice", self.mode)
        if token.startswith(b"mine-"):
            return Refusal(self.mode, Reason.BAD_SIGNATURE, "The signature is wrong.")
        return Refusal(self.mode, Reason.UNKNOWN_KEY, "The key is not known.", is_final=False)


def _chain(
    *modes: str, anonymous: bool = False, remote: Remote | None = None
) -> AuthenticatorChain:
    makers = {
        "static": lambda: StaticTokenAuthenticator(tokens=[b"s3cret"]),
        "jwt": Strict,
        "token-review": lambda: remote or Remote(),
    }
    return AuthenticatorChain(
        bearer=[makers[mode]() for mode in modes if mode != "mtls"],  # type: ignore[no-untyped-call]
        certificate=CertificateAuthenticator() if "mtls" in modes else None,
        certificate_before=modes[modes.index("mtls") + 1 :] if "mtls" in modes else (),
        anonymous=anonymous,
    )


async def _caller(chain: AuthenticatorChain, **credentials: object) -> Authenticated:
    answer = chain.authenticate(Credentials(**credentials))  # type: ignore[arg-type]
    return answer if isinstance(answer, Authenticated) else await answer


async def _refusal(chain: AuthenticatorChain, **credentials: object) -> Unauthenticated:
    with pytest.raises(Unauthenticated) as caught:
        await _caller(chain, **credentials)
    return caught.value


# --- where a bearer token is looked for ------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [b"Bearer s3cret", b"bearer s3cret", b"BEARER s3cret", b"Bearer   s3cret ", b"bearer\ts3cret"],
)
async def test_authorization_bearer_is_consumed_whatever_the_case_of_its_scheme(
    value: bytes,
) -> None:
    caller = await _caller(_chain("static"), authorization=value)

    assert caller.principal.mode == "static"
    assert caller.consumed_authorization


async def test_beside_x_sandbox_token_authorization_is_the_apps_own() -> None:
    caller = await _caller(
        _chain("static"), sandbox_token=b"s3cret", authorization=b"Bearer of-the-app"
    )

    assert not caller.consumed_authorization


async def test_a_bad_x_sandbox_token_is_refused_although_authorization_holds_a_good_one() -> None:
    error = await _refusal(_chain("static"), sandbox_token=b"wrong", authorization=b"Bearer s3cret")

    assert error.status == 401


async def test_an_empty_x_sandbox_token_is_an_invalid_one() -> None:
    await _refusal(_chain("static"), sandbox_token=b"", authorization=b"Bearer s3cret")


async def test_a_subprotocol_token_is_enough() -> None:
    caller = await _caller(_chain("static"), subprotocol_token=b"s3cret")

    assert caller.principal.mode == "static"
    assert not caller.consumed_authorization


async def test_a_subprotocol_token_beside_a_good_bearer_must_be_valid_too() -> None:
    for good in ({"sandbox_token": b"s3cret"}, {"authorization": b"Bearer s3cret"}):
        await _refusal(_chain("static"), subprotocol_token=b"wrong", **good)


async def test_of_x_sandbox_token_and_subprotocol_the_header_decides() -> None:
    caller = await _caller(
        _chain("static", "jwt"), sandbox_token=b"mine-good", subprotocol_token=b"s3cret"
    )

    assert caller.principal.mode == "jwt"


async def test_basic_credentials_beside_a_subprotocol_token_are_the_apps_own() -> None:
    caller = await _caller(
        _chain("static"), subprotocol_token=b"s3cret", authorization=b"Basic dXNlcjpwYXNz"
    )

    assert not caller.consumed_authorization


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"Bearer",
        b"Bearer ",
        b"s3cret",
        b"Basic s3cret",
        b"Bearers s3cret",
        b"Bearer s3cret, Bearer s3cret",
        b"Bearer caf\xe9.\xff.\xc3\xa9",
        b"Bearer s3cre",
    ],
)
async def test_a_bad_authorization_alone_is_401(value: bytes) -> None:
    await _refusal(_chain("static", "jwt"), authorization=value)


async def test_a_bare_token_is_not_taken_for_the_apps_own_and_passed_to_the_sandbox() -> None:
    for beside in ({"certificate": ALICE}, {"subprotocol_token": b"s3cret"}):
        error = await _refusal(_chain("static", "mtls"), authorization=b"s3cret", **beside)
        assert "malformed" in error.detail


async def test_no_credential_at_all_is_401() -> None:
    error = await _refusal(_chain("static"))

    assert error.detail == "Credentials are required."


async def test_a_token_beyond_the_limit_is_refused_unread() -> None:
    remote = Remote(prefix=b"")
    chain = _chain("token-review", remote=remote)

    for name in ("sandbox_token", "subprotocol_token"):
        await _refusal(chain, **{name: b"a" * (MAX_TOKEN_BYTES + 1)})

    assert remote.asked == []


# --- certificates ----------------------------------------------------------------------------


async def test_a_certificate_is_enough_where_its_mode_is_on() -> None:
    caller = await _caller(_chain("jwt", "mtls"), certificate=ALICE)

    assert caller.principal.identity == ALICE.identity


async def test_with_only_mtls_on_authorization_is_the_apps_own() -> None:
    caller = await _caller(_chain("mtls"), certificate=ALICE, authorization=b"Bearer of-the-app")

    assert not caller.consumed_authorization


async def test_with_only_mtls_on_a_token_replaces_no_certificate() -> None:
    error = await _refusal(_chain("mtls"), authorization=b"Bearer s3cret", sandbox_token=b"s3cret")

    assert error.challenge == 'Certificate realm="sandbox-router"'


async def test_a_certificate_where_its_mode_is_off_is_no_credential() -> None:
    await _refusal(_chain("static"), certificate=ALICE)


@pytest.mark.parametrize(
    ("modes", "mode"),
    [
        (("mtls", "static"), "mtls"),
        (("static", "mtls"), "static"),
        (("jwt", "mtls", "static"), "mtls"),
        (("jwt", "static", "mtls"), "static"),
    ],
)
async def test_of_a_certificate_and_a_token_the_first_configured_mode_names_the_caller(
    modes: tuple[str, ...], mode: str
) -> None:
    caller = await _caller(_chain(*modes), certificate=ALICE, authorization=b"Bearer s3cret")

    assert caller.principal.mode == mode
    assert caller.consumed_authorization


@pytest.mark.parametrize("modes", [("mtls", "static"), ("static", "mtls")])
async def test_of_a_certificate_and_a_token_both_must_be_valid(modes: tuple[str, ...]) -> None:
    await _refusal(_chain(*modes), certificate=ALICE, authorization=b"Bearer wrong")
    await _refusal(_chain(*modes), certificate=STALE, authorization=b"Bearer s3cret")


async def test_a_certificate_that_names_nobody_counts_only_where_certificates_do() -> None:
    error = await _refusal(_chain("static", "mtls"), certificate=NOBODY, sandbox_token=b"s3cret")
    assert error.detail == "The client certificate names nobody."

    caller = await _caller(_chain("static"), certificate=NOBODY, sandbox_token=b"s3cret")
    assert caller.principal.mode == "static"


async def test_an_expired_certificate_is_refused_on_a_connection_that_is_still_open() -> None:
    error = await _refusal(_chain("mtls"), certificate=STALE)

    assert error.detail == "The client certificate has expired."


# --- several bearer modes --------------------------------------------------------------------


async def test_verifiers_are_asked_in_order_until_one_knows_the_token() -> None:
    remote = Remote()
    chain = _chain("static", "jwt", "token-review", remote=remote)

    modes = [
        (await _caller(chain, authorization=b"Bearer " + token)).principal.mode
        for token in (b"s3cret", b"mine-good", b"k8s-token")
    ]

    assert modes == ["static", "jwt", "token-review"]
    assert remote.asked == [b"k8s-token"]


async def test_a_bad_token_of_one_kind_is_not_tried_as_another() -> None:
    remote = Remote(prefix=b"")

    error = await _refusal(_chain("jwt", "token-review", remote=remote), sandbox_token=b"mine-bad")

    assert error.detail == "The signature is wrong."
    assert remote.asked == []


async def test_a_verifier_that_answers_later_may_come_before_one_that_answers_at_once() -> None:
    caller = await _caller(_chain("token-review", "jwt"), sandbox_token=b"mine-good")

    assert caller.principal.mode == "jwt"


async def test_a_token_that_nobody_knows_is_401_with_the_most_telling_detail() -> None:
    error = await _refusal(_chain("static", "jwt", "token-review"), sandbox_token=b"strange")

    assert error.detail == "The key is not known."


async def test_a_verifier_that_cannot_answer_is_503_and_not_401() -> None:
    with pytest.raises(AuthUnavailable) as caught:
        await _caller(_chain("jwt", "token-review"), sandbox_token=b"k8s-down")

    assert "no answer" in caught.value.reason


async def test_without_any_credential_anonymous_callers_come_in_where_none_is_on_too() -> None:
    chain = _chain("jwt", anonymous=True)

    assert (await _caller(chain)).principal.mode == "none"
    await _refusal(chain, sandbox_token=b"strange")


# --- what a refusal tells --------------------------------------------------------------------


async def test_the_challenge_tells_a_refused_token_from_a_missing_one() -> None:
    chain = _chain("static")

    missing = await _refusal(chain)
    refused = await _refusal(chain, authorization=b"Bearer wrong")

    assert missing.challenge == 'Bearer realm="sandbox-router"'
    assert refused.challenge == 'Bearer realm="sandbox-router", error="invalid_token"'


async def test_refusals_are_counted_by_mode_and_reason() -> None:
    chain = _chain("jwt", "token-review")
    for token in (b"mine-bad", b"mine-bad", b"strange"):
        await _refusal(chain, sandbox_token=token)
    await _refusal(chain)
    with pytest.raises(AuthUnavailable):
        await _caller(chain, sandbox_token=b"k8s-down")

    assert chain.failures == {
        ("jwt", "bad_signature"): 2,
        ("jwt", "unknown_key"): 1,
        ("none", "missing"): 1,
        ("token-review", "unavailable"): 1,
    }


async def test_no_refusal_repeats_the_token() -> None:
    for modes in (("static",), ("jwt",), ("static", "jwt", "token-review")):
        error = await _refusal(_chain(*modes), authorization=b"Bearer hunter2-hunter2")
        assert "hunter2" not in f"{error.detail} {error.reason} {error.challenge}"


def test_credentials_never_show_in_a_repr() -> None:
    shown = repr(Credentials(authorization=b"Bearer s3cret", sandbox_token=b"s3cret"))

    assert shown == "<Credentials offered=['authorization', 'sandbox_token']>"
    assert "s3cret" not in repr(_chain("static", "mtls"))


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (b"Bearer a.b.c", b"a.b.c"),
        (b"bEaReR  a", b"a"),
        (b"Bearer", None),
        (b"Basic a", None),
        (b"Bearerx a", None),
    ],
)
def test_bearer_token_reads_the_scheme(value: bytes, token: bytes | None) -> None:
    assert bearer_token(value) == token


# --- how long an answer may be kept ----------------------------------------------------------


async def test_an_answer_is_kept_as_long_as_its_own_verifier_says() -> None:
    chain = _chain("jwt", "static")

    mine = await _caller(chain, sandbox_token=b"mine-good")
    shared = await _caller(chain, sandbox_token=b"s3cret")

    assert chain.valid_until(mine) == 1000.0
    assert chain.valid_until(shared) == math.inf


async def test_an_answer_behind_a_verifier_that_asks_somebody_is_never_kept() -> None:
    chain = _chain("token-review", "static")

    assert chain.valid_until(await _caller(chain, sandbox_token=b"s3cret")) == 0.0


async def test_a_remote_verifiers_own_answer_is_kept_as_long_as_it_says() -> None:
    chain = _chain("jwt", "token-review")

    assert chain.valid_until(await _caller(chain, sandbox_token=b"k8s-one")) == 1000.0


async def test_an_answer_about_two_tokens_is_never_kept() -> None:
    caller = await _caller(
        _chain("jwt", "static"), sandbox_token=b"s3cret", subprotocol_token=b"mine-good"
    )

    assert _chain("jwt", "static").valid_until(caller) == 0.0


@pytest.mark.parametrize("modes", [("mtls", "static"), ("static", "mtls")])
async def test_an_answer_about_a_token_and_a_certificate_is_never_kept(
    modes: tuple[str, ...],
) -> None:
    caller = await _caller(_chain(*modes), sandbox_token=b"s3cret", certificate=ALICE)

    assert _chain(*modes).valid_until(caller) == 0.0


async def test_a_certificates_caller_is_kept_until_the_certificate_expires() -> None:
    chain = _chain("mtls")
    ends = CertificateIdentity("spiffe://example/alice", "uri", not_after=4102444800.0)

    assert chain.valid_until(await _caller(chain, certificate=ends)) == 4102444800.0
    assert chain.valid_until(await _caller(chain, certificate=ALICE)) == math.inf


async def test_the_anonymous_caller_stays_welcome() -> None:
    chain = _chain(anonymous=True)

    assert chain.valid_until(await _caller(chain)) == math.inf


def test_every_verifiers_change_begins_a_generation() -> None:
    fakes = [Remote(), Strict()]
    chain = AuthenticatorChain(bearer=fakes, certificate=None)
    before = chain.generation

    seen = []
    for fake in fakes:
        fake.listeners[0]()
        seen.append(chain.generation)

    assert seen == [before + 1, before + 2]


def test_a_static_token_that_is_replaced_begins_a_generation() -> None:
    static = StaticTokenAuthenticator(tokens=[b"old"])
    chain = AuthenticatorChain(bearer=[static], certificate=None)
    before = chain.generation

    static.replace([b"new"])

    assert chain.generation != before


# --- HTTP Basic ------------------------------------------------------------------------------


def _basic(password: bytes, user: bytes = b"git") -> bytes:
    return b"Basic " + base64.b64encode(user + b":" + password)


@pytest.mark.parametrize("user", [b"", b"git", b"__token__", b"caf\xc3\xa9"])
async def test_a_token_as_basic_password_counts_and_is_used_up_whatever_the_user(
    user: bytes,
) -> None:
    caller = await _caller(_chain("static"), authorization=_basic(b"s3cret", user))

    assert caller.principal.mode == "static"
    assert caller.consumed_authorization


async def test_every_mode_of_tokens_is_asked_about_a_basic_password() -> None:
    chain = _chain("static", "jwt", "token-review")

    modes = [
        (await _caller(chain, authorization=_basic(password))).principal.mode
        for password in (b"s3cret", b"mine-good", b"k8s-one")
    ]

    assert modes == ["static", "jwt", "token-review"]


@pytest.mark.parametrize("value", [b"Basic", b"Basic !", b"Basic YWJj", b"Basic YWJjOg=="])
async def test_basic_without_a_password_is_malformed(value: bytes) -> None:
    await _refusal(_chain("static"), authorization=value)


async def test_a_basic_password_that_is_too_long_is_refused_unread() -> None:
    error = await _refusal(_chain("static"), authorization=_basic(b"x" * (MAX_TOKEN_BYTES + 1)))

    assert "too long" in error.detail


async def test_basic_beside_x_sandbox_token_is_the_apps_own() -> None:
    caller = await _caller(
        _chain("static"), sandbox_token=b"s3cret", authorization=_basic(b"s3cret")
    )

    assert not caller.consumed_authorization


async def test_an_apps_password_beside_a_certificate_is_the_apps_own_and_is_shown_to_nobody() -> (
    None
):
    remote = Remote(prefix=b"")
    chain = _chain("mtls", "static", "token-review", remote=remote)

    caller = await _caller(chain, authorization=_basic(b"of-the-app"), certificate=ALICE)

    assert caller.principal.mode == "mtls"
    assert not caller.consumed_authorization
    assert remote.asked == []


async def test_a_token_of_ours_beside_a_certificate_never_reaches_the_app() -> None:
    chain = _chain("mtls", "static")

    caller = await _caller(chain, authorization=_basic(b"s3cret"), certificate=ALICE)

    assert caller.principal.mode == "mtls"
    assert caller.consumed_authorization
    assert not caller.is_sole_credential


async def test_what_has_the_form_of_our_tokens_beside_a_certificate_must_be_valid() -> None:
    await _refusal(_chain("mtls", "static"), authorization=_basic(b"aa.bb.cc"), certificate=ALICE)


async def test_with_mtls_alone_basic_is_the_apps_own() -> None:
    caller = await _caller(_chain("mtls"), authorization=_basic(b"s3cret"), certificate=ALICE)

    assert not caller.consumed_authorization


# --- the offer of Basic ----------------------------------------------------------------------


@pytest.mark.parametrize("offered", [{}, {"sandbox_token": b"bad"}, {"authorization": b"Bearer x"}])
async def test_a_refusal_offers_basic_to_clients_that_can_use_it(offered: dict[str, bytes]) -> None:
    error = await _refusal(_chain("static"), **offered)

    assert error.basic_challenge == 'Basic realm="sandbox-router", charset="UTF-8"'
    assert error.challenge.startswith("Bearer ")


async def test_nothing_that_a_page_loads_makes_a_browser_ask_for_a_password() -> None:
    page = await _refusal(_chain("static"), fetch_mode=b"navigate")
    loaded = await _refusal(_chain("static"), fetch_mode=b"cors")

    assert page.basic_challenge
    assert not loaded.basic_challenge


async def test_where_no_token_would_help_basic_is_not_offered() -> None:
    assert not (await _refusal(_chain("mtls"))).basic_challenge


# --- sessions and links ---------------------------------------------------------------------


class Sessions(Fake):
    """A verifier of session cookies: `s-good` is good."""

    mode = "session"

    def verify(self, token: bytes) -> Verdict:
        if token == b"s-good":
            return Principal("alice", self.mode)
        return Refusal(self.mode, Reason.BAD_SIGNATURE, "The signature is wrong.", is_final=False)


class Links(Sessions):
    """A verifier of links, which `mine` are."""

    mode = "link"

    def __init__(self, mine: bytes) -> None:
        super().__init__()
        self.mine = mine

    def verify(self, token: bytes) -> Verdict:
        if token == self.mine:
            return Principal("alice", self.mode)
        return Refusal(self.mode, Reason.UNKNOWN_KEY, "The key is not known.", is_final=False)


def _with_sessions(*bearer: Fake, certificate: bool = False) -> AuthenticatorChain:
    return AuthenticatorChain(
        bearer=bearer,  # type: ignore[arg-type]
        certificate=CertificateAuthenticator() if certificate else None,
        session=Sessions(),
        links=[Links(b"l-router"), Links(b"l-platform")],
    )


def _mode(answer: Authenticated | Awaitable[Authenticated]) -> str:
    assert isinstance(answer, Authenticated)
    return answer.principal.mode


def test_a_session_decides_where_there_is_no_other_credential() -> None:
    for chain in (_with_sessions(Strict()), _with_sessions()):
        answer = chain.authenticate(Credentials(session=b"s-good"))
        assert _mode(answer) == "session"
        assert isinstance(answer, Authenticated)
        assert not answer.consumed_authorization
        assert chain.valid_until(answer) == 1000.0


def test_a_session_that_is_wrong_is_refused_and_counted() -> None:
    chain = _with_sessions(Strict(), certificate=True)
    for cookie in (b"s-bad", b"", b"s" * (MAX_TOKEN_BYTES + 1)):
        with pytest.raises(Unauthenticated):
            chain.authenticate(Credentials(session=cookie, certificate=ALICE))
    assert chain.failures["session", "bad_signature"] == 2


def test_a_bearer_token_beats_the_session_also_when_it_is_wrong() -> None:
    chain = _with_sessions(Strict())
    good = Credentials(authorization=b"Bearer mine-good", session=b"s-good")
    assert _mode(chain.authenticate(good)) == "jwt"
    assert _mode(chain.authenticate(Credentials(sandbox_token=b"mine-good", session=b"s"))) == "jwt"
    for wrong in (b"Bearer mine-bad", b"Bearer other", b"nonsense"):
        with pytest.raises(Unauthenticated):
            chain.authenticate(Credentials(authorization=wrong, session=b"s-good"))


async def test_the_app_s_own_password_passes_beside_a_session() -> None:
    chain = _with_sessions(Strict())
    own = b"Basic " + base64.b64encode(b"user:the-app-s-own")
    answer = chain.authenticate(Credentials(authorization=own, session=b"s-good"))
    assert _mode(answer) == "session"
    ours = b"Basic " + base64.b64encode(b"user:mine-good")
    answer = chain.authenticate(Credentials(authorization=ours, session=b"s-good"))
    assert not isinstance(answer, Authenticated)
    assert _mode(await answer) == "jwt"


def test_on_the_way_in_nothing_but_the_link_counts() -> None:
    chain = _with_sessions(Strict())
    others = {"authorization": b"Bearer mine-good", "session": b"s-good", "certificate": ALICE}
    for link in (b"l-router", b"l-platform"):
        assert _mode(chain.authenticate(Credentials(link=link, **others))) == "link"  # type: ignore[arg-type]
    for link in (b"", b"l-other", b"s-good", b"mine-good", b"l" * (MAX_TOKEN_BYTES + 1)):
        with pytest.raises(Unauthenticated):
            chain.authenticate(Credentials(link=link, **others))  # type: ignore[arg-type]


def test_a_link_is_never_remembered() -> None:
    chain = _with_sessions(Strict())
    answer = chain.authenticate(Credentials(link=b"l-router"))
    assert isinstance(answer, Authenticated)
    assert chain.valid_until(answer) == 0.0


def test_where_there_are_no_sessions_a_link_opens_nothing() -> None:
    chain = AuthenticatorChain(bearer=[Strict()], certificate=None)
    with pytest.raises(Unauthenticated):
        chain.authenticate(Credentials(link=b"l-router", authorization=b"Bearer mine-good"))
    with pytest.raises(Unauthenticated):
        chain.authenticate(Credentials(session=b"s-good"))


def test_what_ends_sessions_ends_what_was_remembered() -> None:
    session = Sessions()
    chain = AuthenticatorChain(bearer=[], certificate=None, session=session)
    for listener in session.listeners:
        listener()
    assert chain.generation == 1


# --- whom a proxy has signed in -------------------------------------------------------------

ADA = ForwardedIdentity("ada@example.com")


def _told(*bearer: Fake, first: bool = False, certificate: bool = False) -> AuthenticatorChain:
    return AuthenticatorChain(
        bearer=bearer,  # type: ignore[arg-type]
        certificate=CertificateAuthenticator() if certificate else None,
        session=Sessions(),
        forwarded=ForwardedAuthenticator(),
        forwarded_first=first,
    )


def test_whom_a_proxy_has_signed_in_calls_and_is_asked_for_each_time() -> None:
    chain = _told()
    answer = chain.authenticate(Credentials(forwarded=ADA))
    assert isinstance(answer, Authenticated)
    assert answer.principal.subject == "ada@example.com"
    assert not answer.consumed_authorization
    assert chain.valid_until(answer) == 0.0
    assert repr(chain) == "<AuthenticatorChain forwarded>"


def test_a_bearer_token_and_a_session_come_before_it() -> None:
    chain = _told(Strict())
    token = Credentials(authorization=b"Bearer mine-good", forwarded=ADA)
    assert _mode(chain.authenticate(token)) == "jwt"
    assert _mode(chain.authenticate(Credentials(session=b"s-good", forwarded=ADA))) == "session"
    with pytest.raises(Unauthenticated):
        chain.authenticate(Credentials(session=b"s-bad", forwarded=ADA))
    with pytest.raises(Unauthenticated):
        chain.authenticate(Credentials(authorization=b"Bearer mine-bad", forwarded=ADA))


def test_of_a_certificate_and_a_proxy_s_word_the_mode_named_first_decides() -> None:
    both = Credentials(certificate=ALICE, forwarded=ADA)
    assert _mode(_told(certificate=True).authenticate(both)) == "mtls"
    assert _mode(_told(certificate=True, first=True).authenticate(both)) == "forwarded"


def test_a_certificate_is_not_remembered_where_a_proxy_s_word_would_beat_it() -> None:
    for first in (True, False):
        chain = _told(certificate=True, first=first)
        answer = chain.authenticate(Credentials(certificate=ALICE))
        assert isinstance(answer, Authenticated)
        assert (chain.valid_until(answer) == 0.0) is first


def test_a_proxy_s_word_that_is_not_clear_lets_nobody_in() -> None:
    chain = _told(certificate=True, first=True)
    with pytest.raises(Unauthenticated):
        chain.authenticate(Credentials(certificate=ALICE, forwarded=ForwardedIdentity("")))
    assert chain.failures["forwarded", "malformed"] == 1


def test_where_the_mode_is_off_the_word_counts_for_nothing() -> None:
    with pytest.raises(Unauthenticated):
        _chain("jwt").authenticate(Credentials(forwarded=ADA))
