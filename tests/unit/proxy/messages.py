"""Parts of HTTP messages as Hypothesis makes them."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

TOKEN_BYTES = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

# What means something to the router, apart from what frames a body or may come once only.
DECIDED_NAMES = (
    b"Connection",
    b"TE",
    b"Upgrade",
    b"Keep-Alive",
    b"Proxy-Connection",
    b"Forwarded",
    b"X-Forwarded-For",
    b"X-Forwarded-Proto",
    b"X_Forwarded_Host",
    b"x-forwarded-client-cert",
    b"Sec-WebSocket-Protocol",
    b"Origin",
    b"Expect",
    b"traceparent",
    b"Proxy-Authorization",
)

_ONCE = (
    b"host",
    b"authorization",
    b"content-length",
    b"transfer-encoding",
)


def _is_free(name: bytes) -> bool:
    return name.lower() not in _ONCE and not name.lower().startswith(b"x-sandbox-")


field_names = st.one_of(
    st.sampled_from(DECIDED_NAMES),
    st.sampled_from((b"Accept", b"Cookie", b"User-Agent", b"X-Hop", b"Set-Cookie")),
    st.lists(st.sampled_from(TOKEN_BYTES), min_size=1, max_size=12).map(bytes).filter(_is_free),
)
"""Header names, some of which the router decides about; none that frames a body, routes or authenticates."""

_VISIBLE = [*range(0x21, 0x7F), *range(0x80, 0x100)]

field_values = st.one_of(
    st.just(b""),
    st.tuples(
        st.sampled_from(_VISIBLE),
        st.lists(st.sampled_from([0x20, 0x09, *_VISIBLE]), max_size=20),
        st.sampled_from(_VISIBLE),
    ).map(lambda parts: bytes((parts[0], *parts[1], parts[2]))),
)
"""Any legal field value (RFC 9110 §5.5), obs-text included, without white space around it."""

white_space = st.sampled_from([b"", b" ", b"\t", b"  \t "])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Returns the data in pieces, none of them empty."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


cuts = st.lists(st.integers(0, 1 << 30), max_size=20)
"""Where to cut, for cut()."""
