"""A small release is folded in the driver as Spark folds it."""

import math
from decimal import Decimal
from uuid import UUID

import pytest

from tests.spark.sinks.delta.test_both_ways import history
from tests.topics import Change, Topic
from tidegate.spark_consumer.sinks.merge.folded import folded_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NAN = {"id": math.nan}
FLOATS = (
    Topic("t", {1: {"id": "FLOAT64", "a": "INT64", "b": "INT64"}}, ["id"]),
    [
        Change("INSERT", NAN, {"a": 1}, us=1),
        Change("UPDATE", dict(NAN), {"b": 2}, us=2),
        Change("INSERT", {"id": 0.0}, {"a": 1, "b": 1}, us=3),
        Change("DELETE", {"id": -0.0}, None, us=4),
    ],
)
# Columns with the names that folds and decoded changes have, of types that have an annotation.
OWN_COLUMNS = {
    "key": "ENUM<a.B>",
    "t": "STRING(MAX)",
    "action": "PROTO<a.B>",
    "base_ordinal": "ENUM<a.B>",
    "captured_0": "ARRAY<PROTO<a.B>>",
    "value_0": "ARRAY<ENUM<a.B>>",
    "in_0": "STRING(MAX)",
    "newest_0": "NUMERIC",
    "ordinal": "BOOL",
    "mod_type": "STRING(MAX)",
    "new_values": "BYTES(MAX)",
    "select": "UUID",
}
NO_KEY = {"key": None, "t": None}
OWN_VALUES = {
    "action": b"\x08\x01",
    "base_ordinal": 2**31 - 1,
    "captured_0": [b"", None],
    "value_0": [0, None],
    "in_0": "'`\"\\",
    "newest_0": Decimal("-0.000000001"),
    "ordinal": True,
    "mod_type": "DELETE",
    "new_values": b"",
    "select": UUID(int=7),
}
OWN_NAMES = (
    Topic("t", {1: OWN_COLUMNS}, ["key", "t"]),
    [
        Change("INSERT", NO_KEY, OWN_VALUES, us=1),
        Change("UPDATE", NO_KEY, {"action": None, "in_0": "x"}, us=2),
        Change("INSERT", {"key": 0, "t": ""}, OWN_VALUES, us=3),
        Change("DELETE", {"key": 0, "t": ""}, None, us=4),
        Change("UPDATE", {"key": 0, "t": ""}, {"captured_0": []}, us=5),
        Change("UPDATE", {"key": 0, "t": None}, {"mod_type": "INSERT"}, us=6),
    ],
)


@pytest.mark.timeout(600)
def test_a_fold_in_the_driver_is_sparks(kit):
    for number, (topic, changes) in enumerate([*history(), FLOATS, OWN_NAMES]):
        pairs = [(topic, change) for change in changes]
        driver, spark = (
            folded_table(
                kit.release(number, pairs, topics=[topic], small=small).tables[topic.topic]
            )
            for small in (True, False)
        )
        for count in ("rows", "patched", "lost"):
            assert (number, getattr(driver, count)) == (number, getattr(spark, count))
        theirs, ours = spark.frame, driver.frame.select(spark.frame.columns)
        assert [one.dataType for one in ours.schema] == [one.dataType for one in theirs.schema]
        assert ours.exceptAll(theirs).collect() == theirs.exceptAll(ours).collect() == []
        assert ours.count() == theirs.count() > 0
        driver.free()
        spark.free()
