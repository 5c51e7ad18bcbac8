from __future__ import annotations

import pytest

from spanner_simulator.core.schema.schema_objects import Index
from spanner_simulator.core.schema.statements import KeyColumn
from spanner_simulator.core.values import ValueType

TABLE = (
    "CREATE TABLE P (id INT64 NOT NULL, s STRING(10) NOT NULL, a INT64, b STRING(20), "
    "ts TIMESTAMP, n NUMERIC, g INT64 AS (a+1) STORED, arr ARRAY<INT64>, "
    "CONSTRAINT ck CHECK (n > 1)) PRIMARY KEY (id)"
)
PARENT = "CREATE TABLE Q (k INT64 NOT NULL, s STRING(9), ts TIMESTAMP) PRIMARY KEY (k DESC, s)"
CHILD = (
    "CREATE TABLE C (k INT64 NOT NULL, s STRING(9), c INT64) PRIMARY KEY (k DESC, s, c), "
    "INTERLEAVE IN PARENT Q"
)
INDEX = "CREATE INDEX I ON P (b)"
POLICY = "ADD ROW DELETION POLICY (OLDER_THAN(ts, INTERVAL 7 DAY))"
# Those that Google's emulator words alike are in the corpus of `test_catalogue`.
REFUSALS = [
    ((), "CREATE TABLE T (a INT64) PRIMARY KEY (a, A)", "INVALID Table T references key column A"),
    ((), "CREATE TABLE T (a INT64, A INT64) PRIMARY KEY (a)", "FAILED Duplicate column name T.A."),
    ((), "CREATE TABLE T (a INT64) PRIMARY KEY (a), INTERLEAVE IN PARENT T", "NOT_FOUND Table not"),
    ((), "ALTER TABLE P ADD COLUMN x STRING(0)", "INVALID Bad length for column P.x: 0"),
    ((), f"ALTER TABLE P ADD COLUMN {'x' * 129} INT64", "INVALID Column name not valid: P.xxx"),
    (
        (),
        "ALTER TABLE P ADD COLUMN x INT64 OPTIONS (allow_commit_timestamp = true)",
        "FAILED Column P.x has invalid allow_commit_timestamp option.",
    ),
    (
        (),
        "ALTER TABLE P DROP COLUMN a",
        "FAILED Cannot drop column a from table P because it is used by generated column g.",
    ),
    (
        (),
        "ALTER TABLE P DROP COLUMN n",
        "FAILED Cannot drop column n from table P because it is used by check constraint ck.",
    ),
    (
        (INDEX,),
        "ALTER TABLE P DROP COLUMN b",
        "FAILED Cannot drop column b from table P because it is used by index I.",
    ),
    ((f"ALTER TABLE P {POLICY}",), "ALTER TABLE P DROP COLUMN ts", "INVALID ROW DELETION POLICY"),
    ((), "ALTER TABLE P ALTER COLUMN n FLOAT64", "INVALID Cannot change type of column `n` from"),
    ((), "ALTER TABLE P ALTER COLUMN arr ARRAY<STRING(3)>", "INVALID Cannot change type"),
    ((), "ALTER TABLE P ALTER COLUMN b BYTES(3)", "UNIMPL The simulator does not"),
    ((), "ALTER TABLE P ALTER COLUMN id INT64", "INVALID Cannot change key column P.id."),
    ((), "ALTER TABLE P ALTER COLUMN g INT64", "INVALID Cannot change whether or how column `P.g`"),
    ((INDEX,), "ALTER TABLE P ALTER COLUMN b STRING(20) NOT NULL", "FAILED Changing NOT NULL"),
    ((CHILD,), "ALTER TABLE Q ALTER COLUMN s STRING(8)", "INVALID Requested change to key column"),
    ((CHILD,), "ALTER TABLE C ALTER COLUMN s STRING(8)", "INVALID Cannot alter parent key column"),
    ((), f"CREATE TABLE T (a INT64) PRIMARY KEY (a), {POLICY[4:]}", "INVALID Cannot create"),
    ((), f"ALTER TABLE Q {POLICY.replace('ts', 's')}", "INVALID Cannot create ROW DELETION POLICY"),
    ((f"ALTER TABLE Q {POLICY}",), f"ALTER TABLE Q {POLICY}", "INVALID Cannot create ROW DELETION"),
    ((f"ALTER TABLE Q {POLICY}",), CHILD, "INVALID Cannot create or alter table C with ON DELETE"),
    ((CHILD,), f"ALTER TABLE Q {POLICY}", "INVALID Cannot create row deletion policy on Q because"),
    ((), "CREATE INDEX J ON P (a, A)", "INVALID Index J specifies key column a twice."),
    ((), "CREATE INDEX J ON P (a) STORING (A)", "INVALID Index J specifies key column a twice."),
    ((), "CREATE INDEX J ON P ()", "INVALID Index J does not specify any key columns."),
    ((), "GRANT SELECT ON TABLE nope TO ROLE a", "NOT_FOUND Table not found: nope"),
    ((), "GRANT USAGE ON SCHEMA z TO ROLE a", "NOT_FOUND Schema not found: z"),
    ((), "GRANT EXECUTE ON TABLE FUNCTION READ_X TO ROLE a", "NOT_FOUND Table function not found"),
    ((), "GRANT SELECT ON TABLE P TO ROLE r", "NOT_FOUND Role not found: r."),
    ((), "GRANT EXECUTE ON TABLE P TO ROLE a", "INVALID Privilege EXECUTE cannot be granted on T"),
    (("CREATE ROLE a",), "CREATE ROLE A", "FAILED Duplicate name in schema: A."),
    ((), "CREATE ROLE SPANNER_x", "INVALID Role name not valid: SPANNER_x."),
    ((), "DROP ROLE public", "FAILED Cannot alter or drop the system role public."),
]


