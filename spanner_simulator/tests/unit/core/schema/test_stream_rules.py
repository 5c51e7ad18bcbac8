from __future__ import annotations

import pytest

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.schema_objects import duration_us
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.errors import SpannerError

TABLE = (
    "CREATE TABLE U (k INT64 NOT NULL, a INT64, b INT64, g INT64 AS (a + 1) STORED) PRIMARY KEY (k)"
)
POSTGRES_TABLE = (
    "CREATE TABLE u (k bigint PRIMARY KEY, a bigint, b bigint, "
    "g bigint GENERATED ALWAYS AS (a + 1) STORED)"
)
TRACKABLE = (
    "Change Streams support tracking Tables and Columns in the default schema (not in "
    "INFORMATION_SCHEMA or SPANNER_SYS). Change Streams, Indexes, Queues, Views/Functions and "
    "non-key Generated Columns that are not STORED VOLATILE are not supported for tracking."
)
# The service's table of DDL errors: what was there, what was asked, code and text.
ERRORS = {
    "key column listed": (
        (),
        "CREATE CHANGE STREAM S FOR U(k)",
        (
            "FAILED_PRECONDITION The FOR clause of Change Stream S should not list the primary key "
            "column k of Table U. Please list non-key columns only, because primary key columns "
            "are "
            "always tracked if the table is tracked."
        ),
    ),
    "unknown column": (
        (),
        "CREATE CHANGE STREAM S FOR U(nope)",
        (
            "FAILED_PRECONDITION Change Stream S cannot track column nope because it does not "
            "exist in "
            "Table U."
        ),
    ),
    "unknown table": (
        (),
        "CREATE CHANGE STREAM S FOR Nope",
        (
            "FAILED_PRECONDITION Change Stream S cannot track Nope because either Change Streams "
            "do "
            "not track database objects of this type, or this Table does not exist."
        ),
    ),
    "a view": (
        ("CREATE VIEW V SQL SECURITY INVOKER AS SELECT U.k FROM U",),
        "CREATE CHANGE STREAM S FOR V",
        (
            "FAILED_PRECONDITION Change Stream S cannot track V because either Change Streams do "
            "not "
            "track database objects of this type, or this Table does not exist."
        ),
    ),
    "an index": (
        ("CREATE INDEX I ON U (a)",),
        "CREATE CHANGE STREAM S FOR I",
        f"FAILED_PRECONDITION Change Stream S does not support tracking Index I. {TRACKABLE}",
    ),
    "table twice": (
        (),
        "CREATE CHANGE STREAM S FOR U, U",
        (
            "FAILED_PRECONDITION Change Stream S should not list Table U more than once in the FOR "
            "clause."
        ),
    ),
    "column twice": (
        (),
        "CREATE CHANGE STREAM S FOR U(a, a)",
        (
            "FAILED_PRECONDITION Change Stream S should not list Column a of Table U more than "
            "once in "
            "the FOR clause."
        ),
    ),
    "generated column": (
        (),
        "CREATE CHANGE STREAM S FOR U(g)",
        (
            "FAILED_PRECONDITION Change Stream S does not support tracking non-key generated "
            "column "
            f"U.g. {TRACKABLE}"
        ),
    ),
    "retention too long": (
        (),
        "CREATE CHANGE STREAM S OPTIONS (retention_period = '31d')",
        (
            "FAILED_PRECONDITION Invalid retention_period: 31d. Change Streams retention period "
            "must "
            "be a value in the range [24h, 30d]."
        ),
    ),
    "retention too short": (
        (),
        "CREATE CHANGE STREAM S OPTIONS (retention_period = '86399s')",
        (
            "FAILED_PRECONDITION Invalid retention_period: 86399s. Change Streams retention period "
            "must be a value in the range [24h, 30d]."
        ),
    ),
    "retention malformed": (
        (),
        "CREATE CHANGE STREAM S OPTIONS (retention_period = 'abc')",
        "FAILED_PRECONDITION Invalid time duration format: abc.",
    ),
    "capture type": (
        (),
        "CREATE CHANGE STREAM S OPTIONS (value_capture_type = 'OLD')",
        (
            "FAILED_PRECONDITION Invalid value_capture_type: OLD. Change Streams only support "
            "value "
            "capture types in OLD_AND_NEW_VALUES, NEW_ROW, and NEW_VALUES."
        ),
    ),
    "more than 3 on a column": (
        (
            "CREATE CHANGE STREAM S1 FOR U",
            "CREATE CHANGE STREAM S2 FOR U(a)",
            "CREATE CHANGE STREAM S3 FOR ALL",
        ),
        "CREATE CHANGE STREAM S4 FOR U(a)",
        (
            "FAILED_PRECONDITION Failed to create or alter Change Stream S4 : because it is not "
            "allowed to have more than 3 Change Streams tracking the same table or non-key "
            "column or "
            "ALL: a."
        ),
    ),
    "more than 3 on a table": (
        tuple(f"CREATE CHANGE STREAM S{number} FOR U" for number in (1, 2, 3)),
        "CREATE CHANGE STREAM S4 FOR U",
        (
            "FAILED_PRECONDITION Failed to create or alter Change Stream S4 : because it is not "
            "allowed to have more than 3 Change Streams tracking the same table or non-key "
            "column or "
            "ALL: U."
        ),
    ),
    "more than 3 on ALL": (
        tuple(f"CREATE CHANGE STREAM S{number} FOR ALL" for number in (1, 2, 3)),
        "CREATE CHANGE STREAM S4 FOR ALL",
        (
            "FAILED_PRECONDITION Failed to create or alter Change Stream S4 : because it is not "
            "allowed to have more than 3 Change Streams tracking the same table or non-key "
            "column or "
            "ALL: ALL."
        ),
    ),
    "more than 3 by alteration": (
        (
            *(f"CREATE CHANGE STREAM S{number} FOR U" for number in (1, 2, 3)),
            "CREATE CHANGE STREAM S4",
        ),
        "ALTER CHANGE STREAM S4 SET FOR U(b)",
        (
            "FAILED_PRECONDITION Failed to create or alter Change Stream S4 : because it is not "
            "allowed to have more than 3 Change Streams tracking the same table or non-key "
            "column or "
            "ALL: b."
        ),
    ),
    "more than 10 in the database": (
        tuple(f"CREATE CHANGE STREAM S{number}" for number in range(10)),
        "CREATE CHANGE STREAM S",
        (
            "FAILED_PRECONDITION Cannot add Change Stream S : because the maximum number of Change "
            "Streams per Database (limit 10) has been reached."
        ),
    ),
    "drop a tracked table": (
        (
            "CREATE CHANGE STREAM S1 FOR U",
            "CREATE CHANGE STREAM S2 FOR ALL",
            "CREATE CHANGE STREAM S3 FOR U(a)",
        ),
        "DROP TABLE U",
        (
            "FAILED_PRECONDITION Cannot drop table U. Table U is tracked by 2 Change Stream: "
            "S1,S3. "
            "Tables explicitly tracked by a Change Stream cannot be dropped. Please drop the "
            "Change "
            "Stream or modify its FOR clause to stop tracking the table explicitly before "
            "dropping the "
            "table."
        ),
    ),
    "drop a tracked column": (
        (
            "CREATE CHANGE STREAM S1 FOR U",
            "CREATE CHANGE STREAM S2 FOR U(b)",
            "CREATE CHANGE STREAM S3 FOR ALL",
        ),
        "ALTER TABLE U DROP COLUMN b",
        (
            "FAILED_PRECONDITION Cannot drop column U.b . Column U.b is tracked by 3 Change "
            "Stream: "
            "S1,S2,S3. Columns explicitly tracked by a Change Stream cannot be dropped. Please "
            "alter "
            "the Change Stream to stop tracking the column before dropping the column."
        ),
    ),
    "DROP FOR with no FOR clause": (
        ("CREATE CHANGE STREAM S3",),
        "ALTER CHANGE STREAM S3 DROP FOR ALL",
        (
            "FAILED_PRECONDITION The ALTER CHANGE STREAM DROP FOR clause cannot be applied on "
            "Change "
            "Stream S3, because it does not have a FOR clause and it does not track any database "
            "object."
        ),
    ),
    "duplicate name": (
        ("CREATE CHANGE STREAM S1",),
        "CREATE CHANGE STREAM S1",
        "FAILED_PRECONDITION Duplicate name in schema: S1.",
    ),
    "name of a table": (
        (),
        "CREATE CHANGE STREAM U",
        "FAILED_PRECONDITION Duplicate name in schema: U.",
    ),
    "name of another stream's function": (
        ("CREATE CHANGE STREAM S1",),
        "CREATE CHANGE STREAM READ_S1",
        "FAILED_PRECONDITION Duplicate name in schema: READ_S1.",
    ),
    "a table with the name of a function": (
        ("CREATE CHANGE STREAM S1",),
        "CREATE TABLE read_s1 (k INT64) PRIMARY KEY (k)",
        "FAILED_PRECONDITION Duplicate name in schema: read_s1.",
    ),
    "missing stream": ((), "DROP CHANGE STREAM S9", "NOT_FOUND Change Stream not found: S9"),
    "unknown option": (
        (),
        "CREATE CHANGE STREAM S OPTIONS (bogus = 1)",
        (
            "INVALID_ARGUMENT Error parsing Spanner DDL statement: CREATE CHANGE STREAM S OPTIONS "
            "(bogus = 1) : Option: bogus is unknown."
        ),
    ),
    "non-bool for a bool": (
        (),
        "CREATE CHANGE STREAM S OPTIONS (exclude_insert = 'x')",
        (
            "INVALID_ARGUMENT Error parsing Spanner DDL statement: CREATE CHANGE STREAM S OPTIONS "
            "(exclude_insert = 'x') : Unexpected value for option: exclude_insert. Supported "
            "option "
            "values are booleans and NULL."
        ),
    ),
    "bad partition_mode": (
        (),
        "CREATE CHANGE STREAM S OPTIONS (partition_mode = 'X')",
        (
            "FAILED_PRECONDITION Invalid partition_mode: X. Change Streams only support partition "
            "modes in IMMUTABLE_KEY_RANGE and MUTABLE_KEY_RANGE."
        ),
    ),
    "alter partition_mode": (
        ("CREATE CHANGE STREAM C1 OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')",),
        "ALTER CHANGE STREAM C1 SET OPTIONS (partition_mode = 'IMMUTABLE_KEY_RANGE')",
        (
            "FAILED_PRECONDITION Cannot alter partition_mode to a different value. Change Stream "
            "C1 "
            "was created with partition_mode MUTABLE_KEY_RANGE."
        ),
    ),
    "name too long": (
        (),
        f"CREATE CHANGE STREAM {'x' * 119}",
        f"INVALID_ARGUMENT Change Stream name not valid: {'x' * 119}.",
    ),
}
POSTGRES_ERRORS = {
    "key column listed": (
        (),
        "CREATE CHANGE STREAM S FOR U(k)",
        (
            "FAILED_PRECONDITION The FOR clause of Change Stream s should not list the primary key "
            "column k of Table u. Please list non-key columns only, because primary key columns "
            "are "
            "always tracked if the table is tracked."
        ),
    ),
    "generated column": (
        (),
        "CREATE CHANGE STREAM s FOR u(g)",
        (
            "FAILED_PRECONDITION Change Stream s does not support tracking non-key generated "
            "column "
            f"u.g. {TRACKABLE}"
        ),
    ),
    "retention": (
        (),
        "CREATE CHANGE STREAM s WITH (retention_period = '23h')",
        (
            "FAILED_PRECONDITION Invalid retention_period: 23h. Change Streams retention period "
            "must "
            "be a value in the range [24h, 30d]."
        ),
    ),
    "capture type no text": (
        (),
        "CREATE CHANGE STREAM s WITH (value_capture_type = true)",
        (
            "FAILED_PRECONDITION Invalid value_capture_type: true. Change Streams only support "
            "value "
            "capture types in OLD_AND_NEW_VALUES, NEW_ROW, and NEW_VALUES."
        ),
    ),
    "capture type": (
        ("CREATE CHANGE STREAM s",),
        "ALTER CHANGE STREAM s SET (value_capture_type = 'X')",
        (
            "FAILED_PRECONDITION Invalid value_capture_type: X. Change Streams only support value "
            "capture types in OLD_AND_NEW_VALUES, NEW_ROW, and NEW_VALUES."
        ),
    ),
    "missing stream": (
        (),
        "ALTER CHANGE STREAM S9 DROP FOR ALL",
        "NOT_FOUND Change Stream not found: s9",
    ),
}


