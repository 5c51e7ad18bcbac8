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
TRACKABLE = (
    "Change Streams support tracking Tables and Columns in the default schema (not in "
    "INFORMATION_SCHEMA or SPANNER_SYS). Change Streams, Indexes, Queues, Views/Functions and "
    "non-key Generated Columns that are not STORED VOLATILE are not supported for tracking."
)
CROWD = (
    "Failed to create or alter Change Stream S4 : because it is not allowed to have more than 3 "
    "Change Streams tracking the same table or non-key column or ALL: "
)
ON_U = tuple(f"CREATE CHANGE STREAM S{number} FOR U" for number in (1, 2, 3))
# Other refusals, as Google's emulator words them, are in the corpus of `test_catalogue`.
ERRORS = [
    (
        ("CREATE INDEX I ON U (a)",),
        "CREATE CHANGE STREAM S FOR I",
        f"Change Stream S does not support tracking Index I. {TRACKABLE}",
    ),
    (
        (),
        "CREATE CHANGE STREAM S FOR U(g)",
        "Change Stream S does not support tracking non-key generated column U.g. " + TRACKABLE,
    ),
    *(
        (
            (),
            f"CREATE CHANGE STREAM S OPTIONS (retention_period = '{period}')",
            (
                f"Invalid retention_period: {period}. Change Streams retention period must be a "
                "value in the range [24h, 30d]."
            ),
        )
        for period in ("31d", "86399s")
    ),
    (
        (),
        "CREATE CHANGE STREAM S OPTIONS (value_capture_type = 'OLD')",
        (
            "Invalid value_capture_type: OLD. Change Streams only support value capture types in "
            "OLD_AND_NEW_VALUES, NEW_ROW, and NEW_VALUES."
        ),
    ),
    (
        (ON_U[0], "CREATE CHANGE STREAM S2 FOR U(a)", "CREATE CHANGE STREAM S3 FOR ALL"),
        "CREATE CHANGE STREAM S4 FOR U(a)",
        CROWD + "a.",
    ),
    (ON_U, "CREATE CHANGE STREAM S4 FOR U", CROWD + "U."),
    (
        tuple(f"CREATE CHANGE STREAM S{number} FOR ALL" for number in (1, 2, 3)),
        "CREATE CHANGE STREAM S4 FOR ALL",
        CROWD + "ALL.",
    ),
    ((*ON_U, "CREATE CHANGE STREAM S4"), "ALTER CHANGE STREAM S4 SET FOR U(b)", CROWD + "b."),
    (
        tuple(f"CREATE CHANGE STREAM S{number}" for number in range(10)),
        "CREATE CHANGE STREAM S",
        (
            "Cannot add Change Stream S : because the maximum number of Change Streams per "
            "Database (limit 10) has been reached."
        ),
    ),
    (
        (ON_U[0], "CREATE CHANGE STREAM S2 FOR ALL", "CREATE CHANGE STREAM S3 FOR U(a)"),
        "DROP TABLE U",
        (
            "Cannot drop table U. Table U is tracked by 2 Change Stream: S1,S3. Tables explicitly "
            "tracked by a Change Stream cannot be dropped. Please drop the Change Stream or modify "
            "its FOR clause to stop tracking the table explicitly before dropping the table."
        ),
    ),
    (
        ("CREATE CHANGE STREAM S1",),
        "CREATE TABLE read_s1 (k INT64) PRIMARY KEY (k)",
        "Duplicate name in schema: read_s1.",
    ),
    (
        (),
        "CREATE CHANGE STREAM S OPTIONS (partition_mode = 'X')",
        (
            "Invalid partition_mode: X. Change Streams only support partition modes in "
            "IMMUTABLE_KEY_RANGE and MUTABLE_KEY_RANGE."
        ),
    ),
    (
        ("CREATE CHANGE STREAM C1 OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')",),
        "ALTER CHANGE STREAM C1 SET OPTIONS (partition_mode = 'IMMUTABLE_KEY_RANGE')",
        (
            "Cannot alter partition_mode to a different value. Change Stream C1 was created with "
            "partition_mode MUTABLE_KEY_RANGE."
        ),
    ),
]


@pytest.mark.parametrize(("before", "statement", "refusal"), ERRORS)
def test_refusals(make, before: tuple[str, ...], statement: str, refusal: str) -> None:
    assert make(TABLE, *before).refusal(statement) == f"FAILED_PRECONDITION {refusal}"


def test_a_name_leaves_room_for_that_of_its_function(make) -> None:
    name = "x" * 119

    assert make().refusal(f"CREATE CHANGE STREAM {name}") == (
        f"INVALID_ARGUMENT Change Stream name not valid: {name}."
    )


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
