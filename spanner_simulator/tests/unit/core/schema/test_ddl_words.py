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


PARSING = "Error parsing Spanner DDL statement: {} : Syntax error on line {}"
SYNTAX = "[ERROR] syntax error {}; failed to parse the DDL statements."


@pytest.mark.parametrize(
    ("dialect", "statement", "move", "where"),
    [
        (GOOGLE, "a select", "name", "1, column 3: Encountered 'select' while parsing: identifier"),
        (GOOGLE, "a\n  'x'", "name", "2, column 3: Encountered ''x'' while parsing: identifier"),
        (GOOGLE, "a b", "expect_end", "1, column 3: Expecting 'EOF' but found 'b'"),
        (GOOGLE, "a", "integer", "1, column 1: Encountered 'EOF' while parsing: integer"),
        (POSTGRES, "a 'x'", "name", "at or near \"'x'\""),
        (POSTGRES, "a", "name", "at end of input"),
        (POSTGRES, "a Order", "name", 'at or near "Order"'),
    ],
)
def test_it_says_where_it_stumbled(dialect: Dialect, statement: str, move: str, where: str) -> None:
    words = DdlWords(statement, dialect)
    words.take()
    with pytest.raises(SpannerError) as caught:
        getattr(words, move)()
    message = PARSING.format(statement, where) if dialect == GOOGLE else SYNTAX.format(where)
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
