"""Which header crosses, in which direction: pure tables, decided by name alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final


class Kind:
    """What the router does with a header; 0 means that it crosses untouched.

    Plain integers: an Enum's hash is a Python call, and this is asked for every header line.
    """

    FORWARD: Final = 0
    DROP: Final = 1
    """Hop-by-hop, or the router's own business: never crosses."""
    CONNECTION: Final = 2
    TE: Final = 3
    UPGRADE: Final = 4
    TRANSFER_ENCODING: Final = 5
    CONTENT_LENGTH: Final = 6
    # requests
    HOST: Final = 7
    EXPECT: Final = 8
    AUTHORIZATION: Final = 9
    SANDBOX_TOKEN: Final = 10
    SANDBOX_ID: Final = 11
    SANDBOX_NAMESPACE: Final = 12
    SANDBOX_PORT: Final = 13
    SANDBOX_UID: Final = 14
    SANDBOX_POD_IP: Final = 15
    SANDBOX_TIMEOUT: Final = 16
    FORWARDED_FOR: Final = 17
    FORWARDED_HOST: Final = 18
    FORWARDED_PROTO: Final = 19
    CLIENT_CERT: Final = 20
    ORIGIN: Final = 21
    WEBSOCKET_PROTOCOL: Final = 22
    TRACEPARENT: Final = 23
    CLAIM: Final = 24
    """Says who the client is or how it came: believed of trusted proxies alone."""
    FORWARDED_PREFIX: Final = 25
    COOKIE: Final = 26
    TRACESTATE: Final = 27
    CONTENT_TYPE: Final = 28
    # responses: what these say depends on how the client named the sandbox
    LOCATION: Final = 29
    REFRESH: Final = 30
    SET_COOKIE: Final = 31
    SET_COOKIE2: Final = 32
    CACHING: Final = 33
    WORKER_SCOPE: Final = 34
    CLEAR_SITE_DATA: Final = 35
    TRANSPORT_SECURITY: Final = 36
    REPORTING: Final = 37
    ALT_SVC: Final = 38
    ORIGIN_WIDE: Final = 39
    """Works on a whole origin, and on no other."""
    COUNT: Final = 40
    """How many kinds there are; tables by kind are this long."""


_HOP_BY_HOP = {
    b"connection": Kind.CONNECTION,
    b"te": Kind.TE,
    b"upgrade": Kind.UPGRADE,
    b"transfer-encoding": Kind.TRANSFER_ENCODING,
    b"content-length": Kind.CONTENT_LENGTH,
    b"keep-alive": Kind.DROP,
    b"proxy-connection": Kind.DROP,
    b"proxy-authorization": Kind.DROP,
    b"proxy-authenticate": Kind.DROP,
    b"proxy-authentication-info": Kind.DROP,
}

# Names that the sandbox or the router takes at their word: nobody outside may write them.
_VOUCHED_FOR = {
    b"forwarded": Kind.DROP,
    b"x-forwarded-for": Kind.FORWARDED_FOR,
    b"x-forwarded-host": Kind.FORWARDED_HOST,
    b"x-forwarded-proto": Kind.FORWARDED_PROTO,
    b"x-forwarded-client-cert": Kind.CLIENT_CERT,
    b"client-cert": Kind.DROP,
    b"client-cert-chain": Kind.DROP,
    b"x-sandbox-id": Kind.SANDBOX_ID,
    b"x-sandbox-namespace": Kind.SANDBOX_NAMESPACE,
    b"x-sandbox-port": Kind.SANDBOX_PORT,
    b"x-sandbox-uid": Kind.SANDBOX_UID,
    b"x-sandbox-pod-ip": Kind.SANDBOX_POD_IP,
    b"x-sandbox-timeout": Kind.SANDBOX_TIMEOUT,
    b"x-sandbox-token": Kind.SANDBOX_TOKEN,
    b"x-sandbox-router-error": Kind.DROP,
    b"x-sandbox-upstream": Kind.DROP,
    b"proxy": Kind.DROP,  # a CGI script would read it as HTTP_PROXY
    b"x-forwarded-prefix": Kind.FORWARDED_PREFIX,
    **dict.fromkeys(
        (
            # who the client is
            b"x-forwarded",
            b"x-real-ip",
            b"x-client-ip",
            b"x-cluster-client-ip",
            b"x-originating-ip",
            b"x-remote-addr",
            b"x-remote-ip",
            b"x-proxyuser-ip",
            b"true-client-ip",
            b"cf-connecting-ip",
            b"cf-connecting-ipv6",
            b"cf-ipcountry",
            b"cf-pseudo-ipv4",
            b"cf-visitor",
            b"do-connecting-ip",
            b"fastly-client-ip",
            b"fly-client-ip",
            b"x-appengine-user-ip",
            b"x-azure-clientip",
            b"x-azure-socketip",
            b"x-nf-client-connection-ip",
            # what it asked for, and how it came
            b"x-host",
            b"x-rewrite-url",
            b"x-scheme",
            b"x-url-scheme",
            b"front-end-https",
            b"x-arr-ssl",
            # whom a front has signed in
            b"remote-user",
            b"remote-groups",
            b"remote-name",
            b"remote-email",
            b"x-remote-user",
            b"x-remote-group",
            b"x-remote-groups",
            b"x-remote-email",
            b"x-authenticated-user",
            b"x-webauth-user",
            b"x-client-cert",
            b"x-arr-clientcert",
            b"ssl-client-cert",
            b"ssl-client-verify",
        ),
        Kind.CLAIM,
    ),
}

