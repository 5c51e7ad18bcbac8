"""What is accepted, and what is close to it and is not."""

from __future__ import annotations

from typing import Any

import pytest

from differential.accepted import accepted_by
from differential.accepted_records import written_columns
from differential.difference import Difference
from differential.steps import Commit, Delete, Dml, Keys, ReadWrite, Write
from differential.stream_reading import Mod

TAGGED = Commit((), tag="nightly")
TIMESTAMP, FLOAT64 = {"code": "TIMESTAMP"}, {"code": "FLOAT64"}
# Step 4 committed at these moments, on the simulator and on the emulator.
COMMITS = ({"2026-01-01T00:00:00.5Z": 4}, {"2026-01-01T00:01:00.25Z": 4})
TWO_ROWS = Commit((Write("insert", "T", ("K",), (("1",), ("2",))),))
ONE_ROW = Commit((Write("insert", "T", ("K",), (("1",),)),))
REPLACE = Commit((Write("replace", "T", ("K",), (("1",),)),))
DELETE_THEN_UPDATE = Commit(
    (Delete("T", Keys((("1",),))), Write("update", "T", ("K", "A"), (("1", "x"),)))
)
UPDATE_THEN_DELETE = Commit(DELETE_THEN_UPDATE.mutations[::-1])
STAMPED = ReadWrite((Dml("UPDATE T SET C = PENDING_COMMIT_TIMESTAMP() WHERE TRUE", {}),))
MISSING = "NOT_FOUND Row [1] in table T is missing. Row cannot be updated."
DELETED = (
    "INVALID_ARGUMENT Row {Int64(1)} in T was deleted and then updated in the same transaction."
)
PENDING = "INVALID_ARGUMENT Column C cannot be accessed: it has a pending CommitTimestamp"
UNKNOWN = "UNKNOWN Unexpected error in RPC handling"


def difference(kind: Any, simulator: Any, emulator: Any, **facts: Any) -> Difference:
    return Difference(kind, 4, "somewhere", simulator, emulator, {"commits": COMMITS, **facts})


def value(simulator: Any, emulator: Any, kind: Any = TIMESTAMP, field: str = "new") -> Difference:
    return difference("value", simulator, emulator, type=kind, field=field)


def code(simulator: str, emulator: str, step: Any = None) -> Difference:
    return difference("code", simulator, emulator, step=step)


def mods(simulator: list[str], emulator: list[str], step: Any) -> Difference:
    return difference("mods", simulator, emulator, step=step, row=("T", ""))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tag", difference("rule", ["nightly"], [""], about="tag", step=TAGGED)),
        (None, difference("rule", ["other"], [""], about="tag", step=TAGGED)),
        ("pending timestamp", value("@4", "9999-12-31T23:59:59Z")),
        (None, value("@3", "9999-12-31T23:59:59Z")),
        ("fraction", value("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00Z")),
        ("fraction", value("@4", "2026-01-01T00:01:00Z", field="old")),
        ("fraction", value("0001-01-01T00:00:00Z", "1-01-01T00:00:00Z")),
        (None, value("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:01Z")),
        ("infinity", value([1.0, "-Infinity"], [1.0, None], {"code": "ARRAY"})),
        (None, value(1.0, None, FLOAT64)),
        (None, value([1.0, "NaN"], [2.0, None], {"code": "ARRAY"})),
        ("replace", mods(["DELETE", "INSERT"], ["INSERT"], REPLACE)),
        (None, mods(["INSERT"], ["INSERT", "x"], REPLACE)),
        (None, mods(["DELETE", "INSERT"], ["INSERT"], ONE_ROW)),
        ("order of faults", code("OUT_OF_RANGE x", "ALREADY_EXISTS y", TWO_ROWS)),
        (None, code("OUT_OF_RANGE x", "ALREADY_EXISTS y", ONE_ROW)),
        (None, code("INTERNAL x", "ALREADY_EXISTS y", TWO_ROWS)),
        ("update of a deleted row", code(MISSING, DELETED, DELETE_THEN_UPDATE)),
        (None, code(MISSING, DELETED, UPDATE_THEN_DELETE)),
        ("internal errors of the emulator", code("INVALID_ARGUMENT no such type", UNKNOWN)),
        (None, code("INTERNAL oh", UNKNOWN)),
        ("read of a pending timestamp by DML", code(MISSING, PENDING, STAMPED)),
        (None, code("INTERNAL oh", PENDING, STAMPED)),
        (
            "unprinted",
            value("a ARRAY<FLOAT32>(vector_length=>3),", "a ARRAY<FLOAT32>,"),
        ),
        ("unprinted", value("a real[] VECTOR LENGTH 3 HIDDEN", "a real[]")),
        (None, value("a ARRAY<FLOAT32>(vector_length=>3)", "a ARRAY<FLOAT64>")),
        (None, value("a ARRAY<FLOAT32>", "b ARRAY<FLOAT32>")),
    ],
)
def test_as_narrow_as_it_is_meant(name: str | None, found: Difference):
    meant = accepted_by(found)
    assert name == (None if meant is None else meant.name)


@pytest.mark.parametrize(
    ("step", "columns"),
    [
        (Commit((Write("update", "T", ("K", "A"), (("1", "x"),)),)), {"K", "A"}),
        (Commit((Write("update", "T", ("K", "A"), (("2", "x"),)),)), set()),
        (Commit((Write("update", "U", ("K", "A"), (("1", "x"),)),)), set()),
        (ReadWrite((Dml("UPDATE T SET A = 'x', B = C WHERE K = 1", {}),)), {"A", "B"}),
        (ReadWrite((Dml("UPDATE T SET A = 'x' WHERE K = @p1", {"p1": ("2", None)}),)), set()),
    ],
)
def test_what_a_step_wrote_in_a_row(step: Any, columns: set[str]):
    assert columns == written_columns(step, "T", {"K": "1"})


@pytest.mark.parametrize(
    ("is_meant", "sql", "old"),
    [
        (True, "UPDATE T SET A = 'x' WHERE K = 1", {"A": "w", "B": 2}),
        (False, "UPDATE T SET A = 'x' WHERE K = 1", {"A": "w", "B": 1}),
        (False, "UPDATE U SET A = 'x' WHERE K = 1", {}),
    ],
)
def test_a_column_may_be_left_out_where_dml_did_not_change_it(is_meant, sql, old):
    mod = Mod({"K": "1"}, {"A": "x", "B": 2}, old)
    facts = {"names": ({"K", "A"}, {"K", "A", "B"}), "mods": (mod, mod)}
    step = ReadWrite((Dml(sql, {}),))
    found = difference("column_types", 0, 1, **facts, table="T", mod_type="UPDATE", step=step)
    assert is_meant == (accepted_by(found) is not None)
