"""Parts that are broken on purpose: what the ordered topic gets, how often, and where."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.errors import ReleaseUnconfirmed
from tidegate.spark_consumer.sinks.kafka import ordered_topic
from tidegate.spark_consumer.sinks.kafka.kafka_topic import KafkaOutputTopic
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink

__all__ = ["BROKEN_TOPICS"]

_SINK = "tests/unit/spark_consumer/sinks/kafka/test_ordered_topic.py"
_CLIENT = "tests/unit/spark_consumer/sinks/kafka/test_kafka_topic.py"

_holds, _publish = OrderedTopicSink._holds, OrderedTopicSink._publish


def _never_holds(self: Any, release: Any) -> bool:
    _holds(self, release)
    return False


def _read_first(self: Any) -> None:
    """Read what the topic holds, and take the transactional id after that."""
    self._last = self._topic.last_release()
    self._require_own(self._last)
    self._topic.start(f"{self._prefix}-gate-{self._query_id}-{self.name}")
    self._is_started = True


def _take_silence_for_an_abort(self: Any, release: Any) -> None:
    try:
        _publish(self, release)
    except ReleaseUnconfirmed:
        self._is_started = True
        raise


def _ask_for_no_cause(_self: Any, reason: Any) -> Any:
    return reason


def _always_first(_key: bytes, _count: int) -> int:
    return 0


BROKEN_TOPICS = (
    UnitMutant(
        "a release that is published again when it is repeated",
        (f"{_SINK}::test_a_release_that_the_topic_has_is_not_published_again",),
        ((OrderedTopicSink, "_holds", _never_holds),),
    ),
    UnitMutant(
        "a topic that is read before its former producer is ended",
        (f"{_SINK}::test_a_former_run_is_ended_before_the_topic_is_read",),
        ((OrderedTopicSink, "_start", _read_first),),
    ),
    UnitMutant(
        "a release that is published again after a commit without an answer",
        (f"{_SINK}::test_the_topic_is_read_after_a_commit_without_an_answer",),
        ((OrderedTopicSink, "_publish", _take_silence_for_an_abort),),
    ),
    UnitMutant(
        "a replaced run that takes the ordered topic from its successor",
        (
            f"{_CLIENT}::test_the_cause_is_asked_for_where_an_error_says_only_that_all_has_ended",
            f"{_CLIENT}::test_the_cause_is_asked_for_where_records_were_purged",
        ),
        ((KafkaOutputTopic, "_cause", _ask_for_no_cause),),
    ),
    UnitMutant(
        "keys of the ordered topic in one topic partition",
        (f"{_SINK}::test_each_key_is_in_order_where_java_would_place_it",),
        ((ordered_topic, "topic_partition_of", _always_first),),
    ),
)
