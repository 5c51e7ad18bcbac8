"""The MERGE of folded rows by delta-rs, and what finds no row."""

from __future__ import annotations

from decimal import Decimal

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_merge import merge_folded, unmatched_updates
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.row_fold import FoldedRow

COMMIT = Commit("query-1", "mirror", 0, 1)
# Names that SQL knows, and those of the rows' own columns.
COLUMNS = ("Id", "select", "action", "key_0")


@pytest.fixture
def path(tmp_path):
    rows = [
        {"Id": None, "select": "x", "action": "a", "key_0": 0},
        {"Id": 1, "select": "x", "action": "a", "key_0": 1},
        {"Id": 1, "select": None, "action": "a", "key_0": 2},
        {"Id": 2, "select": "y", "action": "a", "key_0": 3},
    ]
    kinds = [pyarrow.int64(), pyarrow.string(), pyarrow.string(), pyarrow.int64()]
    schema = pyarrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    write_deltalake(tmp_path / "t", pyarrow.Table.from_pylist(rows, schema=schema))
    return str(tmp_path / "t")


def folded(action, number, text, **more):
    key = {"Id": number, "select": text}
    values = more.pop("values", {})
    return FoldedRow(key, action, values={**key, **values}, **more)


ROWS = [
    folded("patch", None, "x", values={"key_0": 10}),
    folded("patch", 1, None, values={"action": None}),
    folded("delete", 1, "x", base_ordinal=0),
    folded("replace", 2, "y", values={"action": "new"}, base_ordinal=0),
    folded("replace", None, None, values={"key_0": 5}, base_ordinal=0),
    folded("patch", 9, "z", values={"key_0": 6}),
    folded("delete", 8, "z", base_ordinal=0, updated_after_base=True),
    folded("delete", 7, "z", base_ordinal=0),
]


def test_keys_are_equal_where_both_are_null_and_only_captured_columns_change(path):
    merge_folded(DirectTable(path), ROWS, columns=COLUMNS, keys=COLUMNS[:2], commit=COMMIT)
    found = [tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist()]
    assert sorted(found, key=str) == sorted(
        [
            (None, "x", "a", 10),
            (1, None, None, 2),
            (2, "y", "new", None),
            (None, None, None, 5),
        ],
        key=str,
    )


def test_updates_without_a_row_are_found_in_the_mirror_after_the_release(path):
    merge_folded(DirectTable(path), ROWS, columns=COLUMNS, keys=COLUMNS[:2], commit=COMMIT)
    lost = unmatched_updates(DirectTable(path), ROWS, keys=COLUMNS[:2])
    assert [row.key["Id"] for row in lost] == [9, 8]


def test_a_table_of_key_columns_only_is_merged(path):
    rows = [
        FoldedRow({name: row.key.get(name) for name in COLUMNS}, row.action, values=row.key)
        for row in ROWS
    ]
    merge_folded(DirectTable(path), rows, columns=COLUMNS, keys=COLUMNS, commit=COMMIT)
    assert DirectTable(path).has(COMMIT)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pyarrow.string(), ["a", "b", "c"]),
        (pyarrow.binary(), [b"a", b"b", b"c"]),
        (
            pyarrow.decimal128(38, 9),
            [Decimal(f"12345678901234567890123456789.{n}") for n in range(3)],
        ),
    ],
)
def test_updates_of_unknown_rows_are_found_by_first_keys_of_any_type(tmp_path, kind, keys):
    path, columns = str(tmp_path / "t"), ("k", "n")
    schema = pyarrow.schema([("k", kind), ("n", pyarrow.int64())])
    write_deltalake(path, schema.empty_table())

    def merged(number, rows):
        commit = Commit("query-1", "mirror", number, 1)
        merge_folded(DirectTable(path), rows, columns=columns, keys=["k"], commit=commit)
        return [row.key["k"] for row in unmatched_updates(DirectTable(path), rows, keys=["k"])]

    def row(action, key, number):
        return FoldedRow({"k": key}, action, values={"k": key, "n": number})

    low, middle, high = keys
    assert merged(0, [row("replace", low, 0), row("replace", high, 0)]) == []
    assert merged(1, [row("patch", middle, 1)]) == [middle]
    assert merged(2, [row("patch", one, 2) for one in keys]) == [middle]
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted(tuple(one.values()) for one in found) == [(low, 2), (high, 2)]
