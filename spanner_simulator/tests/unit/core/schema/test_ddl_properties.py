"""Whatever is written, the schema answers with a status, and prints what makes it again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.ddl_text import catalogue_ddl
from spanner_simulator.core.schema.information_schema import (
    information_schema_names,
    information_schema_table,
)
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import SpannerError

CORPUS = Path(__file__).parent / "corpus"
DIALECTS: dict[Dialect, str] = {"GOOGLE_STANDARD_SQL": "google.txt", "POSTGRESQL": "postgres.txt"}
STATEMENTS = {
    dialect: [
        line for line in (CORPUS / name).read_text().splitlines() if not line.startswith((" ", "#"))
    ]
    for dialect, name in DIALECTS.items()
}
WORD = re.compile(r"\s+|\w+|'[^']*'|[^\w\s]")
JUNK = ["", ",", "(", ")", "'", '"', "`", "ALL", "NULL", "x.y", "-1", "\0", "é", "$$", "9" * 400]


@st.composite
def mutilated(draw: st.DrawFn, dialect: Dialect) -> str:
    """A statement with words taken out, doubled, swapped or replaced."""
    words = WORD.findall(draw(st.sampled_from(STATEMENTS[dialect])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(words)))
        other = draw(st.sampled_from(JUNK) | st.sampled_from(words or [""]))
        words[at : at + draw(st.integers(0, 2))] = [other]
    return "".join(words)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_mutilated_statement_gets_an_answer(dialect: Dialect, data: st.DataObject) -> None:
    catalogue = Catalogue(dialect)
    before = data.draw(st.lists(st.sampled_from(STATEMENTS[dialect]), max_size=8))
    refusals = []
    for statement in (*before, data.draw(mutilated(dialect))):
        try:
            apply_statement(catalogue, parse_ddl(statement, dialect), now_us=1)
        except SpannerError as error:
            refusals.append(error.message)
    assert all(refusals)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_printed_schema_makes_the_same_schema(dialect: Dialect, data: st.DataObject) -> None:
    catalogue = Catalogue(dialect)
    for statement in data.draw(st.lists(st.sampled_from(STATEMENTS[dialect]), max_size=60)):
        try:
            apply_statement(catalogue, parse_ddl(statement, dialect), now_us=1)
        except SpannerError:
            continue
    text = catalogue_ddl(catalogue)
    again = Catalogue(dialect)
    for statement in text:
        apply_statement(again, parse_ddl(statement, dialect), now_us=1)
    assert sorted(catalogue_ddl(again)) == sorted(text)
    for name in information_schema_names(dialect):
        assert information_schema_table(catalogue, name)
