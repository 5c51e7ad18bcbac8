from __future__ import annotations

import pytest

from spanner_simulator.core.schema.information_schema.view import (
    information_schema_names,
    information_schema_table,
)
from spanner_simulator.core.values import Dialect, ValueType
from spanner_simulator.errors import Code, SpannerError

TABLE = {
    "GOOGLE_STANDARD_SQL": "CREATE TABLE T (k INT64) PRIMARY KEY (k)",
    "POSTGRESQL": "CREATE TABLE t (k bigint PRIMARY KEY)",
}


@pytest.mark.parametrize("dialect", ["GOOGLE_STANDARD_SQL", "POSTGRESQL"])
def test_every_view_has_rows_of_its_columns(make, dialect: Dialect) -> None:
    catalogue = make(TABLE[dialect], "CREATE CHANGE STREAM s FOR ALL", dialect=dialect).catalogue

    for name in information_schema_names(dialect):
        columns, rows = information_schema_table(catalogue, name)
        names = [column for column, _ in columns]
        assert len(set(names)) == len(names) > 0
        assert all(list(row) == names for row in rows)


def test_googlesql_has_upper_case_and_booleans(make) -> None:
    catalogue = make("CREATE CHANGE STREAM S FOR ALL").catalogue
    columns, rows = information_schema_table(catalogue, "change_streams")

    assert columns[3] == ("ALL", ValueType("BOOL"))
    assert [list(row.values()) for row in rows] == [["", "", "S", True]]


def test_postgresql_has_lower_case_and_words(make) -> None:
    catalogue = make("CREATE CHANGE STREAM S FOR ALL", dialect="POSTGRESQL").catalogue
    columns, rows = information_schema_table(catalogue, "CHANGE_STREAMS")

    assert columns[3] == ("all", ValueType("STRING"))
    assert [list(row.values()) for row in rows] == [["", "public", "s", "YES"]]


@pytest.mark.parametrize(
    ("dialect", "schema"),
    [("GOOGLE_STANDARD_SQL", "INFORMATION_SCHEMA"), ("POSTGRESQL", "information_schema")],
)
def test_an_unknown_view_is_refused(make, dialect: Dialect, schema: str) -> None:
    with pytest.raises(SpannerError) as caught:
        information_schema_table(make(dialect=dialect).catalogue, "nope")

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == f"Table not found: {schema}.nope"
