from __future__ import annotations

import pytest

from spanner_simulator.core.lexer import Words
from spanner_simulator.errors import Code, SpannerError


def test_words_of_every_kind() -> None:
    words = Words("SELECT `from` , @p 1.5 'it\\'s' \"d\" <= -- rest\n# more\n/* and */ ;")
    found = []
    while words.peek().kind != "end":
        word = words.take()
        found.append((word.kind, word.text))

    assert found == [
        ("name", "SELECT"),
        ("quoted_name", "from"),
        ("symbol", ","),
        ("parameter", "p"),
        ("number", "1.5"),
        ("text", "it's"),
        ("text", "d"),
        ("symbol", "<="),
        ("symbol", ";"),
    ]


def test_keywords_are_found_in_any_case_and_all_or_none() -> None:
    words = Words("create Change table")

    assert not words.accept("CREATE", "CHANGE", "STREAM")
    assert words.accept("CREATE", "CHANGE")
    assert words.peek().is_keyword("TABLE")


def test_a_quoted_name_is_no_keyword() -> None:
    assert not Words("`ALL`").accept("ALL")


def test_a_refusal_says_what_stands_where() -> None:
    words = Words("SELECT\n  x")
    words.expect("SELECT")

    with pytest.raises(SpannerError) as caught:
        words.expect_symbol("(")

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == 'Syntax error: Expected "(" but got "x" [at 2:3]'


def test_an_illegal_character_is_refused() -> None:
    with pytest.raises(SpannerError, match="Illegal input character"):
        Words("SELECT ?")


def test_strings_of_googlesql() -> None:
    words = Words("'''a'b''' r'\\n' '\\x41\\u00e9\\101\\n' b'\\x00'")

    assert [(words.peek().kind, words.take().text) for _ in range(4)] == [
        ("text", "a'b"),
        ("text", "\\n"),
        ("text", "AéA\n"),
        ("bytes", "\0"),
    ]


def test_words_of_postgresql() -> None:
    words = Words(
        "Tab \"Q\"\"x\" 'it''s\\' E'a\\n' $$d'q$$ $t$x$t$ $2 a::text -- no",
        dialect="POSTGRESQL",
    )
    found = []
    while words.peek().kind != "end":
        word = words.take()
        found.append((word.kind, word.text))

    assert found == [
        ("name", "Tab"),
        ("quoted_name", 'Q"x'),
        ("text", "it's\\"),
        ("text", "a\n"),
        ("text", "d'q"),
        ("text", "x"),
        ("parameter", "p2"),
        ("name", "a"),
        ("symbol", "::"),
        ("name", "text"),
    ]


def test_postgresql_folds_and_cuts_names_that_are_not_quoted() -> None:
    words = Words(f'Tab "Tab" {"X" * 70}', dialect="POSTGRESQL")

    assert [words.name() for _ in range(3)] == ["tab", "Tab", "x" * 63]


def test_a_word_knows_where_it_stands() -> None:
    words = Words("a 'b c' d")
    words.take()
    word = words.take()

    assert words.statement[word.at : word.until] == "'b c'"


@pytest.mark.parametrize("escape", [r"\ud800", r"\uDFFF", r"\U00110000", r"\q"])
def test_an_escape_that_stands_for_no_character_is_refused(escape: str) -> None:
    with pytest.raises(SpannerError) as caught:
        Words(f"a\n '{escape}'")

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == (f"Syntax error: Illegal escape sequence: {escape} [at 2:2]")


def test_a_letter_without_an_escape_of_its_own_is_itself_in_postgresql() -> None:
    assert Words(r"E'\q'", dialect="POSTGRESQL").peek().text == "q"
    with pytest.raises(SpannerError):
        Words(r"E'\ud800'", dialect="POSTGRESQL")
