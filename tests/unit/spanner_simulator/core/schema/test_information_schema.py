from __future__ import annotations

import pytest

from tidegate.spanner_simulator.core.schema.information_schema import information_schema_table
from tidegate.spanner_simulator.core.sql_engine import run_select
from tidegate.spanner_simulator.core.values import Plain, Value
from tidegate.spanner_simulator.errors import SpannerError

SCOPE = """
select cs.all, cst.table_name, cst.all_columns, csc.column_name
from information_schema.change_streams cs
left join information_schema.change_stream_tables cst
  on cst.change_stream_name = cs.change_stream_name
left join information_schema.change_stream_columns csc
  on csc.change_stream_name = cs.change_stream_name and csc.table_name = cst.table_name
where cs.change_stream_name = @streamName
"""
COLUMNS = """
SELECT table_name, column_name, spanner_type, ordinal_position,
  IF(is_nullable = 'YES', true, false) AS is_nullable
FROM information_schema.COLUMNS
WHERE table_catalog = '' AND table_schema = '' AND table_name in UNNEST(@tables)
"""
QUERIES: list[tuple[str, dict[str, Plain], list[list[Value]]]] = [
    (
        (
            "select option_value from information_schema.database_options "
            "where option_name='database_dialect'"
        ),
        {},
        [["GOOGLE_STANDARD_SQL"]],
    ),
    (
        (
            "select change_stream_name from information_schema.change_streams cs "
            "where cs.change_stream_name = @streamname"
        ),
        {"streamname": "Bank"},
        [["Bank"]],
    ),
    (
        (
            "select option_name, option_value from information_schema.change_stream_options "
            "where change_stream_name = @streamName"
        ),
        {"streamname": "Tuned"},
        [["retention_period", "36h"]],
    ),
    (
        SCOPE,
        {"streamname": "Tuned"},
        [[False, "Accounts", False, "Name"], [False, "Ledger", True, None]],
    ),
    (SCOPE, {"streamname": "Everything"}, [[True, None, None, None]]),
    (
        (
            "SELECT table_name, column_name FROM information_schema.index_columns "
            "WHERE index_name = 'PRIMARY_KEY' AND table_name in UNNEST(@tables)"
        ),
        {"tables": ["Ledger"]},
        [["Ledger", "Id"]],
    ),
    (
        (
            "SELECT table_name, column_name FROM information_schema.index_columns "
            "WHERE index_name = 'PRIMARY_KEY'"
        ),
        {"tables": None},
        [["Accounts", "Id"], ["Ledger", "Id"]],
    ),
    (
        COLUMNS,
        {"tables": ["Ledger"]},
        [["Ledger", "Id", "STRING(36)", 1, False], ["Ledger", "Amount", "INT64", 2, True]],
    ),
    (
        "SELECT routine_name FROM information_schema.routines WHERE routine_name = 'READ_Bank'",
        {},
        [["READ_Bank"]],
    ),
]


@pytest.mark.parametrize(("sql", "parameters", "rows"), QUERIES)
def test_the_queries_that_readers_send(
    bank,
    sql: str,
    parameters: dict[str, Plain],
    rows: list[list[Value]],
) -> None:
    bank.ddl(
        "CREATE CHANGE STREAM Tuned FOR Accounts(Name), Ledger OPTIONS (retention_period='36h')",
        "CREATE CHANGE STREAM Everything FOR ALL",
    )
    _, found = run_select(
        bank.database,
        sql,
        parameters,
        transaction=None,
        read_us=None,
        check_select=lambda _table: None,
    )

    assert found == rows


@pytest.mark.parametrize(
    ("view", "count"),
    [("TABLES", 2), ("indexes", 2), ("column_options", 1), ("change_stream_columns", 0)],
)
def test_views_have_a_row_for_each_object(bank, view: str, count: int) -> None:
    bank.ddl(
        "ALTER TABLE Ledger ADD COLUMN WrittenAt TIMESTAMP OPTIONS (allow_commit_timestamp = true)",
    )
    columns, rows = information_schema_table(bank.database.catalogue, view)

    assert len(rows) == count
    assert all(row.keys() == {name for name, _ in columns} for row in rows)


def test_an_unknown_view_is_refused(bank) -> None:
    with pytest.raises(SpannerError, match=r"Table not found: INFORMATION_SCHEMA\.nope"):
        information_schema_table(bank.database.catalogue, "nope")
