"""The gate's columns, and comparisons of order keys."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.batch.gate_world import ACCOUNTS, LEDGER, GateWorld
from tests.spark.gate_rows import change, commit_times_us
from tidegate.schemas.checksums import origin_of
from tidegate.spark_consumer.batch.rows import CHANGE_COLUMNS, kafka_columns, within

pytestmark = pytest.mark.spark

KEY = bytes(29)
"""The shortest order key."""

ORIGINS = {
    bytes(8): 0,
    b"\x7f" + b"\xff" * 7: 2**63 - 1,
    b"\x80" + bytes(7): -(2**63),
    b"\xff" * 8: -1,
    b"\xff" * 7: None,
    b"\x01" * 9: None,
    b"": None,
    origin_of("P"): int.from_bytes(origin_of("P"), "big", signed=True),
}
"""Contents of the header, and the column."""


def test_kafkas_rows_get_the_gates_columns(spark):
    headers = "array<struct<key:string,value:binary>>"
    kafka = spark.createDataFrame(
        [
            ("t", 3, 9, b"k", b"v", [("order", KEY), ("mod", b"U")]),
            *(
                ("t", 3, 12, b"k", b"v", [("order", KEY), ("mod", b"U"), ("origin", origin)])
                for origin in ORIGINS
            ),
            ("t", 3, 13, b"k", b"v", [("order", KEY), ("mod", b"U"), ("redriven", bytes(8))]),
            ("t", 3, 10, b"k", b"v", [("mod", b"U"), ("order", KEY)]),
            ("t", 3, 11, b"k", b"v", None),
        ],
        f"topic string, partition int, offset long, key binary, value binary, headers {headers}",
    )
    found = kafka_columns(kafka, is_progress=False)
    assert found.columns == ["is_progress", *CHANGE_COLUMNS, "headers"]
    assert [(row.order_key, row.mod, row.origin) for row in found.collect()] == [
        (KEY, "U", None),
        *((KEY, "U", number) for number in ORIGINS.values()),
        (KEY, "U", None),
        (None, None, None),
        (None, None, None),
    ]


@pytest.mark.parametrize("is_progress", [False, True])
def test_a_record_without_a_value_is_a_row_of_the_progress_topic_only(spark, is_progress):
    headers = "array<struct<key:string,value:binary>>"
    named = [("order", KEY), ("mod", b"D")]
    kafka = spark.createDataFrame(
        [("t", 3, 9, b"k", b"", named), ("t", 3, 10, b"k", None, None)],
        f"topic string, partition int, offset long, key binary, value binary, headers {headers}",
    )
    found = kafka_columns(kafka, is_progress=is_progress).collect()
    assert [row.offset for row in found] == ([9, 10] if is_progress else [9])


def test_the_origin_is_sparks_hash_of_the_token(spark):
    tokens = ["", "P", "täglich", "x" * 200, *(f"token {number}" for number in range(50))]
    hashed = spark.createDataFrame([(token,) for token in tokens], "token string").select(
        F.xxhash64("token").alias("number")
    )
    numbers = [int.from_bytes(origin_of(token), "big", signed=True) for token in tokens]
    assert [row.number for row in hashed.collect()] == numbers


@pytest.mark.parametrize(
    ("after_us", "through_us", "expected"),
    [(10, 20, [11, 20]), (-1, 10, [0, 10]), (9, 10, [10]), (20, 30, [])],
)
def test_bounds_are_exclusive_below_and_inclusive_above(rows, after_us, through_us, expected):
    found = rows(*(change(us) for us in (0, 10, 11, 20)))
    assert (
        commit_times_us(found.where(within(after_us=after_us, through_us=through_us))) == expected
    )


KAFKA = (
    "topic string, partition int, offset long, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>"
)


class KafkaWorld(GateWorld):
    """The same, with rows as Spark's Kafka source has them."""

    def ask(self, batch, number):
        frames = [
            kafka_columns(self._kafka(number, is_progress), is_progress=is_progress)
            for is_progress in (True, False)
        ]
        batch(frames[0].unionByName(frames[1]), number)

    def _kafka(self, number, is_progress):
        rows = [
            (*row[1:6], None if row[6] is None else headers(*row[6:]))
            for row in self.cuts[number].rows
            if row[0] is is_progress
        ]
        return self.spark.createDataFrame(rows, KAFKA)

    def delete(self, commit_us, *, topic=ACCOUNTS):
        """Add a change, and behind it a record with its key and nothing else."""
        self.log.change(commit_us, topic=topic)
        key = self.log.sent[-1][4]
        row = (False, topic, 0, self.log._next(topic), key, None)
        self.log.rows.append((*row, None, None, None))


def headers(order_key, mod, origin):
    named = {
        "order": order_key,
        "mod": mod.encode(),
        "origin": origin.to_bytes(8, "big", signed=True),
    }
    return [(name, bytearray(value)) for name, value in named.items()]


@pytest.mark.slow
@pytest.mark.parametrize("is_collected", [True, False])
def test_small_and_large_releases_and_segments_hold_changes_only(spark, tmp_path, is_collected):
    rows_max = 40 if is_collected else 0
    world = KafkaWorld(
        spark, tmp_path, small_release_rows_max=rows_max, small_release_bytes_max=100_000
    )
    world.collects = is_collected
    batch = world.start()
    world.delete(10)
    world.delete(30)
    world.log.beat(10)
    state = world.run(batch)
    assert [one.rows for one in state.segments] == [1]
    assert world.order_us(0) == [10]

    world.delete(20, topic=LEDGER)
    world.delete(25)
    world.log.finish("t", end_us=40)  # which states four changes
    world.log.beat(50, token="u")
    state = world.run(batch)
    assert (world.order_us(1), state.mismatches) == ([20, 25, 30], 0)
    assert state.segments == ()
    assert world.late == {}