@pytest.mark.parametrize("cause", ERRORS)
def test_refusals_of_googlesql(make, cause: str) -> None:
    before, statement, refusal = ERRORS[cause]

    assert make(TABLE, *before).refusal(statement) == refusal


@pytest.mark.parametrize("cause", POSTGRES_ERRORS)
def test_refusals_of_postgresql(make, cause: str) -> None:
    before, statement, refusal = POSTGRES_ERRORS[cause]

    assert make(POSTGRES_TABLE, *before, dialect="POSTGRESQL").refusal(statement) == refusal


def test_postgresql_keeps_read_functions_in_a_schema_of_their_own(make) -> None:
    made = make(
        "CREATE CHANGE STREAM s1",
        "CREATE CHANGE STREAM read_s1",
        "CREATE TABLE read_json_s1 (k bigint PRIMARY KEY)",
        dialect="POSTGRESQL",
    )

    assert list(made.catalogue.streams) == ["s1", "read_s1"]


def test_a_table_in_quotes_may_be_called_all(make) -> None:
    made = make("CREATE TABLE `ALL` (k INT64) PRIMARY KEY (k)", "CREATE CHANGE STREAM S FOR `ALL`")
    watch = made.catalogue.stream("S").watch

    assert (watch.everything, watch.tables) == (False, (("ALL", None),))


