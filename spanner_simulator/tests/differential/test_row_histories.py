"""What a stream tells wrongly of a row is found, whatever the other side says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from differential.row_histories import row_violations, tells_all
from differential.running import Outcome, Run
from differential.side import Rows
from differential.steps import ChangeSchema, Commit, Keys, Read, Write
from differential.stream_reading import ColumnType, DataRecord, Mod, StreamReading

CREATE = ChangeSchema(("CREATE CHANGE STREAM S FOR ALL",), starts=("S",))
STEPS = (CREATE, Commit(()), Read("T", ("K", "A"), Keys(is_all=True)))
COLUMNS = (
    ColumnType("K", {"code": "INT64"}, is_primary_key=True, ordinal_position=1),
    ColumnType("A", {"code": "STRING"}, is_primary_key=False, ordinal_position=2),
)


def record(minute: int, kind: str, new: Any = None, old: Any = None, **more: Any) -> DataRecord:
    named = [{} if held is None else {"A": held} for held in (new, old)]
    made = DataRecord(
        token="parent",
        commit_timestamp=f"2026-01-01T00:{minute:02}:00.000000Z",
        sequence="00000000",
        transaction=str(minute),
        is_last=True,
        table="T",
        columns=COLUMNS,
        mods=(Mod({"K": "1"}, *named),),
        mod_type=kind,
        capture_type="OLD_AND_NEW_VALUES",
        record_count=1,
        partition_count=1,
        tag="",
        is_system=False,
    )
    return replace(made, **more)


INSERT, UPDATE = record(1, "INSERT", "x"), record(2, "UPDATE", "y", "x")
DELETE, AGAIN = record(3, "DELETE", None, "y"), record(4, "INSERT", "z")


def told(*records: DataRecord, rows: Any = (), steps: Any = STEPS) -> list[str]:
    reading = StreamReading("S", "", "", records=list(records))
    reading.parents = {"parent": frozenset(), "child": frozenset({"parent"}), "other": frozenset()}
    run = Run(side=None)  # type: ignore[arg-type]  # nothing is called
    read = Outcome([Rows([], [list(row) for row in rows])])
    run.outcomes = [Outcome([None]), Outcome([None]), read]
    run.commits = {INSERT.commit_timestamp: 1}
    return [text for _, text in row_violations(reading, run, steps)]


def test_a_row_that_is_told_as_it_is():
    assert told(INSERT, UPDATE, DELETE, AGAIN, rows=[("1", "z")]) == []
    assert told(INSERT, UPDATE, DELETE) == []
    assert told(INSERT, replace(UPDATE, token="child"), rows=[("1", "y")]) == []


@pytest.mark.parametrize(
    ("text", "records", "rows"),
    [
        ("INSERT of ('T', '{\"K\": \"1\"}'), which is there", (INSERT, AGAIN), [("1", "z")]),
        ("UPDATE of ('T', '{\"K\": \"1\"}'), which is not there", (UPDATE,), [("1", "y")]),
        ("DELETE of ('T', '{\"K\": \"1\"}'), which is not there", (DELETE,), []),
        (
            "old A of ('T', '{\"K\": \"1\"}') is 'y', and was told as 'x'",
            (INSERT, DELETE),
            [],
        ),
        ("('T', '{\"K\": \"1\"}') is told and not there", (INSERT,), []),
        ("('T', '{\"K\": \"2\"}') is there and not told", (INSERT,), [("1", "x"), ("2", "x")]),
        (
            "A of ('T', '{\"K\": \"1\"}') was told as 'Infinity', and is '-Infinity'",
            (record(1, "INSERT", "Infinity"),),
            [("1", "-Infinity")],
        ),
        (
            "('T', '{\"K\": \"1\"}') in a stream partition that is no descendant",
            (INSERT, replace(UPDATE, token="other")),
            [("1", "y")],
        ),
        (
            "('T', '{\"K\": \"1\"}') in a stream partition that is no descendant",
            (replace(INSERT, token="child"), UPDATE),
            [("1", "y")],
        ),
    ],
)
def test_a_row_that_is_told_wrongly(text: str, records: Any, rows: Any):
    assert [text] == told(*records, rows=rows)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE CHANGE STREAM S FOR T OPTIONS (exclude_insert = true)",
        "ALTER CHANGE STREAM S SET OPTIONS (value_capture_type = 'NEW_ROW', exclude_delete = true)",
        "ALTER CHANGE STREAM S SET FOR ALL",
        "ALTER CHANGE STREAM S DROP FOR ALL",
    ],
)
def test_a_stream_that_leaves_something_out_is_not_held_to_its_rows(statement: str):
    steps = (*STEPS[:2], ChangeSchema((statement,)), STEPS[2])
    other = ChangeSchema((statement.replace(" S ", " S2 "),))

    assert not tells_all("S", steps)
    assert tells_all("S", (CREATE, other))
    assert told(INSERT, AGAIN, steps=steps) == []


@pytest.mark.parametrize(
    ("order", "kinds", "is_right"),
    [
        ("12", ("insert", "insert"), True),
        ("21", ("insert", "insert"), False),
        # What is replaced, or written twice, may be told for its last place.
        ("21", ("replace", "insert"), True),
        ("21", ("insert", "insert", "update"), True),
    ],
)
def test_rows_come_in_the_order_in_which_they_were_written(order, kinds, is_right):
    keys = ("1", "2", "1")
    writes = [Write(kind, "T", ("K",), ((key,),)) for kind, key in zip(kinds, keys, strict=False)]
    mods = tuple(Mod({"K": key}, {}, {}) for key in order)
    steps = (CREATE, Commit(tuple(writes)), Read("T", ("K",), Keys(is_all=True)))

    found = told(replace(INSERT, mods=mods), rows=[("1",), ("2",)], steps=steps)
    assert is_right == (found == [])
    assert is_right or found[0].startswith("rows in another order than they were written: ")


def test_reads_before_the_last_write_say_nothing_of_the_end():
    steps = (CREATE, STEPS[2], Commit(()))

    assert told(INSERT, rows=[("2", "x")], steps=steps) == []
