"""The comparison finds a planted difference of each kind, and nothing where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from differential.accepted import accepted_by
from differential.comparing import compare_runs
from differential.difference import Difference
from differential.kinds import GOOGLE
from differential.running import Outcome, Run
from differential.side import Failure, Rows
from differential.steps import Commit, Keys, Query, Read, ShowSchema, Write
from differential.stream_reading import ColumnType, DataRecord, Mod, StreamReading
from differential.workload import Workload

WRITE = Write("insert", "T", ("K", "A"), (("1", "x"),))
UPDATE = Write("update", "T", ("K", "B"), (("1", "2"),))
REPLACE = Write("replace", "T", ("K", "A"), (("1", "y"),))
STEPS = (
    Commit((WRITE,), tag="tag-0"),
    Read("T", ("K", "A"), Keys(is_all=True)),
    Query("SELECT K FROM T", {}),
    Commit((UPDATE,)),
    ShowSchema(),
    Commit((REPLACE,)),
)
WORKLOAD = Workload(1, GOOGLE, one_partition=True, steps=STEPS)
INT64, STRING = {"code": "INT64"}, {"code": "STRING"}
COLUMNS = (
    ColumnType("K", INT64, is_primary_key=True, ordinal_position=1),
    ColumnType("A", STRING, is_primary_key=False, ordinal_position=2),
    ColumnType("At", {"code": "TIMESTAMP"}, is_primary_key=False, ordinal_position=3),
)


def stamp(minute: int, step: int) -> str:
    return f"2026-01-01T00:{minute:02}:{step:02}.250000Z"


def record(minute: int, step: int, **changes: Any) -> DataRecord:
    made = DataRecord(
        token="token",
        commit_timestamp=stamp(minute, step),
        sequence="00000000",
        transaction=f"{minute}-{step}",
        is_last=True,
        table="T",
        columns=COLUMNS,
        mods=(Mod({"K": "1"}, {"A": "x", "At": stamp(minute, 0)[:-5] + "Z"}, {}),),
        mod_type="INSERT",
        capture_type="NEW_ROW",
        record_count=1,
        partition_count=1,
        tag="",
        is_system=False,
    )
    return replace(made, **changes)


def run(minute: int) -> Run:
    """A side's history; both differ in nothing but the moments of their commits."""
    made = Run(side=None)  # type: ignore[arg-type]  # nothing is called
    outcomes = [
        Outcome([None], stamp(minute, 0)),
        Outcome([Rows([("K", INT64), ("A", STRING)], [["1", "x"], ["2", stamp(minute, 0)]])]),
        Outcome([Rows([("K", INT64)], [["2"], ["1"]] if minute else [["1"], ["2"]])]),
        Outcome([Failure("NOT_FOUND", f"Row is missing at {stamp(minute, 3)}.")]),
        Outcome([["CREATE TABLE T"]]),
        Outcome([None], stamp(minute, 5)),
    ]
    for number, outcome in enumerate(outcomes):
        made.note(number, outcome)
    made.streams["S"] = StreamReading(
        "S",
        start=stamp(minute, 0),
        end=stamp(minute, 59),
        metadata=[("ChangeRecord", {})],
        records=[record(minute, 0), record(minute, 5, mod_type="UPDATE")],
    )
    return made


def differences(change: Callable[[Run], None]) -> list[Difference]:
    ours, theirs = run(0), run(1)
    change(ours)
    return list(compare_runs(WORKLOAD, ours, theirs))


def stream(side: Run) -> StreamReading:
    reading = side.streams["S"]
    assert isinstance(reading, StreamReading)
    return reading


def first(**changes: Any) -> Callable[[Run], None]:
    def change(side: Run) -> None:
        stream(side).records[0] = replace(stream(side).records[0], **changes)

    return change


def result(step: int, made: Any) -> Callable[[Run], None]:
    def change(side: Run) -> None:
        side.outcomes[step].results[0] = made

    return change


