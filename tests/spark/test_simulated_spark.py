"""What the simulation does with lists is what Spark does with frames: the same rows go both ways.

Releases, the figures of a batch and the mirror's fold are drawn at random and compared; Spark is
slow to start a job, so each test makes one frame of many cases.
"""

import random

import pytest

from tests.simulation.gate_decoding import DecodedRow
from tests.simulation.gate_rows import DataRow, MemoryRows, count_rows, rows_within
from tests.simulation.gate_sinks import fold_row
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.batch.change_counts import count_changes
from tidegate.spark_consumer.batch.rows import CHANGE_SCHEMA
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.core.batch_state import Segment
from tidegate.spark_consumer.core.conservation import reads_of
from tidegate.spark_consumer.core.plan import ReleaseBounds

pytestmark = pytest.mark.spark

VALUE = frame(2, b"v")
SCHEMA = (
    "is_progress boolean, topic string, topic_partition int, offset long, key binary,"
    " value binary, order_key binary, mod string, origin long"
)


def drawn_rows(seed, count):
    """Draw changes around a few commit times, with copies of some at other offsets."""
    chance = random.Random(seed)
    rows = []
    for offset in range(count):
        copied = chance.choice(rows) if rows and chance.random() < 0.2 else None
        order_key = (
            OrderKey(chance.randrange(10), f"{chance.randrange(4)}", (0, offset), 0).encode()
            if copied is None
            else copied.order_key
        )
        key = frame(1, b"%d" % offset) if copied is None else copied.key
        rows.append(DataRow(order_key, "bank.a", chance.randrange(3), offset, key, VALUE, offset))
    return rows


def as_frame(spark, rows):
    return spark.createDataFrame(
        [
            (
                False, row.topic, row.topic_partition, row.offset,
                bytearray(row.key), bytearray(row.value), bytearray(row.order_key), "U",
                row.origin,
            )
            for row in rows
        ],
        SCHEMA,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
def test_a_release_is_the_same(spark, tmp_path, seed):
    waiting, fresh = drawn_rows(seed, 20), drawn_rows(seed + 100, 20)
    bounds = ReleaseBounds(number=0, after_us=2, through_us=6, segments=("s",))
    files = SegmentFiles(spark, str(tmp_path))
    planned = Segment("s", 1, 8, 20, (3, 8))
    segment = planned.written(files.store(as_frame(spark, waiting), planned))
    reads = reads_of([segment], after_us=2, through_us=6)
    kept = list(rows_within(waiting, 0, 8))
    simulated = [*rows_within(fresh, 2, 6), *rows_within(kept, 2, 6)]

    found = files.release(as_frame(spark, fresh), bounds, reads=reads)
    real = found.frame.collect()
    ordered = sorted(MemoryRows.unique(simulated), key=lambda row: row.order_key)

    places = [(row.topic_partition, row.offset) for row in ordered]
    assert [bytes(row.order_key) for row in real] == [row.order_key for row in ordered]
    assert [(row.topic_partition, row.offset) for row in real] == places
    assert [row.place for row in real] == list(range(len(ordered)))
    assert sum(row.copies for row in real) == len(simulated)
    read = list(rows_within(waiting, reads[0].after_us, reads[0].through_us))
    due = list(rows_within(waiting, 2, 6))
    assert (found.waiting[0].rows, found.waiting[1]) == (len(read), len(due))


def test_a_compaction_is_the_same(spark, tmp_path):
    waiting = drawn_rows(7, 20)
    files = SegmentFiles(spark, str(tmp_path))
    planned = Segment("s", 0, 9, 20, (9,))
    segment = planned.written(files.store(as_frame(spark, waiting), planned))
    reads = reads_of([segment], after_us=4, through_us=9)
    files.join(Segment("joined", 0, 9, 20, (9,)), reads=reads, after_us=4)

    real = spark.read.schema(CHANGE_SCHEMA).parquet(str(tmp_path / "joined")).collect()

    kept = sorted(row.order_key for row in waiting if row.commit_timestamp_us > 4)
    assert sorted(bytes(row.order_key) for row in real) == kept


@pytest.mark.parametrize(("after_us", "through_us"), [(-1, -1), (3, 3), (3, 7)])
def test_the_figures_of_a_batch_are_the_same(spark, after_us, through_us):
    rows = drawn_rows(11, 40)

    real = count_changes(as_frame(spark, rows), after_us=after_us, through_us=through_us)
    simulated = count_rows(rows, after_us, through_us)

    for name in ("late_rows", "early_min_us", "early_max_us", "unordered_rows"):
        assert getattr(real, name) == getattr(simulated, name), name
    assert real.due.rows == simulated.due.rows
    assert real.early.rows == simulated.early.rows


def test_a_fold_is_the_same(spark):
    """Random histories of one key each; the frame's columns are those that `decode` makes."""
    from tidegate.spark_consumer.sinks.merge.fold import captured_flag, fold, folded_value

    columns, chance, histories, changes = ("a", "b", "c"), random.Random(3), {}, []
    for key in range(60):
        before = dict.fromkeys(columns, 0) if chance.random() < 0.5 else None
        exists, steps = before is not None, []
        for _ in range(chance.randint(1, 5)):
            mod = "I" if not exists else chance.choice("UUD")
            exists = mod != "D"
            names = columns if mod == "I" else chance.sample(columns, chance.randint(1, 3))
            new = () if mod == "D" else tuple((name, chance.randrange(100)) for name in names)
            order_key = OrderKey(1, "t", (0, len(changes)), 0).encode()
            steps.append(DecodedRow(0, len(changes), order_key, b"%d" % key, mod, new, 7))
            values = {name: dict(new).get(name) for name in columns}
            whole = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[mod]
            changes.append(
                ({"id": key}, len(changes), None, whole, values, [name for name, _ in new])
            )
        histories[key] = before, steps
    schema = (
        "key struct<id:int>, ordinal long, commit_timestamp timestamp, mod_type string,"
        " new_values struct<a:int,b:int,c:int>, new_columns array<string>"
    )

    for row in fold(spark.createDataFrame(changes, schema), columns).collect():
        before, steps = histories[row["key"]["id"]]
        captured = {
            name: row[folded_value(n)] for n, name in enumerate(columns) if row[captured_flag(n)]
        }
        if row["action"] == "delete":
            real = None
        elif row["action"] == "replace":
            real = dict.fromkeys(columns) | captured
        else:
            real = None if before is None else before | captured
        assert real == fold_row(before, steps), (before, steps)
