"""What is accepted, and what is close to it and is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from differential.accepted import ACCEPTED, accepted_by
from differential.difference import Difference
from differential.kinds import POSTGRES
from differential.steps import Commit, Delete, Dml, Keys, PartitionedDml, ReadWrite, Write
from differential.stream_reading import Mod
from differential.written import written_columns

TAGGED = Commit((), tag="nightly")
TIMESTAMP, FLOAT64 = {"code": "TIMESTAMP"}, {"code": "FLOAT64"}
# Step 4 committed at these moments, on the simulator and on the emulator.
COMMITS = ({"2026-01-01T00:00:00.5Z": 4}, {"2026-01-01T00:01:00.25Z": 4})


def difference(kind: Any, simulator: Any, emulator: Any, **facts: Any) -> Difference:
    return Difference(kind, 4, "somewhere", simulator, emulator, {"commits": COMMITS, **facts})


def value(simulator: Any, emulator: Any, kind: Any = TIMESTAMP, field: str = "new") -> Difference:
    return difference("value", simulator, emulator, type=kind, field=field)


def name_of(found: Difference) -> str | None:
    meant = accepted_by(found)
    return None if meant is None else meant.name


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tag", difference("rule", ["nightly"], [""], about="tag", step=TAGGED)),
        (None, difference("rule", [""], ["nightly"], about="tag", step=TAGGED)),
        (None, difference("rule", ["other"], [""], about="tag", step=TAGGED)),
        ("pending timestamp", value("@4", "9999-12-31T23:59:59Z")),
        (None, value("@3", "9999-12-31T23:59:59Z")),
        ("fraction", value("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00Z")),
        ("fraction", value("@4", "2026-01-01T00:01:00Z", field="old")),
        ("fraction", value("0001-01-01T00:00:00Z", "1-01-01T00:00:00Z")),
        (None, value("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:01Z")),
        (None, value("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00Z", {"code": "STRING"})),
        ("infinity", value("NaN", None, FLOAT64)),
        ("infinity", value([1.0, "-Infinity"], [1.0, None], {"code": "ARRAY"})),
        (None, value(1.0, None, FLOAT64)),
        (None, value([1.0, "NaN"], [2.0, None], {"code": "ARRAY"})),
        (
            "words: row exists",
            difference(
                "text",
                "Row [1] in table T already exists",
                "Table T: Row {Int64(1)} already exists.",
            ),
        ),
        (
            None,
            difference(
                "text",
                "Row [1] in table T already exists",
                "Table U: Row {Int64(1)} already exists.",
            ),
        ),
    ],
)
def test_as_narrow_as_it_is_meant(name: str | None, found: Difference):
    assert name == name_of(found)


def test_a_replace_may_start_with_a_delete_where_the_step_replaced():
    replace = Commit((Write("replace", "T", ("K",), (("1",),)),))
    insert = Commit((Write("insert", "T", ("K",), (("1",),)),))
    facts: dict[str, Any] = {"row": ("T", "")}

    assert (
        name_of(difference("mods", ["DELETE", "INSERT"], ["INSERT"], step=replace, **facts))
        == "replace"
    )
    assert name_of(difference("mods", ["INSERT"], ["INSERT", "x"], step=replace, **facts)) is None
    assert (
        name_of(difference("mods", ["DELETE", "INSERT"], ["INSERT"], step=insert, **facts)) is None
    )


@pytest.mark.parametrize(
    ("step", "columns"),
    [
        (Commit((Write("update", "T", ("K", "A"), (("1", "x"),)),)), {"K", "A"}),
        (Commit((Write("update", "T", ("K", "A"), (("2", "x"),)),)), set()),
        (Commit((Write("update", "U", ("K", "A"), (("1", "x"),)),)), set()),
        (ReadWrite((Dml("UPDATE T SET A = 'x', B = C WHERE K = 1", {}),)), {"A", "B"}),
        (PartitionedDml(Dml("UPDATE T SET A = 'x' WHERE K = 1", {})), {"A"}),
    ],
)
def test_what_a_step_wrote_in_a_row(step: Any, columns: set[str]):
    assert columns == written_columns(step, "T", {"K": "1"})


CHECK = "Check constraint `T`.`limit` is violated for key (1)"
THEIR_CHECK = "Check constraint `T`.`limit` is violated for key {Int64(1)}"
UNIQUE = "UNIQUE violation on index I,  duplicate key: {Int64(1)} in this transaction."
PARENT = "NOT_FOUND Parent row for row [1] in table T is missing. Row cannot be written."
INSERTED = (
    "ALREADY_EXISTS Failed to insert row with primary key ({pk#k:1}) due to previously inserted row"
)
TWO_ROWS = Commit((Write("insert", "T", ("K",), (("1",), ("2",))),))
INSERTS = ReadWrite((Dml("INSERT INTO T (K) VALUES (1), (1)", {}),))
DELETE_THEN_UPDATE = Commit(
    (Delete("T", Keys((("1",),))), Write("update", "T", ("K", "A"), (("1", "x"),)))
)
UPDATE_THEN_DELETE = Commit(DELETE_THEN_UPDATE.mutations[::-1])
MISSING = "NOT_FOUND Row [1] in table T is missing. Row cannot be updated."
DELETED = (
    "INVALID_ARGUMENT Row {Int64(1)} in T was deleted and then updated in the same transaction."
)
REFERENCED = (
    "FAILED_PRECONDITION Cannot write and delete the row with key {Int64(1)} in the foreign"
)
PENDING = "INVALID_ARGUMENT Column C cannot be accessed: it has a pending CommitTimestamp"
STAMPED = ReadWrite((Dml("UPDATE T SET C = PENDING_COMMIT_TIMESTAMP() WHERE TRUE", {}),))
IGNORES = Dml("INSERT OR IGNORE INTO T (K) VALUES (1), (2) THEN RETURN K", {}, returns=True)


@pytest.mark.parametrize(
    ("name", "kind", "simulator", "emulator", "facts"),
    [
        (
            "order of faults",
            "code",
            f"OUT_OF_RANGE {CHECK}",
            f"ALREADY_EXISTS {UNIQUE}",
            {"step": TWO_ROWS},
        ),
        ("order of faults", "code", PARENT, INSERTED, {"step": INSERTS}),
        # One row only, of which the parent comes first.
        (None, "code", PARENT, INSERTED, {"step": TWO_ROWS}),
        # Constraints come after the rows: whoever tells one has seen no fault of a row.
        (None, "code", f"OUT_OF_RANGE {CHECK}", INSERTED, {"step": INSERTS}),
        (None, "code", f"INTERNAL {CHECK}x", f"ALREADY_EXISTS {UNIQUE}", {"step": TWO_ROWS}),
        ("update of a deleted row", "code", MISSING, DELETED, {"step": DELETE_THEN_UPDATE}),
        (None, "code", MISSING, DELETED, {"step": UPDATE_THEN_DELETE}),
        (
            None,
            "code",
            MISSING.replace("table T", "table U"),
            DELETED,
            {"step": DELETE_THEN_UPDATE},
        ),
        (
            "internal errors of the emulator",
            "code",
            "INVALID_ARGUMENT no such type",
            "UNKNOWN Unexpected error in RPC handling",
            {},
        ),
        (None, "code", "INTERNAL oh", "UNKNOWN Unexpected error in RPC handling", {}),
        (
            "write and delete of a referenced row",
            "success",
            "succeeds: None",
            REFERENCED,
            {"step": TWO_ROWS},
        ),
        ("write and delete of a referenced row", "code", MISSING, REFERENCED, {"step": TWO_ROWS}),
        (None, "code", "INTERNAL oh", REFERENCED, {"step": TWO_ROWS}),
        (
            "read of a pending timestamp by DML",
            "success",
            "succeeds: None",
            PENDING,
            {"step": STAMPED},
        ),
        (None, "code", "INTERNAL oh", PENDING, {"step": STAMPED}),
        ("words: excerpt", "text", "No: x [at 1:9]\nSELECT x", "No: x [at 1:9]\n... x", {}),
        (None, "text", "No: y [at 1:9]\nSELECT x", "No: x [at 1:9]\n... x", {}),
        (None, "text", "No: x [at 1:7]\nSELECT x", "No: x [at 1:9]\n... x", {}),
        ("words: place", "text", "No: x [at 1:10]\nSELECT x", "No: x [at 1:9]\nSELECT x", {}),
        (None, "text", "No: x [at 1:8]\nSELECT x", "No: x [at 1:9]\nSELECT x", {}),
        (None, "text", "No", "No: x [at 1:9]\nSELECT x", {}),
        (
            "order of tracking streams",
            "text",
            "T is tracked by 2 Change Stream: a,b. Drop",
            "T is tracked by 3 Change Stream: b,a,b. Drop",
            {},
        ),
        (
            None,
            "text",
            "T is tracked by 2 Change Stream: a,c. Drop",
            "T is tracked by 2 Change Stream: b,a. Drop",
            {},
        ),
        (
            None,
            "text",
            "T is tracked by 2 Change Stream: b,a. Drop",
            "T is tracked by 2 Change Stream: a,b. Drop",
            {},
        ),
    ],
)
def test_faults_are_accepted_for_what_they_are(
    name: str | None, kind: str, simulator: str, emulator: str, facts: dict[str, Any]
):
    assert name == name_of(difference(kind, simulator, emulator, **facts))


@pytest.mark.parametrize(
    ("name", "simulator", "emulator"),
    [
        ("rows of an insert that ignores", ["1"], ["2"]),
        (None, ["3"], ["2"]),
        (None, ["1"], ["4"]),
    ],
)
def test_a_row_returned_for_another_must_be_one_that_was_given(name, simulator, emulator):
    found = Difference("rows", 4, "INSERT (row 0)", simulator, emulator, {"action": IGNORES})

    assert name == name_of(found)


@pytest.mark.parametrize(
    ("name", "sql", "old"),
    [
        ("unmodified columns of DML", "UPDATE T SET A = 'x' WHERE K = @p1", {}),
        ("unmodified columns of DML", "UPDATE T SET A = 'x' WHERE K = @p1", {"A": "w", "B": 2}),
        # What was written, to its old value even, is told.
        (None, "UPDATE T SET A = 'x', B = 2 WHERE K = @p1", {}),
        (None, "UPDATE T SET A = 'x', B = 2 WHERE TRUE", {"A": "w", "B": 2}),
        (None, "UPDATE T SET A = 'x' WHERE K = @p1", {"A": "w", "B": 1}),
        (None, "UPDATE U SET A = 'x' WHERE K = @p1", {}),
        (None, "INSERT INTO U (K) VALUES (1)", {}),
    ],
)
def test_a_column_may_be_left_out_where_dml_did_not_write_it(name, sql, old):
    mod = Mod({"K": "1"}, {"A": "x", "B": 2}, old)
    facts = {
        "names": ({"K", "A"}, {"K", "A", "B"}),
        "mods": (mod, mod),
        "table": "T",
        "mod_type": "UPDATE",
        "step": ReadWrite((Dml(sql, {"p1": ("1", None)}),)),
    }

    assert name == name_of(difference("column_types", ["K", "A"], ["K", "A", "B"], **facts))


PRINTED = "CREATE TABLE t (\n  k bigint,\n  a character varying DEFAULT 'a b',\n  PRIMARY KEY(k)\n)"


@pytest.mark.parametrize(
    ("name", "emulator"),
    [
        ("expressions in PostgreSQL", PRINTED.replace("'a b'", "('a b'::character varying)")),
        (None, PRINTED.replace("'a b'", "'ab'")),
        (None, PRINTED.replace("'a b'", "'A b'")),
        (None, PRINTED.replace("k bigint", "(k bigint")),
        (None, PRINTED.replace("  PRIMARY KEY(k)", "PRIMARY KEY(k)")),
    ],
)
def test_an_expression_may_be_written_otherwise_and_nothing_else(name, emulator):
    assert name == name_of(difference("ddl", PRINTED, emulator, dialect=POSTGRES))


CREATED = ["CREATE CHANGE STREAM S FOR ALL", "ALTER CHANGE STREAM S DROP FOR ALL"]


@pytest.mark.parametrize(
    ("name", "ddl"),
    [
        ("tables after DROP FOR ALL", [*CREATED, "CREATE TABLE T (K INT64)"]),
        (None, ["CREATE TABLE T (K INT64)", *CREATED]),
        (None, [*CREATED, "CREATE TABLE T (K INT64)", "ALTER CHANGE STREAM S SET FOR ALL"]),
    ],
)
def test_a_suspended_stream_tells_nothing_of_tables_made_since(name, ddl):
    mods = (Mod({"K": "1"}, {}, {}),)
    record = SimpleNamespace(table="T", mod_type="INSERT", mods=mods)
    facts = {"ddl": ddl, "stream": "S", "records": ([], [record]), "step": TWO_ROWS}

    assert name == name_of(difference("transaction", "nothing", ["..."], **facts))


def test_each_entry_has_a_name_of_its_own_and_a_reason():
    assert len({one.name for one in ACCEPTED}) == len(ACCEPTED)
    assert all(one.reason for one in ACCEPTED)
