from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.lexicon import LEXICONS
from spanner_simulator.core.tokens import content, scan

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
