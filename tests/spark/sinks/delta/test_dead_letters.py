"""The table of dead letters."""

from __future__ import annotations

import pytest

from tests.spark.gate_rows import GATE_SCHEMA, change
from tidegate.spark_consumer.batch.bad_records import as_dead_letters, unordered_rows
from tidegate.spark_consumer.batch.rows import HEADER_TYPE
from tidegate.spark_consumer.sinks.delta.dead_letters import DeltaDeadLetters

pytestmark = pytest.mark.spark


def test_records_are_kept_once_by_batch_and_by_release_as_they_stand_in_kafka(spark, tmp_path):
    table = DeltaDeadLetters(str(tmp_path))
    foreign = (False, "bank.a", 0, 9, None, bytearray(b"{}"), None, None, None, [("x", b"1")])
    short = (False, "bank.a", 0, 8, b"k", b"v", bytearray(b"short"), None, None, [("order", b"s")])
    good = (*change(5, 7), None)
    frame = spark.createDataFrame([foreign, short, good], f"{GATE_SCHEMA}, headers {HEADER_TYPE}")
    of_batch = unordered_rows(frame)
    of_release = as_dead_letters(
        spark.createDataFrame([(*change(5, 7), "why")], f"{GATE_SCHEMA}, reason string")
    )
    for _ in range(2):
        assert table.write(of_batch, query_id="q", batch=3, release=None) == 2
        assert table.write(of_release, query_id="q", batch=3, release=1) == 1
    assert table.write(of_release, query_id="q", batch=4, release=2) == 1
    found = spark.read.format("delta").load(str(tmp_path / "dead_letters"))
    rows = found.orderBy("batch", "offset").collect()
    assert [(row.query_id, row.batch, row.release, row.offset) for row in rows] == [
        ("q", 3, 1, 7), ("q", 3, None, 8), ("q", 3, None, 9), ("q", 4, 2, 7),
    ]  # fmt: skip
    assert (rows[2].topic, rows[2].topic_partition, rows[2].key, rows[2].value) == (
        "bank.a", 0, None, b"{}",
    )  # fmt: skip
    assert [(one.key, one.value) for one in rows[2].headers] == [("x", b"1")]
    assert rows[2].reason == "its first header is no order key"
    assert [(one.key, bytes(one.value)) for one in rows[0].headers] == [
        ("order", bytes(change(5, 7)[6])), ("mod", b"I"), ("origin", (7).to_bytes(8, "big")),
    ]  # fmt: skip
    assert rows[0].reason == "why"
