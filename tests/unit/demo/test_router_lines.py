"""What the router logs: kept, found, shown."""

import asyncio

from router.demo.router_lines import RouterLines


def test_lines_are_kept_until_they_are_shown_and_told_as_they_come_from_then_on():
    told: list[str] = []
    lines = RouterLines(told.append)
    lines.take("one")
    assert (told, repr(lines)) == ([], "<RouterLines kept=1>")
    lines.show()
    lines.take("two")
    assert told == ["one", "two"]
    lines.hide()
    lines.take("three")
    assert told == ["one", "two"]


async def test_a_line_is_found_whether_it_was_there_or_comes():
    lines = RouterLines(print)
    lines.take("a request came")
    assert await lines.line_with("request") == "a request came"
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(lines.line_with("woke"))
        await asyncio.sleep(0)
        lines.take("something else")
        await asyncio.sleep(0)
        assert not waiting.done()
        lines.take("a request woke a sandbox")
    assert waiting.result() == "a request woke a sandbox"
