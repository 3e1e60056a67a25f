"""`sandbox-router explain`: what it asks an admin port, and what it makes of the answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from router.cli import main
from router.cli.explain import as_text

PASSES = {
    "target": {"namespace": "default", "name": "box", "port": 8888, "uid": ""},
    "principal": {"mode": "static", "groups": []},
    "endpoint": {"state": "ready", "addresses": ["10.0.0.1"]},
    "decision": {"decision": "allowed"},
    "outcome": {"status": None, "code": "", "detail": "It goes to the sandbox."},
}
REFUSED = {
    **PASSES,
    "endpoint": None,
    "outcome": {"status": 404, "code": "sandbox_not_found", "detail": "Sandbox not found."},
}


class Asked:
    """What the admin port was asked."""

    def __init__(self) -> None:
        self.query: dict[str, list[str]] = {}
        self.headers: dict[str, str] = {}
        self.address = ""


@contextmanager
def admin_port(answer: Any, status: int = 200) -> Iterator[Asked]:
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.query = parse_qs(urlsplit(self.path).query)
            asked.headers = {name.lower(): value for name, value in self.headers.items()}
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        asked.address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


def explain(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments], env=environment)


def test_a_request_that_would_pass_is_shown_step_by_step_with_exit_code_0() -> None:
    with admin_port(PASSES) as asked:
        result = explain("box", "--admin", asked.address)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "target     namespace=default  name=box  port=8888",
        "principal  mode=static",
        'endpoint   state=ready  addresses=["10.0.0.1"]',
        "decision   decision=allowed",
        "outcome    detail=It goes to the sandbox.",
    ]


def test_a_request_that_would_be_refused_has_exit_code_1() -> None:
    with admin_port(REFUSED) as asked:
        result = explain("box", "--admin", f"http://{asked.address}", "--output", "json")
    assert result.exit_code == 1
    assert json.loads(result.output) == REFUSED


def test_everything_that_was_said_about_the_request_is_asked(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-token\n")
    with admin_port(PASSES) as asked:
        explain(
            *("box", "--admin", asked.address, "--namespace", "team-a", "--port", "9000"),
            *("--method", "POST", "--path", "/x?y=1", "--host", "8888-box.example"),
            *("--token-file", str(tmp_path / "token")),
        )
    assert asked.query == {
        "name": ["box"],
        "namespace": ["team-a"],
        "port": ["9000"],
        "method": ["POST"],
        "path": ["/x?y=1"],
    }
    assert asked.headers["x-sandbox-token"] == "secret-token"
    assert asked.headers["host"] == "8888-box.example"


def test_the_token_may_come_from_the_environment() -> None:
    with admin_port(PASSES) as asked:
        explain("box", "--admin", asked.address, SANDBOX_TOKEN="from-outside")
    assert asked.headers["x-sandbox-token"] == "from-outside"


def test_a_refused_question_is_told_in_the_routers_own_words() -> None:
    with admin_port({"detail": "Unknown parameter."}, status=400) as asked:
        result = explain("box", "--admin", asked.address)
    assert result.exit_code == 2
    assert "Unknown parameter." in result.output


@pytest.mark.parametrize(
    ("admin", "says"),
    [("127.0.0.1:1", "no answer from the router's admin port"), ("ftp://x", "is no http address")],
)
def test_an_admin_port_that_can_not_be_asked_has_exit_code_2(admin: str, says: str) -> None:
    result = explain("box", "--admin", admin)
    assert result.exit_code == 2
    assert says in result.output


def test_another_server_is_not_taken_for_a_router() -> None:
    with admin_port(b"<html>") as asked:
        result = explain("box", "--admin", asked.address)
    assert result.exit_code == 2
    assert "is not a router's admin port" in result.output


def test_steps_that_were_not_reached_are_a_dash() -> None:
    assert as_text({"outcome": {"status": 400}}).splitlines()[:2] == [
        "target     -",
        "principal  -",
    ]


# --- what keeps a sandbox awake -------------------------------------------------------------

ACTIVITY = {
    "now": "2026-12-01T12:00:00Z",
    "started": "2026-12-01T08:00:00Z",
    "complete": True,
    "incomplete_because": "",
    "complete_since": "2026-12-01T08:00:00Z",
    "sandboxes": [],
}


@pytest.mark.parametrize(("complete", "exit_code"), [(True, 0), (False, 1)])
def test_what_keeps_a_sandbox_awake_is_asked_of_the_admin_port(
    complete: bool, exit_code: int
) -> None:
    with admin_port(ACTIVITY | {"complete": complete}) as asked:
        result = explain("--awake", "team-a/box", "--admin", asked.address)
        as_json = explain("--awake", "team-a/box", "--admin", asked.address, "--output", "json")
    assert asked.query == {"namespace": ["team-a"], "name": ["box"]}
    assert result.output.startswith("team-a/box  no activity since 2026-12-01T08:00:00Z")
    assert json.loads(as_json.output) == ACTIVITY | {"complete": complete}
    assert (result.exit_code, as_json.exit_code) == (exit_code, exit_code)


@pytest.mark.parametrize("named", ["box", "a/", "/b", "a/b/c"])
def test_a_sandbox_that_is_kept_awake_is_named_with_its_namespace(named: str) -> None:
    result = explain("--awake", named)
    assert result.exit_code == 2
    assert "NAMESPACE/NAME" in result.output


@pytest.mark.parametrize("answer", [{"outcome": {}}, {**ACTIVITY, "now": "noon"}, []])
def test_an_answer_that_is_no_activity_is_no_answer(answer: Any) -> None:
    with admin_port(answer) as asked:
        result = explain("--awake", "team-a/box", "--admin", asked.address)
    assert result.exit_code == 2
    assert "sandbox-router" in result.output or "Error" in result.output
