"""Parts that are broken on purpose: a sink that forgets what it wrote before a kill.

It is exact without a kill, so that only the query that is killed at every step can tell.
"""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink

__all__ = ["BROKEN_SINKS"]

_KILLED = "tests/spark/test_all_sinks_killed.py"
_LEAVES_THE_SAME = (f"{_KILLED}::test_killed_after_each_step_in_turn_the_batch_leaves_the_same",)

_holds = OrderedTopicSink._holds


def _never_holds(self: Any, release: Any) -> bool:
    _holds(self, release)
    return False


BROKEN_SINKS = (
    UnitMutant(
        "an ordered topic that publishes a release again after a kill",
        _LEAVES_THE_SAME,
        ((OrderedTopicSink, "_holds", _never_holds),),
    ),
)