def test_moments_names_and_free_order_are_no_difference():
    assert differences(lambda side: None) == []


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("success", result(3, None)),
        ("code", result(3, Failure("INTERNAL", "Row is missing at T."))),
        ("columns", result(2, Rows([("k", INT64)], [["1"], ["2"]]))),
        ("rows", result(2, Rows([("K", INT64)], [["1"], ["3"]]))),
        ("count", result(2, Rows([("K", INT64)], [["1"], ["2"]], count=2))),
        ("ddl", result(4, ["CREATE TABLE U"])),
        ("stream", lambda side: side.streams.update(S=Failure("INTERNAL", ""))),
        ("columns", lambda side: setattr(stream(side), "metadata", [("other", {})])),
        ("transaction", lambda side: stream(side).records.pop()),
        ("rule", first(tag="another")),
        ("rule", first(is_last=False)),
        ("rule", first(record_count=2)),
        ("rule", first(sequence="1")),
        ("rule", first(columns=(*COLUMNS[1:], COLUMNS[0]))),
        ("rule", lambda side: stream(side).records.append(stream(side).records[0])),
        ("rule", lambda side: stream(side).records.reverse()),
        ("rule", lambda side: setattr(stream(side), "end", stamp(0, 1))),
        ("rule", lambda side: stream(side).faults.append("a query failed")),
        ("capture_type", first(capture_type="NEW_VALUES")),
        ("mods", first(mod_type="DELETE")),
        ("mods", first(table="U")),
        ("mods", first(mods=(Mod({"K": "2"}, {"A": "x"}, {}),))),
        ("column_types", first(columns=COLUMNS[:2])),
        ("column_types", first(columns=(*COLUMNS[:2], replace(COLUMNS[2], ordinal_position=4)))),
        ("value", first(mods=(Mod({"K": "1"}, {"A": "y", "At": "@"}, {}),))),
        ("value", first(mods=(Mod({"K": "1"}, {"A": "x", "At": "x"}, {"A": "x"}),))),
    ],
)
def test_a_planted_difference_is_found(kind: str, change: Callable[[Run], None]):
    found = differences(change)
    assert kind in {one.kind for one in found}
    assert all(one.lines() for one in found)
    assert [one for one in found if one.kind == kind and accepted_by(one) is None]


def test_no_difference_hides_behind_another():
    found = differences(result(2, Rows([("K", INT64)], [["3"], ["4"]])))
    assert [one.kind for one in found] == ["rows", "rows"]


def test_a_commit_is_one_transaction_in_all_streams():
    def another_id(side: Run) -> None:
        one = replace(stream(side).records[0], transaction="another")
        side.streams["S2"] = replace(stream(side), name="S2", records=[one])

    def an_id_again(side: Run) -> None:
        records = stream(side).records
        records[1] = replace(records[1], transaction=records[0].transaction)

    def told(change: Callable[[Run], None]) -> list[Any]:
        return [one.simulator for one in differences(change) if one.kind == "rule"]

    assert told(another_id) == ["one commit is 2 transactions"]
    assert told(an_id_again) == ["transaction 0-0 commits 2 times"]


def test_two_records_that_could_be_one_break_a_rule():
    def change(side: Run) -> None:
        one = replace(stream(side).records[0], is_last=False, record_count=2)
        two = replace(one, sequence="00000001", is_last=True)
        stream(side).records[:1] = [one, replace(two, mods=(Mod({"K": "7"}, {}, {}),))]

    assert "two records in a row that could be one" in [
        one.simulator for one in differences(change)
    ]


def test_what_follows_a_step_that_parted_the_sides_is_not_compared():
    ours, theirs = run(0), run(1)
    ours.outcomes[-1] = Outcome([Failure("ABORTED", "")])
    ours.streams["S"].records.pop()  # type: ignore[union-attr]  # it is a reading
    assert [one.kind for one in compare_runs(WORKLOAD, ours, theirs)] == ["success"]
