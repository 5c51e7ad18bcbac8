from __future__ import annotations

import pytest

from spanner_simulator.core.values import ValueType

TABLE = (
    "CREATE TABLE P (id INT64 NOT NULL, s STRING(10) NOT NULL, a INT64, b STRING(20), "
    "ts TIMESTAMP, n NUMERIC, g INT64 AS (a+1) STORED, v INT64 AS (id + 1), "
    "CONSTRAINT ck CHECK (n > 1)) PRIMARY KEY (id)"
)
INDEX = "CREATE INDEX I ON P (b)"
POLICY = "ALTER TABLE P ADD ROW DELETION POLICY (OLDER_THAN(ts, INTERVAL 7 DAY))"
REFUSALS = [
    ((), "ADD COLUMN a INT64", "FAILED_PRECONDITION Duplicate column name P.a."),
    (
        (),
        "ADD COLUMN nn INT64 NOT NULL",
        "UNIMPLEMENTED Cannot add NOT NULL column P.nn to existing table P.",
    ),
    (
        (),
        "ADD COLUMN x INT64 DEFAULT (a)",
        (
            "INVALID_ARGUMENT Error parsing the default value of column `P`.`x`: Default value "
            "expression of column `x` has a reference to another column. Default expressions "
            "referencing other columns are not supported."
        ),
    ),
    (
        (),
        "ADD COLUMN x STRING(0)",
        "INVALID_ARGUMENT Bad length for column P.x: 0 : Allowed length range: [1, 2621440].",
    ),
    (
        (),
        "ADD COLUMN x INT64 OPTIONS (allow_commit_timestamp = true)",
        (
            "FAILED_PRECONDITION Column P.x has invalid allow_commit_timestamp option.  Option "
            "only "
            "allowed on TIMESTAMP columns."
        ),
    ),
    ((), "DROP COLUMN id", "INVALID_ARGUMENT Cannot drop key column id from table P."),
    ((), "DROP COLUMN nope", "NOT_FOUND Column not found in table P: nope"),
    (
        (),
        "DROP COLUMN a",
        (
            "FAILED_PRECONDITION Cannot drop column `a` from table `P` because it is referenced by "
            "generated column `g`."
        ),
    ),
    (
        (),
        "DROP COLUMN n",
        (
            "FAILED_PRECONDITION Cannot drop column `n` on which there is a dependent check "
            "constraint: ck."
        ),
    ),
    (
        (INDEX,),
        "DROP COLUMN b",
        "FAILED_PRECONDITION Cannot drop column b from table P because it is used by index I.",
    ),
    (
        (POLICY,),
        "DROP COLUMN ts",
        (
            "INVALID_ARGUMENT ROW DELETION POLICY will break if drop/alter column named ts in "
            "table P. "
            "Row Deletion Policy must be set on column of type TIMESTAMP."
        ),
    ),
    (
        ("CREATE VIEW V SQL SECURITY INVOKER AS SELECT P.b FROM P",),
        "DROP COLUMN b",
        "FAILED_PRECONDITION Cannot drop column `b` on which there are dependent views: V.",
    ),
    (
        (),
        "ALTER COLUMN n FLOAT64",
        "INVALID_ARGUMENT Cannot change type of column `n` from `NUMERIC` to `FLOAT64`",
    ),
    (
        (),
        "ALTER COLUMN a STRING(3)",
        (
            "FAILED_PRECONDITION Cannot change the data type of column `a`, which has a dependent "
            "stored generated column."
        ),
    ),
    ((), "ALTER COLUMN id INT64", "INVALID_ARGUMENT Cannot change key column P.id."),
    (
        (INDEX,),
        "ALTER COLUMN b STRING(20) NOT NULL",
        (
            "FAILED_PRECONDITION Changing NOT NULL constraints on column b is not allowed "
            "because it "
            "affects index I."
        ),
    ),
    (
        (),
        "ALTER COLUMN g INT64",
        "INVALID_ARGUMENT Cannot convert generated column `P.g` to a regular column.",
    ),
    (
        (),
        "ALTER COLUMN a INT64 AS (3) STORED",
        "INVALID_ARGUMENT Cannot convert column `P.a` to a generated column.",
    ),
    (
        (),
        "ALTER COLUMN g SET DEFAULT (7)",
        (
            "FAILED_PRECONDITION Column P.g with a DEFAULT value cannot be a generated column "
            "and vice "
            "versa."
        ),
    ),
]


@pytest.mark.parametrize(("before", "action", "refusal"), REFUSALS)
def test_refusals(make, before: tuple[str, ...], action: str, refusal: str) -> None:
    assert make(TABLE, *before).refusal(f"ALTER TABLE P {action}") == refusal


