from __future__ import annotations

import pytest

from spanner_simulator.core.schema.information_schema import (
    information_schema_names,
    information_schema_table,
)
from spanner_simulator.core.values import Dialect, Value
from spanner_simulator.errors import SpannerError

STATEMENTS = {
    "GOOGLE_STANDARD_SQL": """CREATE SCHEMA ns;
        CREATE TABLE T (k INT64 NOT NULL, s STRING(MAX) DEFAULT ('x'), a INT64 NOT NULL,
            g INT64 AS (a+1) STORED, v INT64 AS (a),
            ts TIMESTAMP OPTIONS (allow_commit_timestamp=true), CONSTRAINT ck CHECK (a > k)
        ) PRIMARY KEY (k DESC);
        CREATE NULL_FILTERED INDEX I ON T (a, s DESC) STORING (ts);
        CREATE TABLE C (k INT64 NOT NULL, c INT64) PRIMARY KEY (k DESC, c),
            INTERLEAVE IN PARENT T ON DELETE CASCADE;
        CREATE TABLE ns.R (k INT64, ts TIMESTAMP) PRIMARY KEY (k),
            ROW DELETION POLICY (OLDER_THAN(ts, INTERVAL 3 DAY));
        CREATE CHANGE STREAM S FOR T(a), ns.R
            OPTIONS (retention_period='36h', exclude_insert=true);
        CREATE CHANGE STREAM Everything FOR ALL""",
    "POSTGRESQL": """CREATE SCHEMA ns;
        CREATE TABLE t (k bigint PRIMARY KEY, s varchar(9) DEFAULT 'x',
            ct spanner.commit_timestamp, arr varchar(3)[], vec float8[] vector length 4,
            ts timestamptz
        ) TTL INTERVAL '3 days' ON ts;
        CREATE INDEX i ON t (s DESC) INCLUDE (ct);
        CREATE TABLE ns.u (k bigint PRIMARY KEY);
        CREATE CHANGE STREAM s FOR t(s) WITH (retention_period = '36h');
        CREATE CHANGE STREAM everything FOR ALL""",
}
POSTGRES = {"dialect": "POSTGRESQL"}
KINDS = {"STRING": str, "INT64": int, "BOOL": bool, "TIMESTAMP": int}
EXPIRY = "tables row_deletion_policy_expression"
# A view with some of its columns, conditions, and the rows that meet them.
ROWS: list[tuple[str, dict[str, Value], list[str]]] = [
    ("database_options option_value", {}, ["GOOGLE_STANDARD_SQL"]),
    (
        "database_options schema_name option_type option_value",
        POSTGRES,
        ["public, character varying, POSTGRESQL"],
    ),
    ("schemata schema_name", {}, ["", "INFORMATION_SCHEMA", "SPANNER_SYS", "ns"]),
    (
        "schemata schema_name",
        POSTGRES,
        ["public", "information_schema", "spanner_sys", "pg_catalog", "ns"],
    ),
    (
        "tables table_schema table_name parent_table_name on_delete_action interleave_type",
        {"table_type": "BASE TABLE"},
        [", T, None, None, None", ", C, T, CASCADE, IN PARENT", "ns, R, None, None, None"],
    ),
    (EXPIRY, {"table_name": "R"}, ["OLDER_THAN(ts, INTERVAL 3 DAY)"]),
    (EXPIRY, {**POSTGRES, "table_name": "t"}, ["INTERVAL '3 DAYS' ON ts"]),
    (
        (
            "columns column_name ordinal_position column_default is_nullable spanner_type "
            "is_generated generation_expression is_stored"
        ),
        {"table_name": "T"},
        [
            "k, 1, None, NO, INT64, NEVER, None, None",
            "s, 2, 'x', YES, STRING(MAX), NEVER, None, None",
            "a, 3, None, NO, INT64, NEVER, None, None",
            "g, 4, None, YES, INT64, ALWAYS, a+1, YES",
            "v, 5, None, YES, INT64, ALWAYS, a, NO",
            "ts, 6, None, YES, TIMESTAMP, NEVER, None, None",
        ],
    ),
    (
        "columns column_name data_type character_maximum_length spanner_type",
        {**POSTGRES, "table_name": "t"},
        [
            "k, bigint, None, bigint",
            "s, character varying, 9, character varying(9)",
            "ct, spanner.commit_timestamp, None, spanner.commit_timestamp",
            "arr, ARRAY, None, character varying(3)[]",
            "vec, ARRAY, None, double precision[] vector length 4",
            "ts, timestamp with time zone, None, timestamp with time zone",
        ],
    ),
    (
        "column_options table_name column_name option_name option_type option_value",
        {},
        ["T, ts, allow_commit_timestamp, BOOL, TRUE"],
    ),
    ("column_options table_name", POSTGRES, []),
    (
        "table_constraints constraint_name constraint_type",
        {"table_name": "T"},
        [
            *("PK_T, PRIMARY KEY", "CK_IS_NOT_NULL_T_k, CHECK"),
            *("CK_IS_NOT_NULL_T_a, CHECK", "ck, CHECK"),
        ],
    ),
    ("table_constraints constraint_schema", {"constraint_name": "PK_R"}, ["ns"]),
    (
        "key_column_usage table_name column_name ordinal_position",
        {"constraint_name": "PK_C"},
        ["C, k, 1", "C, c, 2"],
    ),
    ("referential_constraints constraint_name", {}, []),
    (
        "indexes table_name index_name index_type is_unique is_null_filtered index_state",
        {},
        [
            *(f"{name}, PRIMARY_KEY, PRIMARY_KEY, True, False, None" for name in "TCR"),
            "T, I, INDEX, False, True, READ_WRITE",
        ],
    ),
    ("indexes is_unique", {**POSTGRES, "index_name": "i"}, ["NO"]),
    (
        "index_columns column_name ordinal_position column_ordering is_nullable spanner_type",
        {"index_name": "I"},
        ["a, 1, ASC, NO, INT64", "s, 2, DESC, NO, STRING(MAX)", "ts, None, None, YES, TIMESTAMP"],
    ),
    (
        "index_columns table_name column_name column_ordering",
        {"index_name": "PRIMARY_KEY", "ordinal_position": 1},
        ["T, k, DESC", "C, k, DESC", "R, k, ASC"],
    ),
    ("change_streams change_stream_name all", {}, ["S, False", "Everything, True"]),
    ("change_streams change_stream_schema all", POSTGRES, ["public, NO", "public, YES"]),
    (
        "change_stream_tables change_stream_name table_schema table_name all_columns",
        {},
        ["S, , T, False", "S, ns, R, True"],
    ),
    ("change_stream_tables table_schema all_columns", POSTGRES, ["public, NO"]),
    ("change_stream_columns table_name column_name", {}, ["T, a"]),
    (
        "change_stream_options option_name option_type option_value",
        {},
        ["retention_period, STRING, 36h", "exclude_insert, BOOL, true"],
    ),
    ("change_stream_options option_type", POSTGRES, ["character varying"]),
]