CLAIM_PREFIXES: Final = (
    b"x-forwarded-",
    b"x-original-",
    b"x-auth-request-",
    b"x-envoy-",
    b"x-ssl-",
    b"x-remote-extra-",
    b"x-amzn-oidc-",
    b"x-authentik-",
    b"x-goog-authenticated-user-",
    b"x-goog-iap-",
    b"x-ms-client-principal",
    b"cf-access-",
)
"""How the rest of that family begins; every such name is a CLAIM unless it has a kind of its own."""

_REQUEST = {
    **_HOP_BY_HOP,
    **_VOUCHED_FOR,
    b"host": Kind.HOST,
    b"expect": Kind.EXPECT,
    b"authorization": Kind.AUTHORIZATION,
    b"http2-settings": Kind.DROP,
    b"origin": Kind.ORIGIN,
    b"sec-websocket-protocol": Kind.WEBSOCKET_PROTOCOL,
    b"traceparent": Kind.TRACEPARENT,
    b"cookie": Kind.COOKIE,
    b"tracestate": Kind.TRACESTATE,
    b"content-type": Kind.CONTENT_TYPE,
}

_RESPONSE = {
    **_HOP_BY_HOP,
    b"te": Kind.FORWARD,
    b"x-sandbox-router-error": Kind.DROP,
    b"location": Kind.LOCATION,
    b"content-location": Kind.LOCATION,
    b"refresh": Kind.REFRESH,
    b"set-cookie": Kind.SET_COOKIE,
    b"set-cookie2": Kind.SET_COOKIE2,
    b"cache-control": Kind.CACHING,
    b"expires": Kind.CACHING,
    b"etag": Kind.CACHING,
    b"last-modified": Kind.CACHING,
    b"service-worker-allowed": Kind.WORKER_SCOPE,
    b"clear-site-data": Kind.CLEAR_SITE_DATA,
    b"strict-transport-security": Kind.TRANSPORT_SECURITY,
    b"public-key-pins": Kind.TRANSPORT_SECURITY,
    b"public-key-pins-report-only": Kind.TRANSPORT_SECURITY,
    b"nel": Kind.REPORTING,
    b"report-to": Kind.REPORTING,
    b"reporting-endpoints": Kind.ORIGIN_WIDE,
    b"alt-svc": Kind.ALT_SVC,
    # Orders to a front, as those below: to take this router out of its balancing, or to report its load.
    b"x-envoy-immediate-health-check-fail": Kind.DROP,
    b"x-envoy-degraded": Kind.DROP,
    b"x-envoy-overloaded": Kind.DROP,
    b"x-envoy-ratelimited": Kind.DROP,
    b"endpoint-load-metrics": Kind.DROP,
    b"endpoint-load-metrics-bin": Kind.DROP,
    b"x-archive-files": Kind.DROP,
}

ORDER_PREFIXES: Final = (
    b"x-accel-",
    b"x-sendfile",
    b"x-lighttpd-send",
    b"x-reproxy-",
    b"x-litespeed-",
)
"""How the names of orders to a front begin: to answer with a file of its own, say. No sandbox gives such."""