def test_generated_columns_in_a_circle_are_refused(make) -> None:
    statement = (
        "CREATE TABLE T (a INT64, b INT64 AS (c) STORED, c INT64 AS (b) STORED) PRIMARY KEY (a)"
    )

    assert make().refusal(statement) == (
        "FAILED_PRECONDITION Cycle detected while analysing generated column, which include "
        "objects (b,c)"
    )


def test_a_new_column_comes_last_and_those_behind_a_dropped_one_move_up(make) -> None:
    made = make(
        TABLE,
        "ALTER TABLE P DROP COLUMN b",
        "ALTER TABLE P ADD COLUMN z INT64 NOT NULL DEFAULT (3)",
        "ALTER TABLE P ADD COLUMN IF NOT EXISTS z STRING(3)",
    )
    table = made.catalogue.table("P")

    assert table.ordinal_of["z"] == len(table.columns) == 8
    assert table.column("z").default == "3"
    assert list(table.ordinal_of.values()) == list(range(1, 9))


def test_a_column_is_altered_and_the_rest_of_it_stays(make) -> None:
    made = make(
        TABLE,
        "ALTER TABLE P ALTER COLUMN ts SET OPTIONS (allow_commit_timestamp = true)",
        "ALTER TABLE P ALTER COLUMN ts TIMESTAMP NOT NULL",
        "ALTER TABLE P ALTER COLUMN s BYTES(20) NOT NULL",
        "ALTER TABLE P ALTER COLUMN a SET DEFAULT (7)",
        "ALTER TABLE P ALTER COLUMN n NUMERIC DEFAULT (1)",
        "ALTER TABLE P ALTER COLUMN n NUMERIC",
    )
    table = made.catalogue.table("P")

    assert table.column("ts").commit_timestamp
    assert not table.column("ts").is_nullable
    assert table.column("s").value_type == ValueType("BYTES", None, 20)
    assert table.column("a").default == "7"
    assert table.column("n").default is None


def test_postgresql_alters_one_property_at_a_time(make) -> None:
    made = make("CREATE TABLE t (k bigint PRIMARY KEY, s text DEFAULT 'x')", dialect="POSTGRESQL")
    made.apply(
        "ALTER TABLE t ALTER COLUMN s TYPE varchar(9)",
        "ALTER TABLE t ALTER COLUMN s SET NOT NULL",
    )
    column = made.catalogue.table("t").column("s")

    assert (column.value_type.length, column.is_nullable, column.default) == (9, False, "'x'")


def test_a_part_of_a_date_is_no_column(make) -> None:
    made = make(
        "CREATE TABLE T (k INT64, Ts TIMESTAMP, Time INT64, Year INT64 AS (EXTRACT(YEAR FROM Ts "
        "AT TIME ZONE 'UTC')) STORED, Day TIMESTAMP AS (TIMESTAMP_TRUNC(Ts, DAY)) STORED, "
        "Month INT64 DEFAULT (EXTRACT(MONTH FROM CURRENT_TIMESTAMP()))) PRIMARY KEY (k)",
    )

    made.apply("ALTER TABLE T DROP COLUMN Time", "ALTER TABLE T DROP COLUMN Month")
    assert "referenced by generated column `Year`" in made.refusal("ALTER TABLE T DROP COLUMN Ts")


def test_a_generated_column_hangs_on_the_column_whose_field_it_is(make) -> None:
    made = make("CREATE TABLE T (k INT64, J JSON, Name JSON AS (J.name) STORED) PRIMARY KEY (k)")

    assert made.refusal("ALTER TABLE T DROP COLUMN J") == (
        "FAILED_PRECONDITION Cannot drop column `J` from table `T` because it is referenced by "
        "generated column `Name`."
    )


@pytest.mark.parametrize(
    ("definition", "action"),
    [
        (
            "TIMESTAMP DEFAULT (CURRENT_TIMESTAMP())",
            "ALTER COLUMN t SET OPTIONS (allow_commit_timestamp = true)",
        ),
        (
            "TIMESTAMP OPTIONS (allow_commit_timestamp = true)",
            "ALTER COLUMN t SET DEFAULT (CURRENT_TIMESTAMP())",
        ),
        ("INT64", "ADD COLUMN u TIMESTAMP DEFAULT (NULL) OPTIONS (allow_commit_timestamp = true)"),
    ],
)
def test_a_commit_timestamp_has_no_default(make, definition: str, action: str) -> None:
    made = make(f"CREATE TABLE T (k INT64, t {definition}) PRIMARY KEY (k)")
    name = "u" if " u " in action else "t"

    assert made.refusal(f"ALTER TABLE T {action}") == (
        f"FAILED_PRECONDITION Cannot use commit timestamp column `{name}` as a column with default "
        "value."
    )
