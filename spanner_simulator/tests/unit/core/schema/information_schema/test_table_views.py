from __future__ import annotations

import pytest

PG = "POSTGRESQL"


def test_schemas(shown) -> None:
    assert shown("schemata", "schema_name") == [
        ("",),
        ("INFORMATION_SCHEMA",),
        ("SPANNER_SYS",),
        ("ns",),
    ]
    assert [name for (name,) in shown("schemata", "schema_name", PG)] == [
        "public",
        "information_schema",
        "spanner_sys",
        "pg_catalog",
        "ns",
    ]


def test_tables(shown) -> None:
    names = "table_schema table_name parent_table_name on_delete_action table_type interleave_type"

    assert [row for row in shown("tables", names) if row[0] != "INFORMATION_SCHEMA"] == [
        ("", "T", None, None, "BASE TABLE", None),
        ("", "C", "T", "CASCADE", "BASE TABLE", "IN PARENT"),
        ("", "N", "T", None, "BASE TABLE", "IN"),
        ("", "F", None, None, "BASE TABLE", None),
        ("ns", "R", None, None, "BASE TABLE", None),
        ("", "V", None, None, "VIEW", None),
    ]


def test_its_own_tables_are_listed(shown) -> None:
    assert shown("tables", "table_type", table_name="TABLES") == [("VIEW",)]
    assert shown("tables", "table_schema", PG, table_name="tables") == [("information_schema",)]
    assert shown(
        "columns",
        "column_name spanner_type is_nullable",
        table_name="CHANGE_STREAMS",
        ordinal_position=4,
    ) == [("ALL", "BOOL", "NO")]
    assert shown(
        "columns",
        "column_name spanner_type",
        PG,
        table_name="columns",
        ordinal_position=5,
    ) == [("ordinal_position", "bigint")]


@pytest.mark.parametrize(
    ("dialect", "expression"),
    [
        ("GOOGLE_STANDARD_SQL", "OLDER_THAN(ts, INTERVAL 3 DAY)"),
        (PG, "INTERVAL '3 DAYS' ON ts"),
    ],
)
def test_row_deletion_policies(shown, dialect: str, expression: str) -> None:
    found = shown("tables", "row_deletion_policy_expression", dialect, spanner_state="COMMITTED")

    assert (expression,) in found


def test_columns(shown) -> None:
    names = "column_name ordinal_position column_default is_nullable spanner_type"

    assert shown("columns", names, table_name="T", table_schema="")[:3] == [
        ("k", 1, None, "NO", "INT64"),
        ("s", 2, "'x'", "YES", "STRING(MAX)"),
        ("a", 3, None, "NO", "INT64"),
    ]
    names = "column_name is_generated generation_expression is_stored"
    assert shown("columns", names, table_name="T", table_schema="")[3:5] == [
        ("g", "ALWAYS", "a+1", "YES"),
        ("v", "ALWAYS", "a", "NO"),
    ]


def test_columns_of_postgresql(shown) -> None:
    names = "column_name data_type character_maximum_length numeric_precision spanner_type"

    assert shown("columns", names, PG, table_name="t") == [
        ("k", "bigint", None, 64, "bigint"),
        ("s", "character varying", 9, None, "character varying(9)"),
        ("ct", "spanner.commit_timestamp", None, None, "spanner.commit_timestamp"),
        ("arr", "ARRAY", None, None, "character varying(3)[]"),
        ("n", "numeric", None, None, "numeric"),
        ("ts", "timestamp with time zone", None, None, "timestamp with time zone"),
        ("g", "bigint", None, 64, "bigint"),
    ]


def test_options_and_dependencies_of_columns(shown) -> None:
    assert shown("column_options", "table_name column_name option_name option_value") == [
        ("T", "ts", "allow_commit_timestamp", "TRUE"),
    ]
    assert shown("column_options", "table_name", PG) == []
    assert shown("column_column_usage", "table_name column_name dependent_column") == [
        ("T", "a", "g"),
        ("T", "a", "v"),
    ]


def test_views(shown) -> None:
    assert shown("views", "table_name view_definition security_type") == [
        ("V", "SELECT T.a FROM T", "INVOKER"),
    ]
