from __future__ import annotations

import pytest

TABLE = (
    "CREATE TABLE U (k INT64 NOT NULL, a INT64, b INT64, g INT64 AS (a + 1) STORED) PRIMARY KEY (k)"
)
CROWD = "because it is not allowed to have more than 3 Change Streams tracking the same table or"
ON_U = tuple(f"CREATE CHANGE STREAM S{number} FOR U" for number in (1, 2, 3))
ON_ALL = tuple(f"CREATE CHANGE STREAM S{number} FOR ALL" for number in (1, 2, 3))
MIXED = (ON_U[0], "CREATE CHANGE STREAM S2 FOR ALL", "CREATE CHANGE STREAM S3 FOR U(a)")
MUTABLE = "CREATE CHANGE STREAM C1 OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')"
CREATE = "CREATE CHANGE STREAM S"
# Other refusals, as Google's emulator words them, are in the corpus of `test_catalogue`.
ERRORS = [
    (("CREATE INDEX I ON U (a)",), f"{CREATE} FOR I", "does not support tracking Index I."),
    ((), f"{CREATE} FOR U(g)", "does not support tracking non-key generated column U.g."),
    ((), f"{CREATE} OPTIONS (retention_period = '31d')", "a value in the range [24h, 30d]."),
    ((), f"{CREATE} OPTIONS (retention_period = '86399s')", "a value in the range [24h, 30d]."),
    ((), f"{CREATE} OPTIONS (value_capture_type = 'OLD')", "Invalid value_capture_type: OLD."),
    ((), f"{CREATE} OPTIONS (partition_mode = 'X')", "Invalid partition_mode: X."),
    (MIXED, "CREATE CHANGE STREAM S4 FOR U(a)", f"{CROWD} non-key column or ALL: a."),
    (ON_U, "CREATE CHANGE STREAM S4 FOR U", f"{CROWD} non-key column or ALL: U."),
    (ON_ALL, "CREATE CHANGE STREAM S4 FOR ALL", f"{CROWD} non-key column or ALL: ALL."),
    ((*ON_U, "CREATE CHANGE STREAM S4"), "ALTER CHANGE STREAM S4 SET FOR U(b)", CROWD),
    (tuple(f"{CREATE}{number}" for number in range(10)), CREATE, "(limit 10) has been reached."),
    (MIXED, "DROP TABLE U", "Table U is tracked by 2 Change Stream: S1,S3."),
    ((ON_U[0],), "CREATE TABLE read_s1 (k INT64) PRIMARY KEY (k)", "Duplicate name in schema"),
    (
        (MUTABLE,),
        "ALTER CHANGE STREAM C1 SET OPTIONS (partition_mode = 'IMMUTABLE_KEY_RANGE')",
        "Cannot alter partition_mode to a different value.",
    ),
]


@pytest.mark.parametrize(("before", "statement", "refusal"), ERRORS)
def test_refusals(make, before: tuple[str, ...], statement: str, refusal: str) -> None:
    message = make(TABLE, *before).refusal(statement)
    assert message.startswith("FAILED_PRECONDITION ")
    assert refusal in message


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
        "FAILED_PRECONDITION Cannot drop table n.T. Table n.T is tracked by 1 Change Stream: S."
    )


def test_an_option_set_to_null_is_reset(make) -> None:
    made = make(
        "CREATE CHANGE STREAM S OPTIONS (value_capture_type = 'NEW_ROW', exclude_insert = true, "
        "retention_period = NULL)"
    )
    made.apply(
        "ALTER CHANGE STREAM S SET OPTIONS (value_capture_type = NULL, partition_mode = NULL)"
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
