"""A mirror of changes that come out of order: the highest order wins, whatever the releases."""

from __future__ import annotations

import random

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_merge import merge_folded
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.newest import is_ordered_by_column, newest_rows
from tidegate.spark_consumer.sinks.delta.row_fold import fold_rows

COLUMNS = ("id", "note", SOURCE_ORDER, "_datastream_change_type")
PLAIN = ("id", "note")


def change(key, order, *, deleted=False):
    row = {
        "id": key,
        "note": f"n{order}",
        SOURCE_ORDER: f"{order:04d}",
        "_datastream_change_type": "DELETE" if deleted else "UPDATE",
    }
    new, old = (None, row) if deleted else (row, None)
    return {
        "key": {"id": key}, "ordinal": order, "mod_type": "DELETE" if deleted else "INSERT",
        "new_values": new, "old_values": old,
        "new_columns": None if deleted else list(COLUMNS),
        "old_columns": list(COLUMNS) if deleted else None,
    }  # fmt: skip


def test_the_newest_change_of_each_key_is_taken_as_an_insert():
    found = newest_rows(
        [change(1, 5), change(1, 7, deleted=True), change(1, 6), change(2, 1)], COLUMNS
    )
    assert [((one["new_values"] or {}).get("note"), one["mod_type"]) for one in found] == [
        ("n7", "INSERT"),
        ("n1", "INSERT"),
    ]


def test_a_table_without_the_column_is_left_as_it_is():
    changes = [{"anything": 1}]
    assert newest_rows(changes, PLAIN) is changes
    assert is_ordered_by_column(COLUMNS)
    assert not is_ordered_by_column(PLAIN)


@pytest.mark.parametrize("seed", range(5))
def test_in_any_releases_the_mirror_ends_with_the_highest_order(tmp_path, seed):
    rng = random.Random(seed)
    changes = [change(rng.randrange(4), n, deleted=rng.random() < 0.3) for n in range(40)]
    expected = {one["key"]["id"]: one["new_values"] or one["old_values"] for one in changes}
    rng.shuffle(changes)
    kinds = [pyarrow.int64(), pyarrow.string(), pyarrow.string(), pyarrow.string()]
    schema = pyarrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    write_deltalake(tmp_path / "t", pyarrow.Table.from_pylist([], schema=schema))
    for release in range(8):
        some = changes[release * 5 : release * 5 + 5]
        merge_folded(
            DirectTable(str(tmp_path / "t")),
            fold_rows(newest_rows(some, COLUMNS), COLUMNS),
            columns=COLUMNS, keys=["id"], commit=Commit("query-1", "mirror", release, release + 1),
        )  # fmt: skip
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    assert {row["id"]: row for row in found} == expected
