"""A small release is folded in the driver as Spark folds it."""

import math

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


@pytest.mark.timeout(600)
def test_a_fold_in_the_driver_is_sparks(kit):
    for number, (topic, changes) in enumerate([*history(), FLOATS]):
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
