"""The benchmark of backfills feeds rows as docs/protocol.md, 7.16, has them, and reads the log."""

from __future__ import annotations

import pytest

from benchmarks.consumer.backfill import _steps
from benchmarks.consumer.feed import Feed
from benchmarks.consumer.freshness import Reader


@pytest.mark.parametrize(("rows", "ranges"), [(10_050, 2), (7, 1)])
def test_rows_of_a_key_range_are_one_transaction_of_one_time(rows, ranges):
    feed = Feed("b")
    records = list(feed.backfilled(rows, us=7))
    for one in records[:100]:
        assert (one.key, one.value) == feed.topic.framed(one.change)
    found = [record.change for record in records]
    first = min(one.key["id"] for one in found)
    assert sorted(one.key["id"] - first for one in found) == list(range(rows))
    assert {(one.us, one.mod) for one in found} == {(7, "INSERT")}
    assert len({one.order_key for one in found}) == rows
    of_range = {}
    for one in found:
        of_range.setdefault(one.transaction, []).append(one)
    assert set(of_range) == {f"spanner-backfill-{number}" for number in range(ranges)}
    for number in range(ranges):
        changes = of_range[f"spanner-backfill-{number}"]
        records = {change.sequence for change in changes}
        assert {change.records for change in changes} == {len(records)}
        assert records == set(range(-(-len(changes) // 20)))
        keys = [
            change.key["id"] - first for change in sorted(changes, key=lambda one: one.order_key)
        ]
        assert keys == list(range(number * 10_000, number * 10_000 + len(changes)))


def test_the_steps_of_the_last_release_are_timed_to_the_end_of_its_batch():
    def line(second, event, **fields):
        return {"timestamp": f"2026-01-01T00:00:{second:02d}+00:00", "event": event, **fields}

    assert _steps([line(0, "start")]) == {}
    lines = [
        line(0, "step", step="release"),
        line(1, "batch"),
        line(2, "step", step="release"),
        line(5, "step", step="sink-changelog"),
        line(9, "step", step="state"),
        line(10, "batch"),
        line(30, "step", step="plan"),
        line(31, "batch"),
    ]
    assert _steps(lines) == {"release": 3.0, "sink-changelog": 4.0, "state": 1.0}


def test_a_transaction_has_arrived_with_the_first_version_that_has_it_or_a_later_one(tmp_path):
    reader = Reader(tmp_path / "missing", ("Updated",))
    reader.look()
    assert reader.seen == []
    reader.seen += [(3_000_000, 1), (9_000_000, 4)]
    committed_us = {1: 1_000_000, 2: 2_000_000, 4: 5_000_000, 5: 8_000_000}
    assert reader.delays_s(committed_us) == [2.0, 4.0, 7.0]
