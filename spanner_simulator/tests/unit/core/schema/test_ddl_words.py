from __future__ import annotations

import pytest

from spanner_simulator.core.schema.ddl_words import DdlWords, unsupported
from spanner_simulator.errors import Code, SpannerError


def test_an_expression_keeps_its_text_and_its_brackets() -> None:
    words = DdlWords("( f('(', a[1]) ) x", "GOOGLE_STANDARD_SQL")

    assert words.expression_in_brackets() == "f('(', a[1])"
    assert words.name() == "x"


def test_an_expression_ends_at_a_comma_or_a_keyword_outside_brackets() -> None:
    words = DdlWords("coalesce(a, 'not') || 'x'::text NOT NULL, b", "POSTGRESQL")

    assert words.expression_until("NOT") == "coalesce(a, 'not') || 'x'::text"
    words.expect("NOT", "NULL")


def test_an_expression_does_not_swallow_the_semicolon() -> None:
    assert DdlWords("5 ;", "POSTGRESQL").expression_until() == "5"
    for nothing in (";", ")", ","):
        with pytest.raises(SpannerError):
            DdlWords(nothing, "POSTGRESQL").expression_until()


@pytest.mark.parametrize("text", ["9" * 5000, "0x1" + "0" * 19, "\N{ARABIC-INDIC DIGIT THREE}"])
def test_a_number_beyond_all_counting_is_refused(text: str) -> None:
    with pytest.raises(SpannerError) as caught:
        DdlWords(text, "GOOGLE_STANDARD_SQL").integer()

    assert caught.value.code is Code.INVALID_ARGUMENT


def test_names_have_schemas_but_not_public() -> None:
    google = DdlWords("a.B, public.c", "GOOGLE_STANDARD_SQL")
    postgres = DdlWords('A."B", public.c', "POSTGRESQL")

    for words, names in ((google, ["a.B", "public.c"]), (postgres, ["a.B", "c"])):
        found = [words.object_name()]
        words.expect_symbol(",")
        found.append(words.object_name())
        assert found == names


@pytest.mark.parametrize(("text", "number"), [("12", 12), ("-3", -3), ("0x10", 16), ("010", 10)])
def test_whole_numbers(text: str, number: int) -> None:
    assert DdlWords(text, "GOOGLE_STANDARD_SQL").integer() == number


def test_the_rest_has_no_closing_semicolon() -> None:
    assert DdlWords("SELECT 1 ; ", "GOOGLE_STANDARD_SQL").rest("query") == "SELECT 1"


@pytest.mark.parametrize(
    ("statement", "move", "message"),
    [
        (
            "a select",
            "name",
            (
                "Error parsing Spanner DDL statement: a select : Syntax error on line 1, column 3: "
                "Encountered 'select' while parsing: identifier"
            ),
        ),
        (
            "a\n  'x'",
            "name",
            (
                "Error parsing Spanner DDL statement: a\n  'x' : Syntax error on line 2, column 3: "
                "Encountered ''x'' while parsing: identifier"
            ),
        ),
        (
            "a b",
            "expect_end",
            (
                "Error parsing Spanner DDL statement: a b : Syntax error on line 1, column 3: "
                "Expecting 'EOF' but found 'b'"
            ),
        ),
        (
            "a",
            "integer",
            (
                "Error parsing Spanner DDL statement: a : Syntax error on line 1, column 1: "
                "Encountered 'EOF' while parsing: integer"
            ),
        ),
    ],
)
def test_googlesql_says_what_it_expected(statement: str, move: str, message: str) -> None:
    words = DdlWords(statement, "GOOGLE_STANDARD_SQL")
    words.take()

    with pytest.raises(SpannerError) as caught:
        getattr(words, move)()

    assert (caught.value.code, caught.value.message) == (Code.INVALID_ARGUMENT, message)


@pytest.mark.parametrize(
    ("statement", "where"),
    [("a 'x'", "at or near \"'x'\""), ("a", "at end of input"), ("a Order", 'at or near "Order"')],
)
def test_postgresql_says_where_it_stumbled(statement: str, where: str) -> None:
    words = DdlWords(statement, "POSTGRESQL")
    words.take()

    with pytest.raises(SpannerError) as caught:
        words.name()

    assert caught.value.message == (
        f"[ERROR] syntax error {where}; failed to parse the DDL statements."
    )


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (
            "GOOGLE_STANDARD_SQL",
            (
                "Error parsing Spanner DDL statement: a $ : Syntax error on line 1, column 3: "
                "Illegal "
                "input character '$'"
            ),
        ),
        ("POSTGRESQL", '[ERROR] syntax error at or near "`"; failed to parse the DDL statements.'),
    ],
)
def test_a_character_that_starts_no_word(dialect, text: str) -> None:
    with pytest.raises(SpannerError) as caught:
        DdlWords("a $" if dialect == "GOOGLE_STANDARD_SQL" else "a `", dialect)

    assert caught.value.message == text


def test_what_is_not_supported_is_named() -> None:
    assert str(unsupported("X")) == "UNIMPLEMENTED: The simulator does not support: X"
