"""Which paths are the router's own, and the link that one brings."""

from __future__ import annotations

import pytest

from router.proxy.wire.router_paths import link_in, own_path


@pytest.mark.parametrize(
    ("target", "root", "path"),
    [
        (b"/.sandbox-router/session?link=x", b"", b"session"),
        (b"/.sandbox-router/", b"", b""),
        (b"/s/ns/box/80/.sandbox-router/logout", b"/s/ns/box/80", b"logout"),
        (b"/s/ns/box/80/.sandbox-router/logout", b"", None),
        (b"/.sandbox-router", b"", None),
        (b"/.Sandbox-Router/session", b"", None),
        (b"/x/.sandbox-router/session", b"", None),
        (b"//.sandbox-router/session", b"", None),
        (b"*", b"", None),
    ],
)
def test_a_path_of_the_router_s_own_is_told(target: bytes, root: bytes, path: bytes | None) -> None:
    assert own_path(target, root) == path


@pytest.mark.parametrize(
    ("query", "link"),
    [
        (b"?link=a.b.c", b"a.b.c"),
        (b"?utm=1&link=a.b.c&x=y", b"a.b.c"),
        (b"?link=a&link=b", b""),
        (b"?Link=a", b""),
        (b"?xlink=a", b""),
        (b"?link=", b""),
        (b"?link", b""),
        (b"", b""),
        (b"?" + b"&" * 100 + b"link=a", b""),
    ],
)
def test_the_link_is_the_one_that_there_is(query: bytes, link: bytes) -> None:
    assert link_in(b"/.sandbox-router/session" + query) == link
