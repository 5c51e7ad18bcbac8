"""Each fault that rows of transactions can have is named, and right rows have none."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tests.chaos.judge.transaction_rows import compare_transactions
from tidegate.local_stack.judge.delta import ReleaseManifest
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place

TYPES = {"a": {"Id": pa.string(), "N": pa.int64()}, "b": {"Id": pa.string(), "N": pa.int64()}}
RELEASES = [ReleaseManifest(0, 0, 10, 3, {}), ReleaseManifest(1, 10, 20, 1, {})]


def logged(us, *changes):
    return LoggedTransaction(
        us, "t", "", frozenset(),
        tuple(
            LoggedChange(table, Place(us, "t", (0, number), 0), mod, {"Id": "k"}, new, old)
            for number, (table, mod, new, old) in enumerate(changes)
        ),
    )  # fmt: skip


COMMITTED = [
    logged(5, ("a", "INSERT", {"N": "1"}, {}), ("b", "UPDATE", {"N": "3"}, {"N": "2"})),
    logged(6, ("a", "DELETE", {}, {"N": "1"})),
    logged(15, ("b", "INSERT", {"N": None}, {})),
]


def change(ordinal, table, mod, new, old=None, *, sequence=0):
    return {
        "ordinal": ordinal,
        "table": table,
        "record_sequence": f"{sequence:08d}",
        "mod_number": 0,
        "mod_type": mod,
        "key": json.dumps({"Id": "k"}),
        "new_values": None if new is None else json.dumps({"Id": "k", **new}),
        "old_values": None if old is None else json.dumps({"Id": "k", **old}),
        "new_columns": None,
        "old_columns": None,
    }


def row(release, us, first, *changes):
    return {
        "release": release,
        "first_ordinal": first,
        "commit_timestamp": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us),
        "server_transaction_id": "t",
        "changes": list(changes),
    }


INSERT = change(0, "a", "INSERT", {"N": 1})
UPDATE = change(1, "b", "UPDATE", {"N": 3}, {"N": 2}, sequence=1)
DELETE = change(2, "a", "DELETE", None, {"N": 1})
LATER = change(0, "b", "INSERT", {"N": None})
FIRST, SECOND, THIRD = row(0, 5, 0, INSERT, UPDATE), row(0, 6, 2, DELETE), row(1, 15, 0, LATER)


def compared(*files):
    return compare_transactions(files, COMMITTED, releases=RELEASES, types=TYPES)


def test_each_transaction_is_a_row_with_its_changes():
    assert compared([FIRST, SECOND], [THIRD]) == []
    assert compared([THIRD], [FIRST, SECOND]) == []


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ([[FIRST], [THIRD]], "lacks transaction t at 6 us"),
        ([[FIRST, SECOND], [THIRD, THIRD]], "t at 15 us 2 times"),
        ([[FIRST, SECOND], [THIRD, row(1, 16, 1)]], "t at 16 us, which was not released"),
        ([[SECOND, FIRST], [THIRD]], "t at 5 us is after t at 6 us"),
        ([[row(0, 6, 0, DELETE | {"ordinal": 0}), row(0, 5, 1, INSERT | {"ordinal": 1},
           UPDATE | {"ordinal": 2})], [THIRD]], "t at 5 us is after t at 6 us"),
        ([[row(0, 5, 0, INSERT), SECOND], [THIRD]], "committed were"),
        ([[row(0, 5, 0, INSERT, UPDATE, UPDATE), SECOND], [THIRD]], "committed were"),
        ([[row(0, 5, 0, UPDATE, INSERT), SECOND], [THIRD]], "the ordinals [1, 0]"),
        ([[FIRST, SECOND], [row(0, 15, 3, LATER | {"ordinal": 3})]], "t at 15 us is in release 0"),
        ([[FIRST, SECOND], [row(7, 15, 0, LATER)]], "t at 15 us is in release 7"),
        ([[FIRST, row(0, 6, 3, DELETE | {"ordinal": 3})], [THIRD]], "ordinals [0, 1, 3] of 3"),
        ([[row(0, 5, 0, INSERT, UPDATE | {"new_values": json.dumps({"Id": "k", "N": 4})}), SECOND],
          [THIRD]], "b, ordinal 1: new_values"),
        ([[FIRST, row(0, 6, 2, DELETE | {"old_values": None})], [THIRD]], "ordinal 2: old_values"),
        ([[FIRST, SECOND], [row(1, 15, 0, LATER | {"key": json.dumps({"Id": "x"})})]], "key is"),
    ],
)  # fmt: skip
def test_a_fault_is_named(files, fault):
    assert any(fault in one for one in compared(*files)), compared(*files)
