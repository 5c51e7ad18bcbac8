"""Rows of several files as those of one: types, columns, order, bounds."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow
import pytest

from tidegate.spark_consumer.sinks.delta.file_rows import (
    OtherColumns,
    aligned,
    in_order,
    plain_schema,
    statistics,
)

UTC_US = pyarrow.timestamp("us", "UTC")


def test_types_become_those_of_parquet_and_partitions_are_left_out():
    row = pyarrow.struct([("t", pyarrow.string()), ("l", pyarrow.large_list(UTC_US))])
    schema = pyarrow.schema(
        [
            pyarrow.field("row", row, nullable=False),
            pyarrow.field("raw", pyarrow.binary()),
            pyarrow.field("view", pyarrow.binary_view()),
            pyarrow.field("text", pyarrow.string_view()),
            pyarrow.field("part", pyarrow.bool_()),
        ]
    )
    elements = pyarrow.list_(pyarrow.field("element", UTC_US))
    text, raw = pyarrow.large_string(), pyarrow.large_binary()
    plain = pyarrow.struct([("t", text), ("l", elements)])
    expected = [("row", plain), ("raw", raw), ("view", raw), ("text", text)]
    assert plain_schema(schema, without=["part"]) == pyarrow.schema(expected)


def test_more_than_two_gibibytes_of_text_are_rows_of_one_file():
    once = pyarrow.array(["x" * (64 << 20)])
    inner = pyarrow.StructArray.from_arrays([once], ["t"])
    # The same memory 33 times.
    columns = [pyarrow.chunked_array([one] * 33) for one in (once, inner)]
    rows = pyarrow.table([pyarrow.array(range(33), pyarrow.int64()), *columns], ["n", "t", "r"])
    schema = plain_schema(rows.schema)
    found = aligned(rows, schema)
    assert found.nbytes > 2 * 2 * (1 << 30)
    assert (found.schema, found.num_rows) == (schema, 33)


def test_a_column_that_came_later_is_null_also_within_a_row():
    inner = pyarrow.struct([("a", pyarrow.int64())])
    old = pyarrow.table({"id": [1, 2, 3], "r": pyarrow.array([{"a": 1}, None, {"a": None}], inner)})
    wider = pyarrow.struct([("a", pyarrow.int64()), ("b", pyarrow.string())])
    schema = pyarrow.schema([("id", pyarrow.int64()), ("r", wider), ("new", UTC_US)])
    found = aligned(old, schema).slice(0)
    assert found.schema == schema
    assert found.to_pylist() == [
        {"id": 1, "r": {"a": 1, "b": None}, "new": None},
        {"id": 2, "r": None, "new": None},
        {"id": 3, "r": {"a": None, "b": None}, "new": None},
    ]


def test_a_slice_of_rows_keeps_its_values():
    inner = pyarrow.struct([("a", pyarrow.int64())])
    rows = pyarrow.table({"r": pyarrow.array([{"a": n} for n in range(5)], inner)}).slice(2, 2)
    assert aligned(rows, rows.schema).to_pylist() == [{"r": {"a": 2}}, {"r": {"a": 3}}]


@pytest.mark.parametrize(
    "rows",
    [
        {"id": [1], "other": [2]},
        {"id": [1], "r": pyarrow.array([{"other": 1}])},
    ],
)
def test_a_column_that_the_table_lacks_is_refused(rows):
    schema = pyarrow.schema([("id", pyarrow.int64()), ("r", pyarrow.struct([("a", UTC_US)]))])
    with pytest.raises(OtherColumns, match="other"):
        aligned(pyarrow.table(rows), schema)


def places(rows):
    return list(zip(rows["release"].to_pylist(), rows["ordinal"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    "given",
    [
        [],
        [(1, 0)],
        [(1, 0), (1, 1), (2, 0)],
        [(2, 0), (1, 1), (1, 0)],
        [(1, 1), (1, 0), (2, 5), (2, 4)],
        [(1, 5), (2, 0), (2, 0), (1, 9)],
    ],
)
def test_rows_are_in_the_order_of_release_and_ordinal(given):
    columns = {"release": [one[0] for one in given], "ordinal": [one[1] for one in given]}
    schema = pyarrow.schema([("release", pyarrow.int64()), ("ordinal", pyarrow.int64())])
    rows = pyarrow.table(columns, schema=schema)
    assert places(in_order(rows, ("release", "ordinal"))) == sorted(given)


def test_bounds_hold_for_each_value_in_the_form_of_the_log():
    at = datetime(2026, 5, 1, 12, 0, 0, 999_001, UTC)
    rows = pyarrow.table(
        {
            "n": pyarrow.array([3, None, -1], pyarrow.int64()),
            "d": pyarrow.array([date(1, 1, 1), None, date(9999, 12, 31)]),
            "at": pyarrow.array([at, at + timedelta(microseconds=1), None], UTC_US),
            "text": ["a" * 40, "b", None],
            "long": ["a", "z" * 40, "b"],
            "f": [1.0, float("nan"), 2.0],
            "dec": [Decimal("1.5"), None, None],
            "none": pyarrow.nulls(3, pyarrow.int64()),
            "r": pyarrow.array([{"a": 1}] * 3),
        }
    )
    found = json.loads(statistics(rows, [*rows.column_names, "missing"]))
    assert found["numRecords"] == 3
    assert found["minValues"] == {
        "n": -1,
        "d": "0001-01-01",
        "at": "2026-05-01T12:00:00.999Z",
        "text": "a" * 32,
    }
    assert found["maxValues"] == {
        "n": 3,
        "d": "9999-12-31",
        "at": "2026-05-01T12:00:01.000Z",
        "text": "b",
    }
    assert found["nullCount"] == {"n": 1, "d": 1, "at": 1, "text": 1, "long": 0, "none": 3}


def test_the_last_microsecond_of_all_has_no_upper_bound_and_zones_are_utc():
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    rows = pyarrow.table({"at": pyarrow.array([last], UTC_US)})
    assert json.loads(statistics(rows, ["at"]))["maxValues"] == {}
    east = pyarrow.timestamp("us", "+02:00")
    at = datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    rows = pyarrow.table({"at": pyarrow.array([at], east)})
    assert json.loads(statistics(rows, ["at"]))["minValues"] == {"at": "2026-05-01T10:00:00.000Z"}
