"""The types of settings: how each is read from text, and written so that it reads back the same.

Every source speaks text (YAML scalars are taken as they were written), so that `off`, `010` or `1_000` mean the same
in a flag, in the environment and in a file, and Python's generous int() and float() decide nothing.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Raw = str | tuple[str, ...]
"""What a source gives: text, or the items of a YAML list."""

Shown = str | int | bool | list[str]
"""A value as a configuration file would state it."""

OFF_WORDS = frozenset({"off", "false", "no"})
"""`false` too: templating tools (Helm among them) rewrite a YAML `off` so."""

BLANKS = " \t\r\n"
SHORTEST_DURATION_S = 0.001
LONGEST_DURATION_S = 10 * 365 * 24 * 3600
LARGEST_INTEGER = 2**53
DIGITS = re.compile(r"[0-9]{1,16}")
DURATION = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,20})?)(ms|s|m|h)?")
UNIT_S = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    None: Decimal(1),
}
BYTES = re.compile(r"([0-9]{1,16})(KiB|MiB|GiB)?")
UNIT_BYTES = {None: 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class BadValueError(ValueError):
    """A value that can't be used: what is wrong with it, and what would be right instead."""

    def __init__(self, wrong: str, right: str) -> None:
        self.wrong = wrong
        self.right = right
        super().__init__(f"{wrong}; {right}")


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of setting. `parse` takes trimmed text (of one item, if `is_list`) and raises BadValueError.

    `bare` is what a flag without a value means, None where it must have one.
    """

    name: str
    metavar: str
    parse: Callable[[str], Any]
    show: Callable[[Any], Shown] = str
    is_list: bool = False
    bare: str | None = None

    def read(self, raw: Raw) -> Any:
        """Returns the typed value; a tuple without repetitions for a list. Raises BadValueError."""
        if not self.is_list:
            if not isinstance(raw, str):
                raise BadValueError("is a list", "write one value")
            return self.parse(raw.strip(BLANKS))
        items = raw.split(",") if isinstance(raw, str) else raw
        if isinstance(raw, str) and not raw.strip(BLANKS):
            return ()
        return tuple(dict.fromkeys(self._item(item.strip(BLANKS)) for item in items))

    def _item(self, text: str) -> Any:
        if not text:
            raise BadValueError("has an empty item", "remove the extra comma or the empty entry")
        return self.parse(text)


def in_words(shown: Shown) -> str:
    """Returns a value as a message names it."""
    if isinstance(shown, list):
        return ",".join(shown) or "(empty)"
    return str(shown).lower() if isinstance(shown, bool) else str(shown)


def nearest(word: str, choices: Iterable[str], *, cutoff: float = 0.75) -> str | None:
    """Returns the choice that `word` is most likely a slip of, None when nothing is near."""
    word = word.lower().replace("_", "-")
    found = difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)
    return found[0] if found else None


# --- numbers --------------------------------------------------------------------------------


def duration(
    *, zero: bool = True, off_s: float = 0.0, longest_s: float = LONGEST_DURATION_S
) -> Kind:
    """Seconds as a float. With `zero`, 0 and `off` are allowed and the table says what they mean.

    `off` is `off_s`: 0, or infinity where no time at all and no end at all are two things. Anything else below a
    millisecond is refused, so that a slip of the pen never rounds to "no limit".
    """

    def parse(text: str) -> float:
        if zero and text.lower() in OFF_WORDS:
            return off_s
        match = DURATION.fullmatch(text)
        if match is None:
            raise BadValueError("is not a duration", "write 180s, 5m, 1h, 250ms or plain seconds")
        seconds = float(Decimal(match[1]) * UNIT_S[match[2]])
        if seconds < SHORTEST_DURATION_S and not (zero and seconds == 0):
            raise BadValueError("is too short", "write at least 1ms" + (", or 0" if zero else ""))
        if seconds > longest_s:
            raise BadValueError("is too long", f"write at most {show_duration(longest_s)}")
        return seconds

    return Kind("duration", "DURATION", parse, show_duration)


def show_duration(seconds: float) -> str:
    """Returns the shortest usual form that parses back to exactly `seconds`; `off` for no end."""
    if seconds == math.inf:
        return "off"
    if seconds and seconds % 3600 == 0:
        return f"{int(seconds // 3600)}h"
    if seconds >= 1 or seconds == 0:
        return f"{_plain(seconds)}s"
    milliseconds = _plain(float(Decimal(repr(seconds)) * 1000))
    exact = float(Decimal(milliseconds) * UNIT_S["ms"]) == seconds
    return f"{milliseconds}ms" if exact and "." not in milliseconds else f"{_plain(seconds)}s"


def _plain(number: float) -> str:
    """Returns a float without an exponent and without a needless `.0`."""
    text = f"{Decimal(repr(number)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def integer(*, least: int = 0, most: int = LARGEST_INTEGER, zero_is_off: bool = False) -> Kind:
    """A whole number in plain decimal digits."""

    def parse(text: str) -> int:
        if zero_is_off and text.lower() in OFF_WORDS:
            return 0
        if not DIGITS.fullmatch(text):
            raise BadValueError("is not a whole number", "write plain decimal digits")
        return within(int(text), least, most)

    return Kind("number", "NUMBER", parse, int)


def within(number: int, least: int, most: int) -> int:
    if number < least:
        raise BadValueError("is too small", f"write at least {least}")
    if number > most:
        raise BadValueError("is too large", f"write at most {most}")
    return number


def byte_size(*, least: int, most: int = LARGEST_INTEGER, zero_is_off: bool = False) -> Kind:
    """Bytes, as a plain number or with KiB, MiB or GiB."""

    def parse(text: str) -> int:
        if zero_is_off and text.lower() in OFF_WORDS:
            return 0
        match = BYTES.fullmatch(text)
        if match is None:
            raise BadValueError("is not a size in bytes", "write 65536, 64KiB, 1MiB or 1GiB")
        return within(int(match[1]) * UNIT_BYTES[match[2]], least, most)

    return Kind("bytes", "BYTES", parse, int)


def byte_size_or_auto(*, least: int) -> Kind:
    """Bytes, or None for `auto`."""
    size = byte_size(least=least)

    def parse(text: str) -> int | None:
        return None if text.lower() == "auto" else int(size.parse(text))

    return Kind("bytes, `auto`", "BYTES|auto", parse, lambda value: value or "auto")


def worker_count(*, most: int) -> Kind:
    """A number of processes, or None for `auto`."""
    number = integer(least=1, most=most)

    def parse(text: str) -> int | None:
        return None if text.lower() == "auto" else int(number.parse(text))

    return Kind("number, `auto`", "NUMBER|auto", parse, lambda value: value or "auto")


# --- words ----------------------------------------------------------------------------------

TRUTH = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(
    ("false", "0", "no", "off"), False
)


def boolean() -> Kind:
    """True or False, in the words that YAML and shells use."""

    def parse(text: str) -> bool:
        try:
            return TRUTH[text.lower()]
        except KeyError:
            raise BadValueError("is neither true nor false", "write true or false") from None

    return Kind("`true`, `false`", "true|false", parse, bool, bare="true")


def truth_or_auto() -> Kind:
    """True, False, or None for `auto`."""
    truth = boolean()

    def parse(text: str) -> bool | None:
        if text.lower() == "auto":
            return None
        try:
            return bool(truth.parse(text))
        except BadValueError:
            raise BadValueError(
                "is neither auto, true nor false", "write auto, true or false"
            ) from None

    return Kind(
        "`auto`, `true`, `false`",
        "auto|true|false",
        parse,
        lambda value: "auto" if value is None else value,
    )


def choice(*words: str) -> Kind:
    """One of a closed set of words."""

    def parse(text: str) -> str:
        word = text.lower()
        if "off" in words and word in OFF_WORDS:
            return "off"
        if word not in words:
            raise _not_among(text, words)
        return word

    return Kind(", ".join(f"`{word}`" for word in words), "|".join(words), parse)


def _not_among(text: str, words: tuple[str, ...]) -> BadValueError:
    near = nearest(text, words)
    wrong = "is unknown" if near is None else f"is unknown (did you mean {near}?)"
    return BadValueError(wrong, f"write {', '.join(words[:-1])} or {words[-1]}")


def choices(*words: str) -> Kind:
    """Several of a closed set of words."""
    one = choice(*words)
    return Kind(f"list of {one.name}", f"{one.metavar},...", one.parse, list, is_list=True)


def text(*, metavar: str) -> Kind:
    """Any printable text; None when empty."""
    return Kind("text", metavar, lambda value: printable(value) or None, lambda value: value or "")


def texts(*, metavar: str) -> Kind:
    """Several printable texts."""
    return Kind("list", f"{metavar},...", printable, list, is_list=True)


def printable(value: str) -> str:
    if not value.isprintable():
        raise BadValueError("has control characters", "write printable characters only")
    return value


NAME_PATTERN = re.compile(r"[!#$%&'+.^_`|~0-9A-Za-z-]+\*?")
HEADER_NAME = re.compile(r"[0-9a-z]+(?:-[0-9a-z]+)*")
ROUTERS_HEADERS = frozenset(
    {
        *("authorization", "cookie", "origin", "referer", "forwarded", "x-sandbox-token"),
        *("x-sandbox-id", "x-sandbox-namespace", "x-sandbox-port", "x-forwarded-client-cert"),
        *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-prefix"),
    }
)
NEEDED_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "expect"}
)


def header_names() -> Kind:
    """Several header names, in lower case; one that ends in `*` stands for all that begin so."""

    def parse(text: str) -> str:
        name = _name_pattern(text).lower().replace("_", "-")
        beginning = name.removesuffix("*")
        needed = [
            n
            for n in NEEDED_HEADERS
            if n == name or (beginning != name and n.startswith(beginning))
        ]
        if needed:
            raise BadValueError(
                f"names {min(needed)}, which no request goes without", "name other headers"
            )
        return name

    return Kind("list", "NAME[*],...", parse, list, is_list=True)


def header_name() -> Kind:
    """A header's name, in lower case; None for `off` or an empty text."""

    def parse(text: str) -> str | None:
        if not text or text.lower() in OFF_WORDS:
            return None
        name = text.lower()
        if not HEADER_NAME.fullmatch(name) or name in NEEDED_HEADERS | ROUTERS_HEADERS:
            raise BadValueError(
                f"is no header for that: {text!r}", "write a name such as X-Auth-Request-Email"
            )
        return name

    return Kind("header", "NAME", parse, lambda value: "off" if value is None else value)


def cookie_names() -> Kind:
    """Several cookie names; one that ends in `*` stands for all that begin so."""
    return Kind("list", "NAME[*],...", _name_pattern, list, is_list=True)


def _name_pattern(text: str) -> str:
    if not NAME_PATTERN.fullmatch(text):
        raise BadValueError(
            f"has an item that is no name: {text!r}", "write a name, or its beginning and a `*`"
        )
    return text
