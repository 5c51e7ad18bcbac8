"""Files that are left out of a look-up, by the bounds that the log has of them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from tidegate.spark_consumer.sinks.delta.file_bounds import paths_without

US = pyarrow.timestamp("us", "UTC")
AT = datetime(2026, 5, 1, 12, 0, 0, 999_000, UTC)
LAST = datetime.max.replace(tzinfo=UTC)


def left_out(kind, bounds, wanted):
    """Of files with these bounds, the places of those without any of the values."""
    columns = {
        "path": [str(n) for n in range(len(bounds))],
        "min.k": pyarrow.array([low for low, _ in bounds], kind),
        "max.k": pyarrow.array([high for _, high in bounds], kind),
    }
    found = paths_without(pyarrow.array(wanted, kind), pyarrow.table(columns), "k")
    return sorted(map(int, found))


BOUNDS = [(0, 4), (5, 5), (6, None), (None, 9), (-(2**63), 2**63 - 1)]


@pytest.mark.parametrize(
    ("kind", "bounds", "wanted", "expected"),
    [
        (pyarrow.int64(), BOUNDS, [5], [0]),
        (pyarrow.int64(), BOUNDS, [-1, 6], [0, 1]),
        (pyarrow.int64(), BOUNDS, [], [0, 1, 4]),
        # A bound is missing, or NULL is looked for, of which bounds say nothing.
        (pyarrow.int64(), BOUNDS, [5, None], []),
        (pyarrow.date32(), [(date(1, 1, 1), date(1582, 10, 10))], [date(1582, 10, 11)], [0]),
        (pyarrow.date32(), [(date(1, 1, 1), date(1582, 10, 10))], [date(1582, 10, 10)], []),
        # Cut to milliseconds, downwards or upwards.
        (US, [(AT, AT)], [AT + timedelta(microseconds=999)], []),
        (US, [(AT, AT)], [AT - timedelta(microseconds=999)], []),
        (US, [(AT, AT)], [AT + timedelta(milliseconds=2)], [0]),
        (US, [(LAST.replace(microsecond=999_000),) * 2], [LAST], []),
        # Types whose bounds writers round, cut, or compare in different ways.
        (pyarrow.decimal128(38, 9), [(Decimal(1), Decimal(1))], [Decimal(2)], []),
        (pyarrow.string(), [("a", "a")], ["b"], []),
        (pyarrow.bool_(), [(True, True)], [False], []),
        (pyarrow.float64(), [(1.0, 1.0)], [float("nan")], []),
    ],
)
def test_a_file_is_left_out_only_where_true_bounds_exclude_each_value(
    kind, bounds, wanted, expected
):
    assert left_out(kind, bounds, wanted) == expected


def test_a_column_without_bounds_or_with_those_of_another_type_leaves_out_nothing():
    wanted = pyarrow.array([5], pyarrow.int64())
    without = pyarrow.table({"path": ["0"]})
    other = pyarrow.table({"path": ["0"], "min.k": ["6"], "max.k": ["6"]})
    assert paths_without(wanted, without, "k") == paths_without(wanted, other, "k") == set()


def test_bounds_are_those_that_the_log_names(tmp_path):
    for number in (1, 7):
        write_deltalake(tmp_path / "t", pyarrow.table({"k": [number]}), mode="append")
    table = DeltaTable(tmp_path / "t")
    actions = pyarrow.table(table.get_add_actions(flatten=True))
    found = paths_without(pyarrow.array([7]), actions, "k")
    assert len(found) == 1
    (log,) = (tmp_path / "t" / "_delta_log").glob("*0.json")
    (add,) = [one["add"] for one in map(json.loads, log.read_text().splitlines()) if "add" in one]
    assert found == {add["path"]}
