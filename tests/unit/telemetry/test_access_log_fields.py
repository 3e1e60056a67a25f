import io
import json
from pathlib import Path

from router.telemetry.access_log import AccessLog
from router.telemetry.access_log_fields import FIELDS, markdown_table

PAGE = Path(__file__).parents[3] / "docs" / "access-log.md"

TYPES = {
    "string": (str,),
    "number": (int, float),
    "number or null": (int, float, type(None)),
    "boolean": (bool,),
}


async def fields_of(outcome):
    log = AccessLog(sink=io.BytesIO())
    try:
        return json.loads(log.line(outcome))
    finally:
        await log.close()


def test_the_page_has_the_table_that_is_generated():
    assert PAGE.read_text("utf-8").endswith("\n\n" + markdown_table())


async def test_a_line_that_says_everything_has_exactly_these_fields_in_this_order(make_outcome):
    found = await fields_of(
        make_outcome(
            woke=True, authz="public", token_id="t-1", key_id="k-1", error_reason="errno 111"
        )
    )

    assert list(found) == [field.name for field in FIELDS]


async def test_a_plain_line_leaves_out_just_the_optional_ones(make_outcome):
    found = await fields_of(make_outcome())

    assert list(found) == [field.name for field in FIELDS if not field.is_optional]


async def test_every_value_has_the_type_that_is_documented(make_outcome):
    plain = await fields_of(make_outcome())
    full = await fields_of(
        make_outcome(
            wait_s=0.25,
            connect_s=1.0,
            first_byte_s=0.125,
            error_reason="errno",
            woke=True,
            authz="public",
            token_id="t-1",
            key_id="k-1",
        )
    )

    wrong = {
        field.name: line[field.name]
        for line in (plain, full)
        for field in FIELDS
        if field.name in line and not isinstance(line[field.name], TYPES[field.kind])
    }
    assert wrong == {}
