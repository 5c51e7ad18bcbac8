from __future__ import annotations

import pytest

from tidegate.spanner_simulator.core.schema.catalogue import Catalogue
from tidegate.spanner_simulator.core.schema.ddl import parse_ddl
from tidegate.spanner_simulator.errors import Code, SpannerError

TABLE = "CREATE TABLE U (k INT64 NOT NULL, a INT64, b INT64) PRIMARY KEY (k)"


def make(*statements: str) -> Catalogue:
    catalogue = Catalogue()
    for statement in statements:
        catalogue.apply(parse_ddl(statement), now_us=1)
    return catalogue


REFUSALS = [
    (
        (TABLE,),
        "CREATE CHANGE STREAM S FOR U(k)",
        (
            "The FOR clause of Change Stream S should not list the primary key column k of Table "
            "U. Please list non-key columns only, because primary key columns are always tracked "
            "if the table is tracked."
        ),
    ),
    (
        (TABLE,),
        "CREATE CHANGE STREAM S FOR U(nope)",
        "Change Stream S cannot track column nope because it does not exist in Table U.",
    ),
    (
        (),
        "CREATE CHANGE STREAM S FOR Nope",
        (
            "Change Stream S cannot track Nope because either Change Streams do not track database "
            "objects of this type, or this Table does not exist."
        ),
    ),
    (
        (TABLE,),
        "CREATE CHANGE STREAM S FOR U, U",
        "Change Stream S should not list Table U more than once in the FOR clause.",
    ),
    (
        (),
        "CREATE CHANGE STREAM S OPTIONS (retention_period = '31d')",
        (
            "Invalid retention_period: 31d. Change Streams retention period must be a value in the "
            "range [24h, 30d]."
        ),
    ),
    (
        (),
        "CREATE CHANGE STREAM S OPTIONS (retention_period = 'abc')",
        "Invalid time duration format: abc.",
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
        (TABLE, *(f"CREATE CHANGE STREAM S{n} FOR U" for n in (1, 2, 3))),
        "CREATE CHANGE STREAM S4 FOR U(a)",
        (
            "Failed to create or alter Change Stream S4 : because it is not allowed to have more "
            "than 3 Change Streams tracking the same table or non-key column or ALL: a."
        ),
    ),
    (
        tuple(f"CREATE CHANGE STREAM S{n}" for n in range(10)),
        "CREATE CHANGE STREAM S",
        (
            "Cannot add Change Stream S : because the maximum number of Change Streams per "
            "Database (limit 10) has been reached."
        ),
    ),
    (
        (TABLE, "CREATE CHANGE STREAM S1 FOR U", "CREATE CHANGE STREAM S3 FOR U(a)"),
        "DROP TABLE U",
        (
            "Cannot drop table U. Table U is tracked by 2 Change Stream: S1,S3. Tables explicitly "
            "tracked by a Change Stream cannot be dropped. Please drop the Change Stream or modify "
            "its FOR clause to stop tracking the table explicitly before dropping the table."
        ),
    ),
    (
        (TABLE, "CREATE CHANGE STREAM S1 FOR U(a)"),
        "ALTER TABLE U DROP COLUMN a",
        (
            "Cannot drop column U.a . Column U.a is tracked by 1 Change Stream: S1. Columns "
            "explicitly tracked by a Change Stream cannot be dropped. Please drop the Change "
            "Stream or modify its FOR clause to stop tracking the column explicitly before "
            "dropping the column."
        ),
    ),
    (
        ("CREATE CHANGE STREAM S3",),
        "ALTER CHANGE STREAM S3 DROP FOR ALL",
        (
            "The ALTER CHANGE STREAM DROP FOR clause cannot be applied on Change Stream S3, "
            "because it does not have a FOR clause and it does not track any database object."
        ),
    ),
    (("CREATE CHANGE STREAM S1",), "CREATE CHANGE STREAM S1", "Duplicate name in schema: S1."),
    (
        ("CREATE CHANGE STREAM S1",),
        "CREATE TABLE READ_S1 (k INT64) PRIMARY KEY (k)",
        "Duplicate name in schema: READ_S1.",
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
        (),
        "CREATE TABLE T (A INT64) PRIMARY KEY (B)",
        "Table T references nonexistent key column B.",
    ),
    ((TABLE,), "ALTER TABLE U ADD COLUMN a INT64", "Duplicate column name U.a."),
]


@pytest.mark.parametrize(("before", "statement", "message"), REFUSALS)
def test_failed_precondition(before: tuple[str, ...], statement: str, message: str) -> None:
    catalogue = make(*before)

    with pytest.raises(SpannerError) as caught:
        catalogue.apply(parse_ddl(statement), now_us=2)

    assert caught.value.message == message
    assert caught.value.code is Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ("DROP CHANGE STREAM S9", Code.NOT_FOUND, "Change Stream not found: S9"),
        ("DROP TABLE T9", Code.NOT_FOUND, "Table not found: T9"),
        ("GRANT ROLE r TO ROLE r", Code.NOT_FOUND, "Role not found: r."),
        (
            "CREATE CHANGE STREAM S OPTIONS (bogus = 1)",
            Code.INVALID_ARGUMENT,
            "Error parsing Spanner DDL statement: Option: bogus is unknown.",
        ),
        (
            "CREATE CHANGE STREAM S OPTIONS (exclude_insert = 'x')",
            Code.INVALID_ARGUMENT,
            (
                "Error parsing Spanner DDL statement: Unexpected value for option: exclude_insert. "
                "Supported option values are booleans and NULL."
            ),
        ),
    ],
)
def test_other_refusals(statement: str, code: Code, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        make().apply(parse_ddl(statement), now_us=2)

    assert (caught.value.code, caught.value.message) == (code, message)


def test_whole_table_streams_follow_new_and_dropped_columns() -> None:
    catalogue = make(TABLE, "CREATE CHANGE STREAM S FOR U")
    catalogue.apply(parse_ddl("ALTER TABLE U ADD COLUMN c INT64"), now_us=2)
    catalogue.apply(parse_ddl("ALTER TABLE U DROP COLUMN a"), now_us=3)
    table = catalogue.table("U")

    assert catalogue.stream("S").tracked_columns(table) == ("b", "c")
    assert table.ordinal_of == {"k": 1, "b": 3, "c": 4}


def test_an_option_set_to_null_is_reset() -> None:
    catalogue = make("CREATE CHANGE STREAM S OPTIONS (value_capture_type = 'NEW_ROW')")
    statement = "ALTER CHANGE STREAM S SET OPTIONS (value_capture_type = NULL)"
    catalogue.apply(parse_ddl(statement), now_us=2)

    assert catalogue.stream("S").options == ()
    assert catalogue.stream("S").capture_type == "OLD_AND_NEW_VALUES"


def test_privileges_come_directly_or_through_roles_and_can_be_revoked() -> None:
    catalogue = make(
        TABLE,
        "CREATE CHANGE STREAM S FOR U",
        "CREATE ROLE a",
        "CREATE ROLE b",
        "GRANT EXECUTE ON TABLE FUNCTION READ_S TO ROLE a",
        "GRANT ROLE a TO ROLE b",
    )

    assert catalogue.has_privilege("b", "TABLE FUNCTION", "read_s", "EXECUTE")
    assert not catalogue.has_privilege("b", "CHANGE STREAM", "S", "SELECT")
    catalogue.apply(parse_ddl("REVOKE ROLE a FROM ROLE b"), now_us=2)
    assert not catalogue.has_privilege("b", "TABLE FUNCTION", "READ_S", "EXECUTE")
