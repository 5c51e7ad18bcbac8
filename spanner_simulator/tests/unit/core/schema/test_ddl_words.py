from __future__ import annotations

import pytest

from spanner_simulator.core.schema.ddl_words import DdlWords
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import SpannerError

GOOGLE, POSTGRES = "GOOGLE_STANDARD_SQL", "POSTGRESQL"


def test_an_expression_keeps_its_text_and_its_brackets() -> None:
    words = DdlWords("( f('(', a[1]) ) x", GOOGLE)
    assert words.expression_in_brackets() == "f('(', a[1])"
    assert words.name() == "x"


def test_an_expression_ends_at_a_comma_or_a_keyword_outside_brackets() -> None:
    words = DdlWords("coalesce(a, 'not') || 'x'::text NOT NULL, b", POSTGRES)
    assert words.expression_until("NOT") == "coalesce(a, 'not') || 'x'::text"
    words.expect("NOT", "NULL")
    assert DdlWords("5 ;", POSTGRES).expression_until() == "5"
    for nothing in (";", ")", ","):
        with pytest.raises(SpannerError):
            DdlWords(nothing, POSTGRES).expression_until()


@pytest.mark.parametrize("text", ["9" * 5000, "0x10", "1.5", "\N{ARABIC-INDIC DIGIT THREE}"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(SpannerError, match="INVALID_ARGUMENT"):
        DdlWords(text, GOOGLE).integer()
    assert (DdlWords("012", GOOGLE).integer(), DdlWords("-3", GOOGLE).integer()) == (12, -3)


@pytest.mark.parametrize(
    ("dialect", "text", "names"),
    [
        (GOOGLE, "a.B, public.c, `d.e`", ("a.B", "public.c", "d.e")),
        (POSTGRES, 'A."B", public.c, ' + "x" * 70, ("a.B", "c", "x" * 63)),
    ],
)
def test_names_have_schemas_but_not_public(
    dialect: Dialect, text: str, names: tuple[str, ...]
) -> None:
    assert DdlWords(text, dialect).object_names() == names


@pytest.mark.parametrize(
    ("statement", "move", "message"),
    [
        ("a select", "name", "line 1, column 3: Encountered 'select' while parsing: identifier"),
        ("a\n  'x'", "name", "line 2, column 3: Encountered ''x'' while parsing: identifier"),
        ("a b", "expect_end", "line 1, column 3: Expecting 'EOF' but found 'b'"),
        ("a", "integer", "line 1, column 1: Encountered 'EOF' while parsing: integer"),
    ],
)
def test_googlesql_says_what_it_expected(statement: str, move: str, message: str) -> None:
    words = DdlWords(statement, GOOGLE)
    words.take()
    with pytest.raises(SpannerError) as caught:
        getattr(words, move)()

    whole = f"Error parsing Spanner DDL statement: {statement} : Syntax error on {message}"
    assert caught.value.message == whole


@pytest.mark.parametrize(
    ("statement", "where"),
    [("a 'x'", "at or near \"'x'\""), ("a", "at end of input"), ("a Order", 'at or near "Order"')],
)
def test_postgresql_says_where_it_stumbled(statement: str, where: str) -> None:
    words = DdlWords(statement, POSTGRES)
    words.take()
    with pytest.raises(SpannerError) as caught:
        words.name()

    message = f"[ERROR] syntax error {where}; failed to parse the DDL statements."
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("dialect", "text", "message"),
    [
        (GOOGLE, "a $", "line 1, column 3: Illegal input character '$'"),
        (GOOGLE, "a `", "Illegal input character '`'"),
        (GOOGLE, "a ``", "Illegal input character '`'"),
        (GOOGLE, r"'\q'", "Illegal escape sequence: \\q [at 1:1]"),
        (POSTGRES, "a `", 'syntax error at or near "`"'),
    ],
)
def test_a_character_that_starts_no_word(dialect: Dialect, text: str, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        DdlWords(text, dialect)
    assert message in caught.value.message