def test_whole_tables_let_go_of_dropped_columns_and_pick_up_new_ones(make) -> None:
    made = make(
        TABLE,
        "CREATE CHANGE STREAM S FOR u",
        "CREATE CHANGE STREAM Everything FOR ALL",
        "CREATE CHANGE STREAM Listed FOR U(A)",
        "CREATE CHANGE STREAM Keys FOR U()",
        "ALTER TABLE U ADD COLUMN c INT64",
        "ALTER TABLE U DROP COLUMN b",
    )
    table = made.catalogue.table("U")
    tracked = {name: one.tracked_columns(table) for name, one in made.catalogue.streams.items()}

    assert tracked == {"s": ("a", "c"), "everything": ("a", "c"), "listed": ("a",), "keys": ()}


def test_a_table_in_a_named_schema_is_watched(make) -> None:
    made = make(
        "CREATE SCHEMA n",
        "CREATE TABLE n.T (k INT64, a INT64) PRIMARY KEY (k)",
        "CREATE CHANGE STREAM S FOR N.t(a)",
    )

    assert made.catalogue.stream("s").tracked_columns(made.catalogue.table("n.T")) == ("a",)
    assert made.refusal("DROP TABLE n.T").startswith(
        "FAILED_PRECONDITION Cannot drop table n.T. Table n.T is tracked by 1 Change Stream: S.",
    )


