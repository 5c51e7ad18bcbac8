from __future__ import annotations

import pytest

from spanner_simulator.core.schema.schema_objects import Index
from spanner_simulator.core.schema.statements import KeyColumn

TABLE = "CREATE TABLE P (id INT64, a INT64, b STRING(9), arr ARRAY<INT64>, j JSON) PRIMARY KEY (id)"
CHILD = "CREATE TABLE C (id INT64, c INT64) PRIMARY KEY (id, c), INTERLEAVE IN PARENT P"
REFUSALS = [
    ("CREATE INDEX J ON nope (a)", "NOT_FOUND Table not found: nope"),
    (
        "CREATE INDEX J ON P (nope)",
        (
            "INVALID_ARGUMENT Index J specifies key column nope which does not exist in the "
            "index's "
            "base table."
        ),
    ),
    ("CREATE INDEX J ON P (a, A)", "INVALID_ARGUMENT Index J specifies key column A twice."),
    (
        "CREATE INDEX J ON P (a) STORING (a)",
        "INVALID_ARGUMENT Index J specifies stored column a already specified as primary key.",
    ),
    (
        "CREATE INDEX J ON P (a) STORING (id)",
        "FAILED_PRECONDITION Index J specifies stored column id which is a key of table P.",
    ),
    (
        "CREATE INDEX J ON P (arr)",
        "FAILED_PRECONDITION Cannot reference ARRAY arr in the creation of index J.",
    ),
    ("CREATE INDEX J ON P ()", "INVALID_ARGUMENT Index J does not specify any key columns."),
    (
        "CREATE INDEX J ON C (c), INTERLEAVE IN P",
        "FAILED_PRECONDITION Index J does not reference index parent key column id.",
    ),
    (
        "CREATE INDEX J ON C (id DESC, c), INTERLEAVE IN P",
        "FAILED_PRECONDITION Index J references parent key column id with incorrect order ASC.",
    ),
    (
        "CREATE INDEX J ON P (a), INTERLEAVE IN C",
        (
            "FAILED_PRECONDITION Cannot interleave index J of table P within table C because C "
            "is not "
            "an ancestor of P."
        ),
    ),
    ("CREATE INDEX P ON P (a)", "FAILED_PRECONDITION Duplicate name in schema: P."),
    ("DROP INDEX J", "NOT_FOUND Index not found: J"),
    ("ALTER INDEX J ADD STORED COLUMN a", "NOT_FOUND Index not found: J"),
    (
        "ALTER INDEX I DROP STORED COLUMN a",
        "NOT_FOUND Index I does not have stored column a.",
    ),
    (
        "ALTER INDEX I ADD STORED COLUMN b",
        "FAILED_PRECONDITION Column b is already existed in index I.",
    ),
]


@pytest.mark.parametrize(("statement", "refusal"), REFUSALS)
def test_refusals(make, statement: str, refusal: str) -> None:
    assert make(TABLE, CHILD, "CREATE INDEX I ON P (b)").refusal(statement) == refusal


def test_an_index_names_columns_as_the_table_does(make) -> None:
    made = make(
        TABLE,
        CHILD,
        "CREATE UNIQUE NULL_FILTERED INDEX I ON p (A DESC) STORING (B)",
        "CREATE INDEX IC ON C (ID, c), INTERLEAVE IN p",
        "ALTER INDEX i ADD STORED COLUMN J",
        "CREATE INDEX IF NOT EXISTS i ON P (b)",
    )

    assert made.catalogue.index("i") == Index(
        "I",
        "P",
        (KeyColumn("a", descending=True),),
        ("b", "j"),
        is_unique=True,
        is_null_filtered=True,
    )
    assert made.catalogue.index("IC").interleave_in == "P"
    assert [index.name for index in made.catalogue.indexes_of("P")] == ["I"]


def test_an_index_is_in_its_tables_schema(make) -> None:
    made = make("CREATE SCHEMA n", "CREATE TABLE n.T (a INT64) PRIMARY KEY (a)")

    assert made.refusal("CREATE INDEX I ON n.T (a)") == (
        "FAILED_PRECONDITION Index I does not match the schema of the indexed table n.T."
    )
    made.apply("CREATE INDEX n.I ON n.T (a)", "DROP INDEX N.i")
    assert made.catalogue.indexes == {}


def test_postgresql_puts_an_index_into_its_tables_schema(make) -> None:
    made = make(
        "CREATE SCHEMA n",
        "CREATE TABLE n.t (a bigint PRIMARY KEY, b bigint)",
        "CREATE INDEX i ON n.t (b) WHERE b IS NOT NULL",
        dialect="POSTGRESQL",
    )

    assert made.catalogue.index("n.i").not_null == ("b",)