# A server may read `_` as `-` (CGI, WSGI), so these spellings would pass for the real ones.
_LOOKALIKES = frozenset(
    name for name in _REQUEST if name in _VOUCHED_FOR or name in _HOP_BY_HOP
) | {
    b"host",
    b"authorization",
}

_PROTECTED = frozenset(
    {
        *_REQUEST,
        *_RESPONSE,
        b"access-control-allow-credentials",
        b"access-control-allow-origin",
        b"cache-control",
        b"content-encoding",
        b"content-security-policy",
        b"content-type",
        b"cookie",
        b"expires",
        b"range",
        b"referer",
        b"referrer-policy",
        b"strict-transport-security",
        b"tracestate",
        b"vary",
        b"via",
        b"www-authenticate",
        b"x-content-type-options",
        b"x-frame-options",
    }
)
_PROTECTED_PREFIXES = (
    b"sec-",
    b"cross-origin-",
    b"x-csrf",
    b"x-xsrf",
    b"x-sandbox-",
    *CLAIM_PREFIXES,
)

# RFC 9110 §6.5.1: what controls framing, routing, authentication or content handling is no trailer.
_NOT_IN_TRAILERS = frozenset(
    {
        *(_REQUEST.keys() | _RESPONSE.keys()) - {b"etag", b"last-modified"},
        b"age",
        b"cache-control",
        b"content-encoding",
        b"content-range",
        b"content-type",
        b"cookie",
        b"date",
        b"expires",
        b"max-forwards",
        b"pragma",
        b"range",
        b"retry-after",
        b"trailer",
        b"vary",
        b"www-authenticate",
    }
)

# Spellings seen so far. Bounded: a client that invents names can't make it grow.
_MEMO_LIMIT = 4096
_MEMO_NAME_BYTES = 64


class KindTable(dict[bytes, int]):
    """A header's Kind by its exact spelling; a missing spelling is classified and, while there is room, remembered."""

    def __init__(
        self,
        kinds: dict[bytes, int],
        *,
        lookalikes: frozenset[bytes],
        prefixes: tuple[bytes, ...] = (),
        prefix_kind: int = Kind.FORWARD,
    ) -> None:
        """Names in `kinds` have those; others that begin like one of `prefixes` have `prefix_kind`."""
        super().__init__()
        self._kinds = kinds
        self._lookalikes = lookalikes
        self._prefixes = prefixes
        self._prefix_kind = prefix_kind

    @property
    def names(self) -> Iterable[bytes]:
        """The names with a rule of their own, lower case."""
        return self._kinds.keys()

    def __missing__(self, name: bytes) -> int:
        kind = self._classify(name.lower())
        if len(self) < _MEMO_LIMIT and len(name) <= _MEMO_NAME_BYTES:
            self[name] = kind
        return kind

    def _classify(self, lower: bytes) -> int:
        kind = self._kinds.get(lower)
        if kind is not None:
            return kind
        if b"_" in lower:
            # Of trusted proxies too: one that takes the real name out of what clients send may let this pass.
            spelt = lower.replace(b"_", b"-")
            if spelt in self._lookalikes or spelt.startswith(self._prefixes):
                return Kind.DROP
        return self._prefix_kind if lower.startswith(self._prefixes) else Kind.FORWARD


REQUEST_KINDS = KindTable(
    _REQUEST, lookalikes=_LOOKALIKES, prefixes=CLAIM_PREFIXES, prefix_kind=Kind.CLAIM
)
RESPONSE_KINDS = KindTable(
    _RESPONSE,
    lookalikes=frozenset({b"x-sandbox-router-error"}),
    prefixes=ORDER_PREFIXES,
    prefix_kind=Kind.DROP,
)


def nominated(tokens: Iterable[bytes]) -> frozenset[bytes]:
    """Returns the names of a Connection header (lower case) that it may really remove (RFC 9110 §7.6.1)."""
    return frozenset(
        token
        for token in tokens
        if token not in _PROTECTED and not token.startswith(_PROTECTED_PREFIXES)
    )


def may_be_trailer(name: bytes) -> bool:
    """Returns True when a field of this name may cross as a trailer."""
    lower = name.lower().replace(b"_", b"-")
    return lower not in _NOT_IN_TRAILERS and not lower.startswith(
        _PROTECTED_PREFIXES + ORDER_PREFIXES
    )
