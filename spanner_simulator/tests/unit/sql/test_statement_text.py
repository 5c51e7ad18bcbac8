"""Literals, hints and positions of a statement's text."""

from __future__ import annotations

import pytest

from spanner_simulator.errors import SpannerError
from spanner_simulator.sql.statement_text import read_statement_text


@pytest.mark.parametrize(
    ("literal", "dialect", "value"),
    [
        (r'"\x41\u00e9\t\101"', "GOOGLE_STANDARD_SQL", "A\u00e9\tA"),
        ("'''tri'ple'''", "GOOGLE_STANDARD_SQL", "tri'ple"),
        (r"b'\xff\001a'", "GOOGLE_STANDARD_SQL", b"\xff\x01a"),
        (r"rb'\d'", "GOOGLE_STANDARD_SQL", rb"\d"),
        ("'it''s'", "POSTGRESQL", "it's"),
        (r"E'a\n'", "POSTGRESQL", "a\n"),
        ("$$a'b$$", "POSTGRESQL", "a'b"),
    ],
)
def test_literals(literal: str, dialect, value: str | bytes) -> None:
    assert read_statement_text(f"SELECT {literal}", dialect).literals == (value,)


def test_hints_and_comments_leave_blanks_and_positions_stay() -> None:
    sql = "SELECT '', 'long literal' FROM T@{FORCE_INDEX=I, x=1} -- it's\nWHERE Nope"
    text = read_statement_text(sql, "GOOGLE_STANDARD_SQL")
    assert [(hint.name, hint.value) for hint in text.hints] == [("force_index", "I"), ("x", "1")]
    at = text.parsed.index("Nope")
    assert sql[text.written_position(at) :] == "Nope"
    assert text.located("Bad", at) == "Bad [at 2:7]\nWHERE Nope\n      ^"


@pytest.mark.parametrize("sql", ["SELECT 'a", r"SELECT '\q'", "SELECT 1 @{a", "SELECT 1 @{a}"])
def test_what_does_not_end_is_a_syntax_error(sql: str) -> None:
    with pytest.raises(SpannerError, match="Syntax error"):
        read_statement_text(sql, "GOOGLE_STANDARD_SQL")