@pytest.mark.parametrize(("before", "statement", "refusal"), REFUSALS)
def test_refusals(make, before: tuple[str, ...], statement: str, refusal: str) -> None:
    code, _, message = make(TABLE, PARENT, *before).refusal(statement).partition(" ")
    start, _, text = refusal.partition(" ")
    assert (code.startswith(start), message[: len(text)]) == (True, text)


def test_a_failure_of_the_analyser_leaves_nothing_behind(make) -> None:
    class Broken:
        def mismatch(self, *_: object, **__: object) -> None:
            raise RecursionError

    made = make()
    made.catalogue.analysis = Broken()
    with pytest.raises(RecursionError):
        made.apply("CREATE TABLE T (a INT64, CHECK (a > 0)) PRIMARY KEY (a)")
    assert made.catalogue.tables == {}


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
        "ALTER TABLE P ALTER COLUMN s STRING(20) NOT NULL",
        "ALTER TABLE P ALTER COLUMN a SET DEFAULT (7)",
    )
    table = made.catalogue.table("P")
    assert (table.column("ts").commit_timestamp, table.column("ts").is_nullable) == (True, False)
    assert table.column("s").value_type == ValueType("STRING", None, 20)
    assert table.column("a").default == "7"


def test_a_generated_column_hangs_on_what_it_is_made_of(make) -> None:
    made = make(
        "CREATE TABLE T (k INT64, Ts TIMESTAMP, Time INT64, J JSON, Name JSON AS (J.name) STORED, "
        "Year INT64 AS (EXTRACT(YEAR FROM Ts AT TIME ZONE 'UTC')) STORED) PRIMARY KEY (k)",
        "ALTER TABLE T DROP COLUMN Time",
    )
    assert "generated column Year" in made.refusal("ALTER TABLE T DROP COLUMN Ts")
    assert "generated column Name" in made.refusal("ALTER TABLE T DROP COLUMN J")


def test_a_table_keeps_its_parent_as_the_parent_writes_itself(make) -> None:
    made = make(
        "CREATE TABLE Parent (k INT64) PRIMARY KEY (k)",
        "CREATE TABLE Child (K INT64, c INT64) PRIMARY KEY (K, c), INTERLEAVE IN PARENT parent",
    )
    assert made.catalogue.table("child").interleave.parent == "Parent"
    assert [table.name for table in made.catalogue.children_of("PARENT")] == ["Child"]