@pytest.mark.parametrize(("asked", "where", "rows"), ROWS)
def test_rows(make, asked: str, where: dict[str, Value], rows: list[str]) -> None:
    view, *names = asked.split()
    conditions = {name: value for name, value in where.items() if name != "dialect"}
    dialect: Dialect = "POSTGRESQL" if "dialect" in where else "GOOGLE_STANDARD_SQL"
    _, found = information_schema_table(
        make(*STATEMENTS[dialect].split(";"), dialect=dialect).catalogue, view
    )
    lowered = [{name.lower(): value for name, value in row.items()} for row in found]
    assert rows == [
        ", ".join(str(row[name]) for name in names)
        for row in lowered
        if conditions.items() <= row.items()
    ]


@pytest.mark.parametrize("dialect", STATEMENTS)
def test_every_view_has_rows_of_its_columns_and_their_types(make, dialect: Dialect) -> None:
    catalogue = make(*STATEMENTS[dialect].split(";"), dialect=dialect).catalogue

    for name in information_schema_names(dialect):
        columns, rows = information_schema_table(catalogue, name)
        names = [column for column, _ in columns]
        assert len(set(names)) == len(names) > 0
        assert {name.isupper() for name in names} == {dialect == "GOOGLE_STANDARD_SQL"}
        for row in rows:
            assert list(row) == names
            for (_, kind), value in zip(columns, row.values(), strict=True):
                assert value is None or type(value) is KINDS[kind.code]


@pytest.mark.parametrize(
    ("dialect", "schema"),
    [("GOOGLE_STANDARD_SQL", "INFORMATION_SCHEMA"), ("POSTGRESQL", "information_schema")],
)
def test_an_unknown_view_is_refused(make, dialect: Dialect, schema: str) -> None:
    with pytest.raises(SpannerError, match=rf"^INVALID_ARGUMENT: Table not found: {schema}\.nope"):
        information_schema_table(make(dialect=dialect).catalogue, "nope")
