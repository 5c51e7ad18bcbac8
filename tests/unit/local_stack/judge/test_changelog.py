"""Figures of a changelog, on rows made by hand; whole outputs: see test_judge."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidegate.local_stack.judge.changelog import ChangelogFigures, compare_changelog, examples
from tidegate.local_stack.judge.delta import ChangelogRow, ChangelogTable, ReleaseManifest
from tidegate.local_stack.judge.log import (
    LoggedChange,
    LoggedTransaction,
    Place,
    origin_number,
)

TYPES = {"Id": pa.string(), "N": pa.int64(), "M": pa.int64()}


def place(us: int, *, sequence: int = 0, mod: int = 0, transaction: str = "t") -> Place:
    return Place(us, transaction, (0, sequence), mod)


def logged(at: Place, mod_type: str, new: dict[str, Any], old: dict[str, Any]) -> LoggedTransaction:
    change = LoggedChange("t", at, mod_type, {"Id": "a"}, new, old)
    return LoggedTransaction(
        at.commit_timestamp_us, at.server_transaction_id, "", frozenset({"p"}), (change,)
    )


def row(at: Place, mod_type: str = "DELETE", *, ordinal: int = 0, **changed: Any) -> ChangelogRow:
    values: dict[str, Any] = {
        "table": "t",
        "release": 0,
        "ordinal": ordinal,
        "place": at,
        "mod_type": mod_type,
        "keys": {"Id": "a"},
        "new_values": None,
        "old_values": {"Id": "a", "N": 1, "M": None},
        "new_columns": None,
        "old_columns": None,
        "tag": "",
        "records_in_transaction": 1,
        "partitions_in_transaction": 1,
        "origin": origin_number("p"),
        "source_place": at,
        "file": "f",
        "row_in_file": ordinal,
    }
    return ChangelogRow(**(values | changed))


def judged(
    transactions: list[LoggedTransaction], rows: list[ChangelogRow], *, through_us: int = 100
) -> ChangelogFigures:
    return compare_changelog(
        transactions,
        changelogs=[ChangelogTable("t", tuple(rows), TYPES)],
        manifests=[ReleaseManifest(0, 0, through_us, len(rows), {})],
    )


OLD = {"N": "1", "M": None}


def test_a_deleted_row_is_its_old_values():
    figures = judged([logged(place(5), "DELETE", {}, OLD)], [row(place(5))])

    assert figures.examples == ()
    assert (figures.changes_committed, figures.changes_in_changelog) == (1, 1)


@pytest.mark.parametrize(
    ("new", "new_columns", "right"),
    [
        ({"Id": "a", "N": 2, "M": None}, ("Id", "N"), True),
        ({"Id": "a", "N": 2, "M": None}, ("Id", "N", "M"), False),
        ({"Id": "a", "N": 2, "M": None}, None, False),
        ({"Id": "a", "N": None, "M": None}, ("Id", "N"), False),
        ({"Id": "a", "N": 2, "M": None}, ("Id",), False),
        (None, None, False),
    ],
)
def test_absent_is_not_null_in_an_update(new: Any, new_columns: Any, right: bool):
    update = logged(place(5), "UPDATE", {"N": "2"}, {"N": "1"})
    found = row(
        place(5),
        "UPDATE",
        new_values=new,
        new_columns=new_columns,
        old_columns=("Id", "N"),
    )

    assert judged([update], [found]).unlike_source == (0 if right else 1)


def test_a_column_that_an_insert_does_not_name_is_null():
    insert = logged(place(5), "INSERT", {"N": "2"}, {})
    found = row(place(5), "INSERT", new_values={"Id": "a", "N": 2, "M": None}, old_values=None)

    assert judged([insert], [found]).unlike_source == 0


def test_order_is_by_numbers_and_by_every_part():
    places = [
        place(5, sequence=9),
        place(5, sequence=10),
        place(5, sequence=10, mod=1),
        place(5, transaction="u"),
        place(6),
    ]
    rows = [row(at, ordinal=ordinal) for ordinal, at in enumerate(places)]
    log = [logged(at, "DELETE", {}, OLD) for at in places]

    assert judged(log, rows).out_of_order == 0
    for first in range(len(places) - 1):
        swapped = list(places)
        swapped[first], swapped[first + 1] = swapped[first + 1], swapped[first]
        rows = [row(at, ordinal=ordinal) for ordinal, at in enumerate(swapped)]
        # Once by ordinal, once by the rows' order in their file.
        assert judged(log, rows).out_of_order == 2


def test_the_bounds_of_a_release_are_open_below_and_closed_above():
    log = [logged(place(us), "DELETE", {}, OLD) for us in (0, 1, 100, 101)]
    for us, outside in ((0, 1), (1, 0), (100, 0), (101, 1)):
        assert judged(log, [row(place(us))]).outside_release == outside


def test_examples_are_few_and_name_the_fault():
    assert examples("lost", (str(n) for n in range(100))) == [f"lost: {n}" for n in range(5)]
    assert examples("lost", ["x"]) == ["lost: x"]
