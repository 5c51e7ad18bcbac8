"""The queries that existing readers of change streams send, word for word, and their like."""

from __future__ import annotations

import pytest

from spanner_simulator.core.values import ValueType
from spanner_simulator.sql.parameter import Parameter

SCOPE = (
    "select cs.all, cst.table_name, cst.all_columns, csc.column_name from "
    "information_schema.change_streams cs left join information_schema.change_stream_tables cst "
    "on cst.change_stream_name = cs.change_stream_name left join "
    "information_schema.change_stream_columns csc on csc.change_stream_name = "
    "cs.change_stream_name and csc.table_name = cst.table_name where cs.change_stream_name = "
    "@streamname"
)
COLUMNS = (
    "SELECT table_name, column_name, spanner_type, ordinal_position, "
    "IF(is_nullable = 'YES', true, false) AS is_nullable FROM information_schema.COLUMNS "
    "WHERE table_catalog = '' AND table_schema = '' AND table_name in UNNEST(@tables)"
)
STREAM = {"streamname": "CS"}
TABLES = {"tables": Parameter(["C"], ValueType("ARRAY", ValueType("STRING")))}


@pytest.mark.parametrize(
    ("sql", "parameters", "rows"),
    [
        (
            (
                "select option_value from information_schema.database_options where "
                "option_name='database_dialect'"
            ),
            {},
            [["GOOGLE_STANDARD_SQL"]],
        ),
        (
            (
                "select change_stream_name from information_schema.change_streams cs where "
                "cs.change_stream_name = @streamname"
            ),
            STREAM,
            [["CS"]],
        ),
        (
            (
                "select option_name, option_value from "
                "information_schema.change_stream_options where "
                "change_stream_name = @streamName"
            ),
            STREAM,
            [],
        ),
        (SCOPE, STREAM, [[False, "T", True, None]]),
        (
            (
                "SELECT table_name, column_name FROM information_schema.index_columns WHERE "
                "index_name = 'PRIMARY_KEY' AND table_name in UNNEST(@tables)"
            ),
            TABLES,
            [["C", "Id"], ["C", "K"]],
        ),
        (
            (
                "SELECT table_name, column_name FROM information_schema.index_columns WHERE "
                "index_name = 'PRIMARY_KEY' AND table_name = 'T'"
            ),
            {"tables": Parameter(None, ValueType("ARRAY", ValueType("STRING")))},
            [["T", "Id"]],
        ),
        (
            COLUMNS,
            TABLES,
            [
                ["C", "G", "INT64", "4", True],
                ["C", "Id", "INT64", "1", False],
                ["C", "K", "STRING(20)", "2", False],
                ["C", "V", "INT64", "3", True],
            ],
        ),
        (
            (
                "SELECT t.table_name, t.parent_table_name FROM "
                "information_schema.tables AS t WHERE "
                "t.table_catalog = '' AND t.table_schema = '' AND t.table_type = 'BASE TABLE'"
            ),
            {},
            [["C", "T"], ["T", None]],
        ),
        (
            (
                "SELECT idx.index_name, COUNT(*) FROM information_schema.indexes idx JOIN "
                "information_schema.index_columns col USING (table_catalog, "
                "table_schema, table_name, "
                "index_name) WHERE idx.index_type = 'INDEX' GROUP BY idx.index_name"
            ),
            {},
            [["TByS", "1"]],
        ),
    ],
)
def test_google(shared_world, sql, parameters, rows) -> None:
    assert sorted(shared_world.rows(sql, **parameters), key=str) == rows


@pytest.mark.parametrize(
    ("sql", "parameters", "rows"),
    [
        (
            (
                "select option_value from information_schema.database_options where "
                "option_name='database_dialect'"
            ),
            {},
            [["POSTGRESQL"]],
        ),
        (
            (
                "SELECT table_name, column_name FROM information_schema.index_columns WHERE "
                "index_name = 'PRIMARY_KEY' AND table_schema = 'public' AND table_name = ANY($1)"
            ),
            {"p1": Parameter(["c"], ValueType("ARRAY", ValueType("STRING")))},
            [["c", "id"], ["c", "k"]],
        ),
        (
            (
                "SELECT table_name, column_name, spanner_type, ordinal_position, CASE WHEN "
                "is_nullable = 'YES' THEN TRUE ELSE FALSE END AS is_nullable FROM "
                "information_schema.columns WHERE table_schema = 'public' AND table_name = $1"
            ),
            {"p1": "c"},
            [
                ["c", "id", "bigint", "1", False],
                ["c", "k", "character varying(20)", "2", False],
                ["c", "v", "bigint", "3", True],
            ],
        ),
    ],
)
def test_postgres(shared_pg_world, sql, parameters, rows) -> None:
    assert sorted(shared_pg_world.rows(sql, **parameters), key=str) == rows
