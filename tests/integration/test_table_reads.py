"""Rows read from their tables are what the change stream says of them, in each dialect."""

from __future__ import annotations

import pytest

from tests.integration.test_dialects import NAMED, TABLE, meaning, sides
from tests.reading import decoded, received
from tidegate.producer.backfill.read_plan import KeyRanges, read_partitions
from tidegate.producer.errors import QueryRefused
from tidegate.producer.spanner.catalogue import SpannerCatalogue
from tidegate.producer.spanner.table_reads import SpannerTableReads
from tidegate.producer.spanner.tables_at import TablesAt

pytestmark = pytest.mark.integration

__all__ = ["sides"]  # a fixture


def reads_of(side):
    tables = TablesAt(
        SpannerCatalogue(side.channels), stream=side.description.name, tasks=side.tasks
    )
    return SpannerTableReads(side.channels, tables)


def planned(side, table, read_ns, **sizes):
    ranges = KeyRanges(**sizes)
    for response in received(reads_of(side).keys(table, ranges, read_ns=read_ns), side.tasks):
        assert response.decode()[0] == []
    return read_partitions([(table, ranges)])


def rows_of(side, one, read_ns):
    query = reads_of(side).rows(one, read_ns=read_ns)
    return [record for records in decoded(query, side.tasks) for record in records]


def last_ns(side):
    return side.workload[-1].commit_timestamp_ns


def folded(side, table):
    """The rows of a table after the workload, by key, as its changes leave them."""
    rows = {}
    for record in side.workload:
        for mod in record.mods if record.table_name == table else ():
            rows.setdefault(mod.keys["Id"], {}).update(meaning(mod.new_values))
    return {key: repr(sorted(row.items())) for key, row in rows.items()}


@pytest.mark.parametrize("table", [TABLE, NAMED])
def test_each_row_is_what_its_changes_left(sides, table):
    for side in sides:
        parts = planned(side, table, last_ns(side), rows_min=10)
        records = [one for part in parts for one in rows_of(side, part, last_ns(side))]
        found = [
            (mod.keys["Id"], repr(sorted(meaning(mod.new_values).items())))
            for record in records
            for mod in record.mods
        ]
        assert dict(found) == folded(side, table)
        assert len(found) == len(dict(found)) == sum(part.rows for part in parts)
        assert {record.commit_timestamp_ns for record in records} == {last_ns(side)}
        known = next(one for one in side.description.tables if one.name == table)
        for record in records:
            assert [(c.name, c.type, c.is_primary_key, c.ordinal) for c in record.columns] == [
                (c.name, c.type, c.key_position is not None, c.ordinal) for c in known.columns
            ]
    assert len(planned(sides[0], TABLE, last_ns(sides[0]), rows_min=10)) > 5


def test_a_repeated_read_returns_the_same_records(sides):
    side = sides[0]
    (part,) = planned(side, TABLE, last_ns(side))
    first = rows_of(side, part, last_ns(side))
    with side.database.batch() as batch:
        batch.insert_or_update(TABLE, ["Id", "S"], [[-1, "later"]])
    assert rows_of(side, part, last_ns(side)) == first
    numbers = [(one.record_sequence, len(one.mods)) for one in first]
    assert [rows for _, rows in numbers[:-1]] == [20] * (len(numbers) - 1)
    assert [sequence for sequence, _ in numbers] == [f"{n:08d}" for n in range(len(numbers))]
    assert {one.number_of_records_in_transaction for one in first} == {len(first)}
    assert [one.is_last_record_in_transaction_in_partition for one in first] == [
        *[False] * (len(first) - 1), True,
    ]  # fmt: skip


def test_a_time_that_spanner_keeps_no_rows_of_is_refused_with_what_to_do(sides):
    side = sides[0]
    (part,) = planned(side, TABLE, last_ns(side))
    day_ns = 86_400 * 10**9
    with pytest.raises(QueryRefused, match="version_retention_period"):
        rows_of(side, part, last_ns(side) - 30 * day_ns)
