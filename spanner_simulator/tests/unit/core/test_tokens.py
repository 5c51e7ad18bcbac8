from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.lexicon import LEXICONS
from spanner_simulator.core.tokens import EscapeError, content, is_skipped, scan

GOOGLE, POSTGRES = "GOOGLE_STANDARD_SQL", "POSTGRESQL"

# What lexical rules look at, more often than chance would bring it.
TEXTS = st.text(st.sampled_from("aE'\"`\\-#/*@{}$1;.\n rb=") | st.characters())


def kinds(sql: str, dialect: str) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in scan(sql, dialect) if one.kind != "blank"]


@given(TEXTS, st.sampled_from([GOOGLE, POSTGRES]))
def test_the_tokens_are_the_whole_text_in_order(text, dialect):
    tokens = scan(text, dialect)
    assert "".join(one.text for one in tokens) == text
    assert all(text[one.at : one.until] == one.text for one in tokens)


TOKENS: dict[str, dict[str, list[str]]] = {
    GOOGLE: {
        "name": ["name"],
        "quoted_name": ["`a \\` b`"],
        "parameter": ["@p"],
        "number": ["0x1F", "1.5e-3", ".5"],
        "text": ["'it\\'s'", "'''two\nlines'''", '"d"', "r'\\d'"],
        "bytes": ["bR'x'", 'B"""x"y"""'],
        "comment": ["-- rest", "# rest", "/* ; */"],
        "symbol": ["<>", "=>"],
        "illegal": ["?", "$"],
    },
    POSTGRES: {
        "name": ["name$1", "größe"],
        "quoted_name": ['"a""b"'],
        "parameter": ["$12"],
        "text": ["'it''s\n\\'", "E'it\\'s'", "$$d'q$$", "$t$ $$ $t$"],
        "hint": ["/*@ force_index=i */", "/*@ without end"],
        "comment": ["/* a */"],
        "symbol": ["#", "->>"],
        "illegal": ["`"],
    },
}


@pytest.mark.parametrize("dialect", TOKENS)
def test_one_token(dialect):
    for kind, texts in TOKENS[dialect].items():
        for sql in texts:
            assert kinds(sql, dialect) == [(kind, sql)]


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [("'two\nlines'", GOOGLE), ("'it", GOOGLE), ("`a", GOOGLE), ("'it", POSTGRES)],
)
def test_a_quote_without_its_partner_is_a_token_of_its_own(sql, dialect):
    assert kinds(sql, dialect)[0] == ("open", sql[0])


def test_a_prefix_at_the_end_of_a_word_is_a_part_of_the_word():
    assert kinds("me'x'", POSTGRES) == [("name", "me"), ("text", "'x'")]
    assert kinds("xb'x'", GOOGLE) == [("name", "xb"), ("text", "'x'")]


@pytest.mark.parametrize(
    ("sql", "dialect", "meaning"),
    [
        ("`from`", GOOGLE, "from"),
        ("@p", GOOGLE, "p"),
        ("''", GOOGLE, ""),
        ("''''''", GOOGLE, ""),
        ("'''a'b'''", GOOGLE, "a'b"),
        ("r'\\n'", GOOGLE, "\\n"),
        ("'\\x41\\u00e9\\U0001F600\\101\\n\\`'", GOOGLE, "Aé😀A\n`"),
        ("b'\\xffé'", GOOGLE, b"\xff\xc3\xa9"),
        ("rb'\\x'", GOOGLE, b"\\x"),
        ('"a""b"', POSTGRES, 'a"b'),
        ("$2", POSTGRES, "p2"),
        ("'it''s\\'", POSTGRES, "it's\\"),
        ("E'it''s\\t\\q'", POSTGRES, "it's\tq"),
        ("$x$a$$b$x$", POSTGRES, "a$$b"),
    ],
)
def test_what_a_token_stands_for(sql, dialect, meaning):
    (token,) = scan(sql, dialect)
    assert content(token, dialect) == meaning


@pytest.mark.parametrize(
    "sql", [r"'\ud800'", r"'\uDFFF'", r"'\U00110000'", r"'\q'", r"b'\u0041'", r"'\400'"]
)
def test_an_escape_that_stands_for_no_character(sql):
    (token,) = scan(sql, GOOGLE)
    with pytest.raises(EscapeError):
        content(token, GOOGLE)


def test_what_only_separates():
    tokens = scan("a /* b */ /*@ c */ d", POSTGRES)
    assert [one.text for one in tokens if not is_skipped(one)] == ["a", "d"]


GOOGLE, POSTGRES = "GOOGLE_STANDARD_SQL", "POSTGRESQL"


@pytest.mark.parametrize(
    ("dialect", "name", "text"),
    [
        (GOOGLE, "Name", "Name"),
        (GOOGLE, "order", "`order`"),
        (GOOGLE, "s.order", "s.`order`"),
        (GOOGLE, "a-b", "`a-b`"),
        (POSTGRES, "name", "name"),
        (POSTGRES, "Name", '"Name"'),
        (POSTGRES, 'a"b', '"a""b"'),
        (POSTGRES, "order", '"order"'),
    ],
)
def test_names_have_quotes_where_they_need_them(dialect, name, text):
    assert LEXICONS[dialect].quoted(name) == text


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from([GOOGLE, POSTGRES]))
def test_a_text_that_is_printed_is_read_as_it_was(text, dialect):
    (token,) = scan(LEXICONS[dialect].text(text), dialect)
    assert token.kind == "text"
    assert content(token, dialect) == text


@given(st.text(min_size=1), st.sampled_from([POSTGRES]))
def test_a_name_that_is_printed_is_read_as_it_was(name, dialect):
    (token,) = scan(LEXICONS[dialect].quoted_part(name), dialect)
    assert token.kind in ("name", "quoted_name")
    assert content(token, dialect) == name
