import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.telemetry.escaping import path_of, printable, printable_path

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=80)


def test_plain_text_stays_as_it_is():
    assert printable("alice@example.com", 64) == "alice@example.com"
    assert printable("Zoë Müller", 64) == "Zoë Müller"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("a\r\n\x00", r"a\r\n\x00"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b31m", r"\x9b31m"),
        ("\x7f", r"\x7f"),
        ("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\ud800", r"\ud800"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_what_could_move_a_cursor_or_end_a_line_is_shown_as_an_escape(text, shown):
    assert printable(text, 64) == shown


def test_a_text_is_cut_with_a_mark():
    assert printable("x" * 64, 64) == "x" * 64
    assert printable("x" * 65, 64) == "x" * 61 + "..."
    assert printable("\n" * 64, 10) == r"\n\n\n\..."


@given(ANY_TEXT, st.integers(3, 60))
def test_whatever_comes_in_only_printable_characters_within_the_limit_go_out(text, limit):
    shown = printable(text, limit)

    assert shown.isprintable()
    assert len(shown) <= limit
    shown.encode()


def test_a_path_stays_as_it_is():
    path = b"/api/v1/files/a%20b/~user;v=1,(x)!$&'*+=:@[]^`{|}"

    assert printable_path(path, 200) == path.decode()


def test_other_bytes_of_a_path_are_percent_encoded():
    assert printable_path(b'/\xff\xc3\xa9\n\x1b "\\', 200) == "/%FF%C3%A9%0A%1B%20%22%5C"


@given(st.binary(max_size=80), st.integers(3, 60))
def test_whatever_the_path_only_visible_ascii_within_the_limit_goes_out(path, limit):
    shown = printable_path(path, limit)

    assert shown.isascii()
    assert shown.isprintable()
    assert " " not in shown
    assert len(shown) <= limit


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a?token=s3cret", b"/a"),
        (b"/a#access_token=s3cret", b"/a"),
        (b"/a#s3cret?b", b"/a"),
        (b"/a?b#s3cret", b"/a"),
        (b"/a@b:c/", b"/a@b:c/"),
        (b"http://user:s3cret@box/a@b?c", b"http://box/a@b"),
        (b"//user:s3cret@box/a#b", b"//user:s3cret@box/a"),
        (b"*", b"*"),
        (b"", b""),
    ],
)
def test_of_a_target_no_query_fragment_or_password_is_written(target, path):
    assert path_of(target) == path