def test_an_option_set_to_null_is_reset(make) -> None:
    made = make(
        "CREATE CHANGE STREAM S OPTIONS (value_capture_type = 'NEW_ROW', exclude_insert = true, "
        "retention_period = NULL)",
    )
    made.apply(
        "ALTER CHANGE STREAM S SET OPTIONS (value_capture_type = NULL, partition_mode = NULL)",
    )
    stream = made.catalogue.stream("S")

    assert stream.options == (("exclude_insert", True),)
    assert stream.capture_type == "OLD_AND_NEW_VALUES"


def test_suspending_and_retargeting(make) -> None:
    made = make(TABLE, "CREATE CHANGE STREAM S FOR U", "ALTER CHANGE STREAM S DROP FOR ALL")

    assert made.catalogue.stream("S").watch is None
    made.apply("ALTER CHANGE STREAM S SET FOR ALL")
    assert made.catalogue.stream("S").watch.everything
    made.apply("DROP CHANGE STREAM s", "DROP CHANGE STREAM IF EXISTS s")
    assert made.catalogue.streams == {}
    made.apply("CREATE CHANGE STREAM IF NOT EXISTS S", "CREATE CHANGE STREAM IF NOT EXISTS s")


def test_the_emulator_keeps_records_for_a_week_at_most() -> None:
    catalogue = Catalogue(strict_emulator=True)
    for statement in (
        "CREATE CHANGE STREAM S",
        "ALTER CHANGE STREAM S SET FOR ALL",
        "CREATE CHANGE STREAM T OPTIONS (retention_period = '7d')",
    ):
        apply_statement(catalogue, parse_ddl(statement), now_us=1)

    assert catalogue.stream("S").retention_us == duration_us("1d")
    with pytest.raises(SpannerError) as caught:
        apply_statement(
            catalogue,
            parse_ddl("ALTER CHANGE STREAM T SET OPTIONS (retention_period = '8d')"),
            now_us=2,
        )
    assert caught.value.message == (
        "Invalid retention_period: 8d. Change Streams retention period must be a value in the "
        "range [24h, 7d]."
    )
