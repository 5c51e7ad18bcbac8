"""A record that Spark cannot decode is named by its place, and any other error is left alone."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.batch.undecodable import naming_undecodable
from tidegate.spark_consumer.sinks.decoding import decode_changes, decode_stated

pytestmark = pytest.mark.spark

FAULTS = {
    "cut short": {"value": lambda value: value[:9]},
    "another schema": {"value": lambda value: value[:4] + b"\x63" + value[5:]},
    "no stream partition": {"origin": lambda _origin: None},
}
TEXTS = {
    "cut short": "does not fit the schema",
    "another schema": "schema id that the plan does not name",
    "no stream partition": "names no stream partition",
}


@pytest.fixture
def topics():
    return [
        Topic("a", {1: {"id": "INT64", "t": "STRING"}}, ["id"]),
        Topic("b", {2: {"id": "INT64", "t": "STRING"}}, ["id"], key_id=101),
    ]


def frame_of(spark, topics, fault):
    """Three records of each topic; the second one of the second topic has the fault."""
    rows = []
    for topic in topics:
        for n in range(3):
            change = Change("INSERT", {"id": n}, {"id": n, "t": "x" * 40}, us=n + 1)
            row = topic.row(change, ordinal=n)
            fields = dict(
                zip([one.split()[0] for one in ROWS_SCHEMA.split(", ")], row, strict=True)
            )
            if topic is topics[1] and n == 1:
                for name, alter in FAULTS[fault].items():
                    new = alter(bytes(fields[name]) if name == "value" else fields[name])
                    fields[name] = bytearray(new) if name == "value" else new
            rows.append(tuple(fields.values()))
    return spark.createDataFrame(rows, ROWS_SCHEMA).withColumn("release", F.lit(4).cast("long"))


@pytest.mark.parametrize("fault", FAULTS)
def test_it_is_named_by_its_place(spark, topics, fault):
    frame = frame_of(spark, topics, fault)
    known = {topic.topic: topic.topic_schemas() for topic in topics}
    with (
        pytest.raises(SchemaError, match=TEXTS[fault]) as caught,
        naming_undecodable(frame, known, release=4),
    ):
        decode_changes(frame, known["bank.b"], topic="bank.b").collect()
    found = caught.value.fields
    assert (found["table"], found["topic_partition"], found["offset"]) == ("b", 0, 2)
    assert "other writer" in str(caught.value)


def test_it_is_found_by_the_count_of_transactions_too(spark, topics):
    frame = frame_of(spark, topics, "cut short")
    known = {topic.topic: topic.topic_schemas() for topic in topics}
    with (
        pytest.raises(SchemaError, match="does not fit"),
        naming_undecodable(frame, known, release=4),
    ):
        decode_stated(frame, known.values()).collect()


def test_other_errors_are_left_as_they_are(spark, topics):
    frame = frame_of(spark, topics, "cut short")
    with pytest.raises(ValueError, match="mine"), naming_undecodable(frame, {}, release=4):
        raise ValueError("mine")
