"""Counts that Spark delivers late, or never."""

from types import SimpleNamespace

import pytest

from tidegate.spark_consumer.errors import CountsMissing
from tidegate.spark_consumer.sinks.observed import observed


class Spark:
    """An observation whose counts arrive at a time, and the clock beside it."""

    def __init__(self, arrives_at_s):
        self.arrives_at_s = arrives_at_s
        self.now_s = 100.0
        self._jo = SimpleNamespace(future=lambda: self)
        self.get = {"rows": 7}

    def isCompleted(self):  # noqa: N802 - Scala's name
        return self.now_s >= self.arrives_at_s

    def clock(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += max(seconds, 1)


@pytest.mark.parametrize("arrives_at_s", [0, 103, 159])
def test_counts_are_waited_for(arrives_at_s):
    spark = Spark(arrives_at_s)
    assert observed(spark, clock=spark.clock, sleep=spark.sleep) == {"rows": 7}


def test_counts_that_never_come_end_the_run():
    spark = Spark(float("inf"))
    with pytest.raises(CountsMissing, match="has not reported"):
        observed(spark, clock=spark.clock, sleep=spark.sleep)
    assert spark.now_s == 160
