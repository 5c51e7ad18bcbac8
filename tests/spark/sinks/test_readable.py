"""Spark's condition and the driver's decoder agree on which records can be decoded, and why not."""

from __future__ import annotations

import pytest

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.spark_consumer.sinks.readable import why_unreadable
from tidegate.spark_consumer.sinks.row_decoding import find_undecodable

pytestmark = pytest.mark.spark

COLUMNS = {"id": "INT64", "t": "STRING"}
TOPIC = Topic(
    "a",
    {1: COLUMNS, 2: {**COLUMNS, "n": "ARRAY<INT64>"}},
    ["id"],
)
NAMES = [one.split()[0] for one in ROWS_SCHEMA.split(", ")]


def cut(value):
    return value[:9]


def other_id(value):
    return value[:4] + b"\x63" + value[5:]


def key_id(value):
    return value[:4] + b"\x64" + value[5:]


FAULTS = {
    "none": ({}, None),
    "value cut short": ({"value": cut}, "a value does not fit the schema that it names"),
    "garbage": ({"value": lambda v: v[:5] + b"\xff" * 20}, "a value does not fit"),
    "no body": ({"value": lambda v: v[:5]}, "a value does not fit the schema that it names"),
    "value of another schema": ({"value": other_id}, "a value has a schema id that the plan does"),
    "a key's id": ({"value": key_id}, "a value has a schema id that the plan does not name"),
    "JSON": ({"value": lambda _v: b'{"id": 1}'}, "a value does not begin with a schema id"),
    "short": ({"value": lambda _v: b"\0\0"}, "a value does not begin with a schema id"),
    "key cut short": ({"key": lambda k: k[:5]}, "a key does not fit the schema that it names"),
    "no key": ({"key": lambda _k: None}, "a key does not begin with a schema id"),
    "no origin": ({"origin": lambda _o: None}, "a change names no stream partition"),
}


def row(number, change, alter):
    fields = dict(zip(NAMES, TOPIC.row(change, ordinal=number), strict=True))
    for name, change_it in alter.items():
        value = fields[name]
        new = change_it(bytes(value) if isinstance(value, bytearray) else value)
        fields[name] = bytearray(new) if isinstance(new, bytes) else new
    return tuple(fields.values())


@pytest.fixture(scope="module")
def rows():
    """A record of each fault, then ones that look odd and can be decoded."""
    change = Change("UPDATE", {"id": 7}, {"id": 7, "t": "x" * 40})
    odd = [
        Change("INSERT", {"id": None}, {"id": None, "t": None}),
        Change("DELETE", {"id": 7}, None),
        Change("UPDATE", {"id": 7}, {"id": 7, "t": "older"}, value_id=1),
        Change("INSERT", {"id": 1}, {"id": 1, "t": "x", "n": [1, 2]}, is_older=True),
    ]
    faulty = [row(n, change, alter) for n, (alter, _) in enumerate(FAULTS.values())]
    return faulty + [row(len(faulty) + n, one, {}) for n, one in enumerate(odd)]


def test_each_fault_has_its_reason_and_everything_else_has_none(spark, rows):
    frame = spark.createDataFrame(rows, ROWS_SCHEMA)
    found = frame.select("ordinal", why_unreadable(TOPIC.topic_schemas()).alias("why"))
    reasons = [row["why"] for row in found.orderBy("ordinal").collect()]
    texts = [text for _, text in FAULTS.values()]
    assert [reason is None for reason in reasons] == [
        *(text is None for text in texts), *[True] * (len(rows) - len(texts)),
    ]  # fmt: skip
    for reason, text in zip(reasons, texts, strict=False):
        assert text is None or reason.startswith(text)


def test_the_driver_gives_the_same_reasons(spark, rows):
    frame = spark.createDataFrame(rows, ROWS_SCHEMA)
    found = frame.withColumn("why", why_unreadable(TOPIC.topic_schemas()))
    by_spark = {row["ordinal"]: row["why"] for row in found.collect() if row["why"] is not None}
    records = [dict(zip(NAMES, one, strict=True)) for one in rows]
    by_driver = {
        record["ordinal"]: error.message
        for record, error in find_undecodable(records, TOPIC.topic_schemas())
    }
    assert by_spark == by_driver
