from __future__ import annotations

import pytest

PARENT = "CREATE TABLE P (k INT64 NOT NULL, s STRING(9), ts TIMESTAMP) PRIMARY KEY (k DESC, s)"
TARGET = "CREATE TABLE C4 (x INT64 NOT NULL) PRIMARY KEY (x)"
POLICY = "ROW DELETION POLICY (OLDER_THAN(ts, INTERVAL 7 DAY))"
REFUSALS = [
    (
        (),
        "CREATE TABLE T (a INT64) PRIMARY KEY (b)",
        "FAILED_PRECONDITION Table T references nonexistent key column b.",
    ),
    (
        (),
        "CREATE TABLE T (a INT64) PRIMARY KEY (a, A)",
        "INVALID_ARGUMENT Table T references key column A more than once.",
    ),
    (
        (),
        "CREATE TABLE T (a ARRAY<INT64>) PRIMARY KEY (a)",
        "INVALID_ARGUMENT Column T.a has type ARRAY, but is part of the primary key.",
    ),
    (
        (PARENT,),
        (
            "CREATE TABLE T (k INT64 NOT NULL, s STRING(9)) PRIMARY KEY (s, k DESC), "
            "INTERLEAVE IN PARENT P"
        ),
        "FAILED_PRECONDITION Table T references parent key column k at incorrect position 1.",
    ),
    (
        (PARENT,),
        "CREATE TABLE T (k INT64 NOT NULL) PRIMARY KEY (k DESC), INTERLEAVE IN P",
        "FAILED_PRECONDITION Table T does not reference parent key column s.",
    ),
    (
        (PARENT,),
        "CREATE TABLE T (k INT64, s STRING(9)) PRIMARY KEY (k DESC, s), INTERLEAVE IN PARENT P",
        (
            "FAILED_PRECONDITION Table T references parent key column k that is not null, but "
            "child "
            "key is nullable."
        ),
    ),
    (
        (),
        "CREATE TABLE T (a INT64) PRIMARY KEY (a), INTERLEAVE IN PARENT T",
        "NOT_FOUND Table not found: T",
    ),
    (
        (PARENT, "CREATE VIEW V SQL SECURITY INVOKER AS SELECT P.k FROM P"),
        "DROP TABLE P",
        "FAILED_PRECONDITION Cannot drop TABLE `P` on which there are dependent views: V.",
    ),
    (
        (
            TARGET,
            (
                "CREATE TABLE R (a INT64, CONSTRAINT f FOREIGN KEY (a) REFERENCES C4 (x)) "
                "PRIMARY KEY (a)"
            ),
        ),
        "DROP TABLE C4",
        (
            "FAILED_PRECONDITION Cannot drop table `C4`. It is referenced by one or more foreign "
            "keys: "
            "`f`. You must drop the foreign keys before dropping the table."
        ),
    ),
    (
        (PARENT,),
        f"CREATE TABLE T (a INT64) PRIMARY KEY (a), {POLICY}",
        (
            "INVALID_ARGUMENT Cannot create ROW DELETION POLICY because there is no column named "
            "ts in "
            "table T."
        ),
    ),
    (
        (PARENT, f"ALTER TABLE P ADD {POLICY}"),
        f"ALTER TABLE P ADD {POLICY}",
        (
            "INVALID_ARGUMENT Cannot create ROW DELETION POLICY because there is already one on "
            "column "
            "named ts in table P."
        ),
    ),
    (
        (PARENT, f"ALTER TABLE P ADD {POLICY}"),
        (
            "CREATE TABLE C (k INT64 NOT NULL, s STRING(9), c INT64) PRIMARY KEY (k DESC, s, c), "
            "INTERLEAVE IN PARENT P"
        ),
        (
            "INVALID_ARGUMENT Cannot create or alter table C with ON DELETE NO ACTION because "
            "there is "
            "a row deletion policy on ancestor table P."
        ),
    ),
    (
        (
            PARENT,
            (
                "CREATE TABLE C (k INT64 NOT NULL, s STRING(9), c INT64) "
                "PRIMARY KEY (k DESC, s, c), INTERLEAVE IN PARENT P"
            ),
        ),
        f"ALTER TABLE P ADD {POLICY}",
        (
            "INVALID_ARGUMENT Cannot create row deletion policy on P because there is a descendant "
            "Table C with ON DELETE NO ACTION."
        ),
    ),
    (
        (TARGET,),
        (
            "CREATE TABLE T (a STRING(3), CONSTRAINT f FOREIGN KEY (a) REFERENCES C4 (x)) "
            "PRIMARY KEY (a)"
        ),
        (
            "FAILED_PRECONDITION The column types are different for column `a` of table `T` and "
            "column "
            "`x` of table `C4` in foreign key `f`."
        ),
    ),
    (
        (PARENT,),
        "ALTER TABLE P ADD ROW DELETION POLICY (OLDER_THAN(s, INTERVAL 1 DAY))",
        (
            "INVALID_ARGUMENT ROW DELETION POLICY will break if drop/alter column named s in "
            "table P. "
            "Row Deletion Policy must be set on column of type TIMESTAMP."
        ),
    ),
    (
        (TARGET,),
        "ALTER TABLE C4 DROP CONSTRAINT nope",
        "NOT_FOUND nope is not a constraint in C4",
    ),
    (
        (TARGET, "ALTER TABLE C4 ADD CONSTRAINT ck CHECK (x > 1)"),
        "CREATE TABLE CK (a INT64) PRIMARY KEY (a)",
        "FAILED_PRECONDITION Duplicate name in schema: CK.",
    ),
    (
        (TARGET,),
        "ALTER TABLE C4 SET ON DELETE CASCADE",
        (
            "INVALID_ARGUMENT Cannot SET ON DELETE on table C4 that does not have an INTERLEAVE "
            "clause."
        ),
    ),
]


@pytest.mark.parametrize(("before", "statement", "refusal"), REFUSALS)
def test_refusals(make, before: tuple[str, ...], statement: str, refusal: str) -> None:
    assert make(*before).refusal(statement) == refusal


def test_a_table_keeps_its_parent_as_the_parent_writes_itself(make) -> None:
    made = make(
        "CREATE TABLE Parent (k INT64) PRIMARY KEY (k)",
        "CREATE TABLE Child (K INT64, c INT64) PRIMARY KEY (K, c), INTERLEAVE IN PARENT parent",
        "ALTER TABLE Child SET ON DELETE CASCADE",
    )
    interleave = made.catalogue.table("child").interleave

    assert (interleave.parent, interleave.in_parent, interleave.on_delete) == (
        "Parent",
        True,
        "CASCADE",
    )
    assert [table.name for table in made.catalogue.children_of("PARENT")] == ["Child"]


def test_seven_tables_may_be_nested(make) -> None:
    made = make("CREATE TABLE L1 (k1 INT64) PRIMARY KEY (k1)")
    keys = ["k1"]
    for depth in range(2, 9):
        keys.append(f"k{depth}")
        columns = ", ".join(f"{key} INT64" for key in keys)
        statement = (
            f"CREATE TABLE L{depth} ({columns}) PRIMARY KEY ({', '.join(keys)}), "
            f"INTERLEAVE IN PARENT L{depth - 1}"
        )
        if depth <= 7:
            made.apply(statement)

    assert (
        made.refusal(statement)
        == "FAILED_PRECONDITION Table L8 is too deeply nested; the limit is 7."
    )
