"""Literals, hints and positions of a statement's text."""

from __future__ import annotations

import pytest

from spanner_simulator.errors import SpannerError
from spanner_simulator.sql.statement_text import read_statement_text


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"'it\'s'", "it's"),
        (r"r'a\n'", r"a\n"),
        (r'"\x41\u00e9\t\101"', "A\u00e9\tA"),
        ("'''tri'ple'''", "tri'ple"),
        (r"b'\xff\001a'", b"\xff\x01a"),
        (r"rb'\d'", rb"\d"),
        ("''", ""),
        (r"'\U0001F600'", "\U0001f600"),
        ("b'\u00e9'", "\u00e9".encode()),
    ],
)
def test_google_literals(literal: str, value: str | bytes) -> None:
    assert read_statement_text(f"SELECT {literal}", "GOOGLE_STANDARD_SQL").literals == (value,)


@pytest.mark.parametrize(
    ("literal", "value"),
    [("'it''s'", "it's"), (r"'a\n'", r"a\n"), (r"E'a\n'", "a\n"), ("$$a'b$$", "a'b")],
)
def test_postgres_literals(literal: str, value: str) -> None:
    assert read_statement_text(f"SELECT {literal}", "POSTGRESQL").literals == (value,)


def test_hints_and_comments_leave_blanks_and_positions_stay() -> None:
    sql = "SELECT 'long literal' FROM T@{FORCE_INDEX=I, x=1} -- it's\nWHERE Nope"
    text = read_statement_text(sql, "GOOGLE_STANDARD_SQL")

    assert [(hint.name, hint.value) for hint in text.hints] == [("force_index", "I"), ("x", "1")]
    at = text.parsed.index("Nope")
    assert sql[text.written_position(at) :] == "Nope"
    assert text.located("Bad", at) == "Bad [at 2:7]\nWHERE Nope\n      ^"


def test_a_literal_shorter_than_its_stand_in_shifts_what_follows() -> None:
    sql = "SELECT '', '', x"
    text = read_statement_text(sql, "GOOGLE_STANDARD_SQL")

    assert text.written_position(text.parsed.index("x")) == sql.index("x")


@pytest.mark.parametrize("sql", ["SELECT 'a", r"SELECT '\q'", 'SELECT "a\n"', "SELECT 1 @{a"])
def test_what_does_not_end_is_a_syntax_error(sql: str) -> None:
    with pytest.raises(SpannerError, match="Syntax error"):
        read_statement_text(sql, "GOOGLE_STANDARD_SQL")
