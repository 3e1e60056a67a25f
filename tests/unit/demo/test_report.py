"""What the demo prints."""

from router.demo import report
from router.demo.child import StepFailed
from router.demo.stage import Place
from router.demo.tour import Row

PLACE = Place(8080, 9090, "the-token")


def test_the_table_lines_its_columns_up():
    rows = [
        Row("GET /", "hello", 200, "Hello", is_right=True, took_s=0.0034),
        Row("WebSocket /ws", "echo", 0, "nothing", is_right=False, took_s=10),
    ]
    assert report.table(rows).splitlines() == [
        "  request        sandbox  status  what came back  took",
        "  -------------  -------  ------  --------------  --------",
        "  GET /          hello    200     Hello           3 ms      ok",
        "  WebSocket /ws  echo     -       nothing         10000 ms  WRONG",
    ]


def test_every_command_uses_the_token_it_set_first_and_this_python():
    commands = report.commands(PLACE, python=".venv/bin/python")
    assert commands[0].line == "TOKEN=the-token"
    assert all("the-token" not in command.line for command in commands[1:])
    assert (
        '.venv/bin/python -m router.demo.say ws://127.0.0.1:8080/sandboxes/default/echo/8888/ws "$TOKEN"'
        in commands[4].line
    )


def test_hints_are_lines_to_paste_with_what_they_show_above():
    command = report.Command("a sandbox", "curl -sS x")
    text = report.hints([command], page_url="http://x/?link=1", again="mint it")
    assert "  # a sandbox\n  curl -sS x\n" in text
    assert "\n  http://x/?link=1\n" in text
    assert text.endswith("\n  mint it")


def test_the_commands_of_the_sleeper_use_both_tokens_and_its_switch():
    commands = report.sleep_commands(
        PLACE, sleeping="echo", switch="/a folder/switch", guest="guest-token"
    )
    assert commands[0].line == "TOKEN=the-token"
    lines = [command.line for command in commands[1:]]
    assert sum("Bearer guest-token" in line for line in lines) == 1
    assert "curl -sS -X POST --unix-socket '/a folder/switch' http://demo/suspend" in lines
    text = report.sleep_hints(commands, page_url="http://x/?link=1", again="mint it")
    assert "  # a call wakes it: 200, once it is there\n  curl " in text
    assert "wake the one that sleeps:\n\n  http://x/?link=1\n" in text


def test_a_failure_says_the_step_the_reason_and_the_last_lines():
    error = StepFailed("start the router", "it ended with 1", lines=["first", "last"])
    assert report.failure(error).splitlines() == [
        "FAILED to start the router: it ended with 1",
        "Its last lines:",
        "  | first",
        "  | last",
    ]


def test_a_failure_without_lines_says_no_more():
    assert report.failure(StepFailed("start it", "why")) == "FAILED to start it: why"
