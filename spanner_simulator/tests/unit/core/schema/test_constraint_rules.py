from __future__ import annotations

import pytest

TARGET = "CREATE TABLE C4 (x INT64 NOT NULL, j JSON, v INT64 AS (x)) PRIMARY KEY (x)"
REFERRING = "CREATE TABLE R (a INT64, b STRING(9), CONSTRAINT f FOREIGN KEY ({}) REFERENCES {}) "
REFUSALS = [
    ("a", "nope (x)", "NOT_FOUND Table not found: nope"),
    (
        "b",
        "C4 (x)",
        (
            "The column types are different for column `b` of table `R` and column `x` of table "
            "`C4` "
            "in foreign key `f`."
        ),
    ),
    (
        "a",
        "C4 (nope)",
        "Column `nope` not found for table `C4` in foreign key `f`.",
    ),
    ("nope", "C4 (x)", "Column `nope` not found for table `R` in foreign key `f`."),
    (
        "a, b",
        "C4 (x)",
        "The number of columns are different for table `R` and table `C4` in foreign key `f`.",
    ),
    (
        "a, a",
        "C4 (x, x)",
        "Column `a` used more than once for table `R` in foreign key `f`.",
    ),
    ("a", "C4 (j)", "Column `j` for foreign key `f` on table `C4` has an unsupported type."),
    (
        "a",
        "C4 (v)",
        "Column `v` for foreign key `f` on table `C4` is a generated column that is not stored.",
    ),
]


@pytest.mark.parametrize(("columns", "target", "refusal"), REFUSALS)
def test_foreign_keys_that_do_not_fit(make, columns: str, target: str, refusal: str) -> None:
    statement = REFERRING.format(columns, target) + "PRIMARY KEY (a)"
    expected = refusal if refusal.startswith("NOT") else f"FAILED_PRECONDITION {refusal}"

    assert make(TARGET).refusal(statement) == expected


def test_a_table_may_refer_to_itself(make) -> None:
    made = make(
        "CREATE TABLE S (a INT64, b INT64, FOREIGN KEY (b) REFERENCES s (a)) PRIMARY KEY (a)"
    )

    assert made.catalogue.table("S").foreign_keys[0].referenced_table == "S"
    made.apply("DROP TABLE S")


def test_rows_that_are_referred_to_have_no_policy(make) -> None:
    made = make(
        "CREATE TABLE P (k INT64, ts TIMESTAMP) PRIMARY KEY (k), "
        "ROW DELETION POLICY (OLDER_THAN(ts, INTERVAL 1 DAY))"
    )

    assert made.refusal(
        "CREATE TABLE R (a INT64, CONSTRAINT f FOREIGN KEY (a) REFERENCES P (k)) PRIMARY KEY (a)"
    ) == (
        "INVALID_ARGUMENT Cannot add a row deletion policy to table `P`. It is referenced by one "
        "or "
        "more foreign keys: `f`."
    )
    made.apply(
        "CREATE TABLE R (a INT64, FOREIGN KEY (a) REFERENCES P (k) NOT ENFORCED) PRIMARY KEY (a)"
    )


def test_unnamed_constraints_get_names_of_their_own(make) -> None:
    made = make(
        TARGET,
        "CREATE TABLE R (a INT64, b INT64, FOREIGN KEY (a) REFERENCES C4 (x), "
        "FOREIGN KEY (B) REFERENCES c4 (X), CHECK (a > 1), CHECK (b > 1)) PRIMARY KEY (a)",
    )
    table = made.catalogue.table("R")
    first, second = table.foreign_keys

    assert first.name.startswith("FK_R_C4_")
    assert first.name[:-1] == second.name[:-1]
    assert (first.name[-2:], second.name[-2:]) == ("_1", "_2")
    assert (second.columns, second.referenced_table, second.referenced_columns) == (
        ("b",),
        "C4",
        ("x",),
    )
    assert [check.name[-2:] for check in table.checks] == ["_1", "_2"]


def test_a_constraint_that_was_dropped_is_gone(make) -> None:
    made = make(
        TARGET,
        "ALTER TABLE C4 ADD CONSTRAINT ck CHECK (x > 1)",
        "ALTER TABLE C4 DROP CONSTRAINT CK",
    )

    assert made.catalogue.table("C4").checks == ()


COMMITTED = "OPTIONS (allow_commit_timestamp = true)"


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        (f"t TIMESTAMP {COMMITTED}", "ALTER TABLE T ADD CHECK (t IS NOT NULL)"),
        (
            "t TIMESTAMP, CHECK (t IS NOT NULL)",
            f"ALTER TABLE T ALTER COLUMN t SET {COMMITTED}",
        ),
        (
            "t TIMESTAMP",
            f"CREATE TABLE U (k INT64, t TIMESTAMP {COMMITTED}, CHECK (t > NULL)) PRIMARY KEY (k)",
        ),
    ],
)
def test_no_check_looks_at_a_commit_timestamp(make, table: str, statement: str) -> None:
    assert make(f"CREATE TABLE T (k INT64, {table}) PRIMARY KEY (k)").refusal(statement) == (
        "INVALID_ARGUMENT Column `t` has option commit_timestamp, which is not supported in check "
        "constraint."
    )