def test_seven_tables_may_be_nested(make) -> None:
    made = make("CREATE TABLE L1 (k1 INT64) PRIMARY KEY (k1)")
    for depth in range(2, 9):
        keys = [f"k{number}" for number in range(1, depth + 1)]
        columns = ", ".join(f"{key} INT64" for key in keys)
        statement = (
            f"CREATE TABLE L{depth} ({columns}) PRIMARY KEY ({', '.join(keys)}), "
            f"INTERLEAVE IN PARENT L{depth - 1}"
        )
        if depth <= 7:
            made.apply(statement)
    assert "Table L8 is too deeply nested; the limit is 7." in made.refusal(statement)


def test_an_index_names_columns_as_the_table_does_and_is_in_its_schema(make) -> None:
    made = make(
        TABLE,
        "CREATE UNIQUE NULL_FILTERED INDEX I ON p (A DESC) STORING (B)",
        "CREATE INDEX IF NOT EXISTS i ON P (b)",
        "CREATE SCHEMA n",
        "CREATE TABLE n.T (a INT64) PRIMARY KEY (a)",
    )
    key = (KeyColumn("a", descending=True),)
    assert made.catalogue.index("i") == Index("I", "P", key, ("b",), True, True)
    assert "does not match the schema" in made.refusal("CREATE INDEX J ON n.T (a)")
    made.apply("CREATE INDEX n.J ON n.T (a)", "DROP INDEX N.j")
    assert list(made.catalogue.indexes) == ["i"]


def test_postgresql_puts_an_index_into_its_tables_schema(make) -> None:
    made = make(
        "CREATE SCHEMA n",
        "CREATE TABLE n.t (a bigint PRIMARY KEY, b bigint)",
        "CREATE INDEX i ON n.t (b)",
        dialect="POSTGRESQL",
    )
    assert made.catalogue.index("n.i").key == (KeyColumn("b", null_is_greatest=True),)


STREAM = ("CREATE TABLE T (a INT64) PRIMARY KEY (a)", "CREATE CHANGE STREAM S FOR T")


def test_privileges_are_given_to_a_role_or_to_all_and_can_be_revoked(make) -> None:
    made = make(
        *STREAM,
        "CREATE ROLE a",
        "GRANT EXECUTE ON TABLE FUNCTION READ_S TO ROLE a",
        "GRANT SELECT, UPDATE ON TABLE T TO ROLE public",
        "REVOKE SELECT ON TABLE T FROM ROLE public",
    )
    has = made.catalogue.has_privilege
    assert has("A", "TABLE FUNCTION", "read_s", "EXECUTE")
    assert not has("a", "CHANGE STREAM", "S", "SELECT")
    assert (has("a", "TABLE", "t", "SELECT"), has("a", "TABLE", "t", "UPDATE")) == (False, True)
    made.apply("DROP ROLE A", "DROP ROLE IF EXISTS a")
    assert not has("A", "TABLE FUNCTION", "read_s", "EXECUTE")


def test_postgresql_names_functions_by_partition_mode(make) -> None:
    made = make(
        "CREATE CHANGE STREAM s",
        "CREATE CHANGE STREAM m WITH (partition_mode = 'MUTABLE_KEY_RANGE')",
        "CREATE ROLE r",
        "GRANT EXECUTE ON FUNCTION spanner.read_json_s, spanner.read_proto_bytes_m TO r",
        dialect="POSTGRESQL",
    )
    assert made.catalogue.has_privilege("r", "TABLE FUNCTION", "read_json_s", "EXECUTE")
    assert made.catalogue.has_privilege("r", "TABLE FUNCTION", "read_proto_bytes_m", "EXECUTE")


def test_what_is_dropped_takes_its_privileges_with_it(make) -> None:
    made = make(
        *STREAM,
        "CREATE TABLE U (a INT64) PRIMARY KEY (a)",
        "CREATE ROLE a",
        "GRANT SELECT ON TABLE T, U TO ROLE a",
        "GRANT SELECT ON CHANGE STREAM S TO ROLE a",
        "GRANT EXECUTE ON TABLE FUNCTION READ_S TO ROLE a",
        "DROP CHANGE STREAM S",
        "DROP TABLE T",
        *STREAM,
    )
    assert [one for one in made.ddl() if one.startswith("GRANT")] == [
        "GRANT SELECT ON TABLE u TO ROLE a"
    ]
