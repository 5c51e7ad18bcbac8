"""The benchmark's table answers reads as Spanner does: all keys, and the rows of each key range."""

from __future__ import annotations

import pytest
from google.cloud.spanner_v1.types import ReadRequest

from benchmarks.producer.responses import TABLE
from benchmarks.producer.table_rows import key_text, table_responses
from tidegate.producer.backfill.read_plan import KeyRanges, read_partitions
from tidegate.producer.spanner.table_rows import KeysDecoder, RowsDecoder

ROWS = 9_003
NAMES = [column.name for column in TABLE.columns]


def request(columns, after=None, through=None):
    read = ReadRequest.pb()(table=TABLE.name, columns=columns)
    if after is None and through is None:
        read.key_set.all_ = True
        return read
    bounds = read.key_set.ranges.add()
    for target, key in ((bounds.start_open, after), (bounds.end_closed, through)):
        target.SetInParent()
        if key is not None:
            target.values.add(string_value=key[0])
    return read


def test_the_ranges_that_keys_are_cut_into_have_each_row_once():
    ranges = KeyRanges(rows_min=2_000)
    keys = KeysDecoder(ranges, width=1)
    for message in table_responses(request(["Id"]), ROWS):
        keys.decode(message)
    keys.end()
    found = []
    for one in read_partitions([(TABLE.name, ranges)]):
        rows = RowsDecoder(one, TABLE.columns, read_ns=1_000)
        for message in table_responses(request(NAMES, one.after, one.through), ROWS):
            found += [mod for record in rows.decode(message) for mod in record.mods]
        rows.end()

    assert [mod.keys["Id"] for mod in found] == [key_text(number) for number in range(ROWS)]
    assert all(mod.new_values.keys() == set(NAMES) - {"Id"} for mod in found)
    assert len({mod.new_values["Updated"] for mod in found}) == 16


def test_columns_in_another_order_are_refused():
    with pytest.raises(ValueError, match="the first column of a read is Owner"):
        next(table_responses(request(["Owner", "Id"]), 1))
