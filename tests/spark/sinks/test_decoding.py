"""Framed Avro to the columns of a change, and the same by the simulation, row by row."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.simulation.gate_decoding import ChangeReader
from tests.simulation.tables import KEY
from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.spark_consumer.sinks.decoding import CHANGE_COLUMNS, decode_changes

pytestmark = pytest.mark.spark

VERSIONS = {
    2: {KEY: "INT64", "a": "INT64", "b": "STRING(MAX)"},
    3: {KEY: "INT64", "b": "STRING(MAX)"},
    4: {KEY: "INT64", "b": "STRING(MAX)", "c": "BYTES(MAX)"},
}
"""A column is dropped, a worker starts and registers the table without it, a column is added."""


def drawn(chance, number):
    value_id = chance.choice(list(VERSIONS))
    mod = chance.choice(("INSERT", "UPDATE", "DELETE"))
    values = {"a": number, "b": f"text {number}", "c": b"%d" % number}
    names = [name for name in VERSIONS[value_id] if name != KEY]
    shown = names if mod == "INSERT" else chance.sample(names, chance.randint(1, len(names)))
    new = {name: chance.choice((values[name], None)) for name in shown}
    return Change(
        mod, {KEY: number}, None if mod == "DELETE" else new, us=number, value_id=value_id,
        token=f"token {number % 7}", is_older=chance.random() < 0.5,
    )  # fmt: skip


def test_a_change_has_the_columns_that_its_writer_captured(spark):
    """Every version is read, also what only an earlier one has; the simulation reads the same."""
    topic, chance = Topic("t", VERSIONS, [KEY]), random.Random(5)
    changes = [drawn(chance, number) for number in range(60)]
    rows = [topic.row(change, ordinal=n) for n, change in enumerate(changes)]
    schemas = topic.topic_schemas()
    frame = spark.createDataFrame(rows, ROWS_SCHEMA).withColumn("release", F.lit(7))
    reader = ChangeReader(schemas)

    decoded = decode_changes(frame, schemas, topic=topic.topic).orderBy("ordinal")

    assert tuple(decoded.columns) == CHANGE_COLUMNS
    for real, row, change in zip(decoded.collect(), rows, changes, strict=True):
        _, _, _, key, value, order_key, _, origin, ordinal = row
        simulated = reader.read(
            bytes(key), bytes(value), release=7, ordinal=ordinal, order_key=bytes(order_key),
            origin=origin,
        )  # fmt: skip
        values = real["new_values"].asDict() if real["new_values"] else {}
        names = real["new_columns"] or values
        captured = {name: values[name] for name in names if name != KEY}
        captured = {n: bytes(v) if isinstance(v, bytearray) else v for n, v in captured.items()}
        assert captured == dict(simulated.columns) == (change.new or {})
        assert (real["mod_type"][0], b"%d" % real["key"][KEY]) == (simulated.mod, simulated.key)
        assert real["origin"] == simulated.origin == change.origin
        assert real["value_bytes"] == len(value)
        assert (real["release"], real["ordinal"]) == (simulated.release, simulated.ordinal)


def test_a_change_that_names_no_stream_partition_fails_its_release(spark):
    topic = Topic("t", VERSIONS, [KEY])
    nameless = Change("INSERT", {KEY: 1}, {"b": "x"}, token="", is_older=True)
    rows = [topic.row(nameless, ordinal=0)]
    frame = spark.createDataFrame(rows, ROWS_SCHEMA).withColumn("release", F.lit(7))
    decoded = decode_changes(frame, topic.topic_schemas(), topic=topic.topic)

    with pytest.raises(Exception, match="names no stream partition"):
        decoded.collect()
