"""Endpoint answers small questions about one sandbox."""

from __future__ import annotations

from router.routing.endpoint import Endpoint, SandboxRef, State

REF = SandboxRef("team-a", "box")


def test_a_ref_reads_as_namespace_and_name() -> None:
    assert str(REF) == "team-a/box"


def test_a_port_is_dialled_as_asked_unless_it_is_mapped() -> None:
    plain = Endpoint(REF, "uid-1", State.READY, ("10.0.0.1",))
    mapped = Endpoint(REF, "uid-1", State.READY, ("127.0.0.1",), ports={8888: 40001})

    assert plain.dialled_port(8888) == 8888
    assert mapped.dialled_port(8888) == 40001
    assert mapped.dialled_port(80) == 80


def test_an_endpoint_answers_to_its_pods_and_its_sandboxs_uid_alone() -> None:
    endpoint = Endpoint(REF, "pod-uid", State.READY, ("10.0.0.1",), sandbox_uid="sandbox-uid")

    assert endpoint.answers_to_uid("pod-uid")
    assert endpoint.answers_to_uid("sandbox-uid")
    assert not endpoint.answers_to_uid("other")


def test_no_uid_is_never_the_right_one() -> None:
    assert not Endpoint(REF, "", State.STARTING).answers_to_uid("")


def test_endpoints_with_ports_are_hashable_and_equal_by_content() -> None:
    one = Endpoint(REF, "uid-1", State.READY, ("127.0.0.1",), ports={8888: 40001})
    same = Endpoint(REF, "uid-1", State.READY, ("127.0.0.1",), ports={8888: 40001})
    other = Endpoint(REF, "uid-1", State.READY, ("127.0.0.1",), ports={8888: 40002})

    assert len({one, same}) == 1
    assert one != other
