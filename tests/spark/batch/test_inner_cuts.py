"""Cuts inside one commit time: a backfill's release is sorted and read in parts of bounded size."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.batch.gate_world import ACCOUNTS, LEDGER, GateWorld, RecordingSink
from tests.spark.gate_rows import change
from tidegate.spark_consumer.batch.inner_cuts import find_inner_cuts
from tidegate.spark_consumer.core.plan import ReleaseBounds

pytestmark = pytest.mark.spark

T = 7
BOUNDS = ReleaseBounds(3, 0, 10, ())


def test_a_release_that_fits_takes_no_job(rows):
    class NotRead:
        def select(self, *_):
            raise AssertionError("the rows were read")

    class IsRead(Exception):
        pass

    class Read:
        def select(self, *_):
            raise IsRead

    # By the times at which its slices end, how many changes a release may have without a look.
    several = ReleaseBounds(3, 0, 10, (), cuts_us=(3, 5, T))
    for bounds, rows_max in (
        (BOUNDS, 200),
        (replace(BOUNDS, cuts_us=(T,)), 200),  # all at one time, before the end
        (several, 400),
    ):
        assert find_inner_cuts(NotRead(), bounds, rows_max=rows_max, slice_rows=100) == ()
        with pytest.raises(IsRead):
            find_inner_cuts(Read(), bounds, rows_max=rows_max + 1, slice_rows=100)
    found = rows(*(change(T, n, transaction=f"t{n:03d}") for n in range(201)))
    for bounds in (BOUNDS, replace(BOUNDS, cuts_us=(T,))):
        cuts = find_inner_cuts(found, bounds, rows_max=201, slice_rows=100)
        assert cuts == (T.to_bytes(8, "big") + b"t100\0",)


class CountingSink(RecordingSink):
    """Notes how many changes of each transaction stand in each task."""

    tasks: ClassVar[list[tuple[int, str, int]]] = []

    def write(self, release):
        self.tasks.clear()
        for one in release.tables.values():
            task = F.spark_partition_id().alias("task")
            counted = one.frame.groupBy(task, "server_transaction_id").count()
            self.tasks.extend(tuple(row) for row in counted.collect())
        ordinals = [one.ordinal for one in release.source_records()]
        assert ordinals == list(range(release.rows))
        return super().write(release)


def test_all_rows_of_a_backfill_are_one_release_of_many_slices(spark, tmp_path):
    """They wait as segments, have one commit time, and come with copies and a change after them."""
    world = GateWorld(spark, tmp_path, slice_rows=20)
    world.collects = False
    world.make_sink = lambda: CountingSink(world.released)
    log, sequences = world.log, (0, 1, 2, 3)
    batch = world.start()
    for part in range(2):
        for number in range(part, 50, 2):
            for sequence in sequences:
                log.change(
                    T, topic=(ACCOUNTS, LEDGER)[sequence % 2], transaction=f"r{number}",
                    sequence=sequence, records=len(sequences), copies=1 + (number == 9),
                )  # fmt: skip
        world.run(batch)
    log.change(9, transaction="later")
    log.beat(9)
    state = world.run(batch)

    assert (state.next_release, state.segments) == (1, ())
    assert [(row[1], row[0]) for row in world.released[0]] == list(
        enumerate(sorted(row[0] for row in world.released[0]))
    )
    assert len(world.released[0]) == 50 * 4 + 1
    tasks: dict[str, set[int]] = {}
    changes: dict[int, int] = {}
    for task, transaction, count in CountingSink.tasks:
        tasks.setdefault(transaction, set()).add(task)
        changes[task] = changes.get(task, 0) + count
    assert all(len(of) == 1 for of in tasks.values())
    assert len(changes) >= 8
    assert max(changes.values()) <= 40
