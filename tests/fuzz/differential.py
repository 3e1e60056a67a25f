"""One head, read and sent on by the reference and by the compiled scanner: both must agree, or the scanner must have passed."""

import ast
import ipaddress
from typing import Any

from router.code_form import PACKAGE
from router.errors import RouterError
from router.proxy.wire.forwarding import crossing_request_head
from router.proxy.wire.head_lines import HeadLines
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import (
    RequestHead,
    read_request,
    resolve_target_form,
)
from router.proxy.wire.response_head import ResponseHead, read_response
from router.proxy.wire.rewriting import ResponseScope, crossing_response_head
from router.proxy.wire.stripping import Stripped
from router.proxy.wire.trace_context import TraceHeaders
from router.routing.target import NamedBy
from tests.fuzz.scanners import Scanners

NOT_COMPARED = {"kind_table", "scan", "_lines", "_special", "is_plain"}
ABSENT = object()
SCOPES = [
    ResponseScope(
        named_by=named_by,
        root=root,
        url_root=root,
        request_path=b"/a/b",
        own_authorities=(b"box:80",),
    )
    for named_by, root in (
        (NamedBy.HEADER, b""),
        (NamedBy.HOST, b""),
        (NamedBy.PATH, b"/s/ns/box/80"),
    )
]

STRIPPED = Stripped.of(["x-auth-request-*", "user-agent"], ["sid", "_oauth*"])
PEERS = [
    Peer("203.0.113.9", is_tls=False, trusted=()),
    Peer("10.0.0.9", is_tls=True, trusted=(ipaddress.IPv4Network("10.0.0.0/8"),)),
]
TRACEPARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def declared(module: str, name: str) -> set[str]:
    """Returns the attributes that a class of proxy/wire declares, from its source: a compiled class doesn't tell."""
    source = (PACKAGE / "proxy" / "wire" / f"{module}.py").read_text("utf-8")
    (found,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    return {ast.unparse(node.target) for node in found.body if isinstance(node, ast.AnnAssign)}


SHARED_FIELDS = declared("head_lines", "HeadLines") - NOT_COMPARED
REQUEST_FIELDS = SHARED_FIELDS | declared("request_head", "RequestHead") - NOT_COMPARED
RESPONSE_FIELDS = SHARED_FIELDS | declared("response_head", "ResponseHead") - NOT_COMPARED


class Differ(AssertionError):
    """The scanner took a head and made something else of it."""


def check(what: str, block: bytes, scanned: Any, reference: Any) -> None:
    if scanned != reference or type(scanned) is not type(reference):
        raise Differ(f"{what} of {block!r}:\n scanner   {scanned!r}\n reference {reference!r}")


def fields(head: HeadLines, names: set[str]) -> dict[str, Any]:
    return {name: getattr(head, name, ABSENT) for name in sorted(names)}


def compare_request(
    scanners: Scanners, block: bytes, previous: RequestHead | None = None
) -> RequestHead | None:
    """Returns the scanned head, None where the scanner left it to Python. Raises Differ."""
    scanned, reference = RequestHead(), RequestHead()
    scanned.block = reference.block = block
    if not scanners.requests.read(scanned, block, previous):
        untouched = fields(reference, REQUEST_FIELDS)
        check("what it left behind", block, fields(scanned, REQUEST_FIELDS), untouched)
        return None
    try:
        read_request(reference, block)
    except RouterError as error:
        raise Differ(f"the scanner takes {block!r}, the reference says {error!r}") from error
    check("fields", block, fields(scanned, REQUEST_FIELDS), fields(reference, REQUEST_FIELDS))
    check("special lines", block, scanned.special, reference.special)
    resolve_target_form(reference)
    check("target", block, scanned.target, reference.target)
    for peer in PEERS:
        for is_traced in (False, True):
            for policy, authorization, stripped in (
                ("rewrite", False, None),
                ("keep", True, STRIPPED),
                ("drop", True, None),
            ):
                for target in (reference.target, b"/elsewhere?x"):
                    sent = []
                    for head in (scanned, reference):
                        head.changes, head.added = None, b""
                        if is_traced:
                            TraceHeaders(head).send(TRACEPARENT)
                        sent.append(
                            crossing_request_head(
                                head,
                                target=target,
                                host=b"10.1.1.1:80",
                                peer=peer,
                                keep_authorization=authorization,
                                origin_policy=policy,
                                path_root=b"" if target == reference.target else b"/s/ns/box/80",
                                stripped=stripped,
                            )
                        )
                    check("head that crosses", block, *sent)
    return scanned


def compare_response(scanners: Scanners, block: bytes) -> ResponseHead | None:
    """Returns the scanned head, None where the scanner left it to Python. Raises Differ."""
    scanned, reference = ResponseHead(), ResponseHead()
    scanned.block = reference.block = block
    if not scanners.responses.read(scanned, block):
        untouched = fields(reference, RESPONSE_FIELDS)
        check("what it left behind", block, fields(scanned, RESPONSE_FIELDS), untouched)
        return None
    try:
        read_response(reference, block)
    except RouterError as error:
        raise Differ(f"the scanner takes {block!r}, the reference says {error!r}") from error
    check("fields", block, fields(scanned, RESPONSE_FIELDS), fields(reference, RESPONSE_FIELDS))
    check("special lines", block, scanned.special, reference.special)
    scanned.is_plain = reference.is_plain = False
    for scope in (None, SCOPES[len(block) % len(SCOPES)]):
        for add_chunked in (False, True):
            for drop_chunked in (False, True):
                for connection in (b"", b"close"):
                    check(
                        "head that crosses",
                        block,
                        *(
                            crossing_response_head(
                                head,
                                add_chunked=add_chunked,
                                drop_chunked=drop_chunked,
                                connection=connection,
                                scope=scope,
                            )
                            for head in (scanned, reference)
                        ),
                    )
    return scanned
