"""Parts that are broken on purpose: when a transaction runs, how it ends, where its records go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.core import effects as do
from tidegate.producer.core.events import CommitOutcomeUnknown, CommitUnanswered
from tidegate.producer.core.heartbeat import HeartbeatWriter
from tidegate.producer.core.parked_keys import ParkedKeys
from tidegate.producer.core.transaction_cycle import TransactionCycle
from tidegate.producer.core.undeliverable import UndeliverableRecords
from tidegate.producer.kafka import publisher as kafka_publisher
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.translation.former_keys import FormerKeys
from tidegate.producer.translation.parked_survey import ParkedSurvey
from tidegate.schemas import partitioner

__all__ = ["BROKEN_PUBLISHING"]

_CYCLE = "tests/unit/producer/core/test_transaction_cycle.py"
_FORMER_KEYS = "tests/unit/producer/translation/test_former_keys.py"
_PARKED_KEYS = "tests/unit/producer/core/test_parked_keys.py"
_SURVEY = "tests/unit/producer/translation/test_parked_survey.py"
_HEARTBEAT = "tests/unit/producer/core/test_heartbeat.py"

_PUBLISHER = "tests/unit/producer/kafka/test_publisher.py"
_TOMBSTONE = "test_a_tombstone_without_headers_follows_each_delete_and_moves_the_vector"

_commit_cycle = TransactionCycle.commit


def _commit_without_interval(self: Any, now_us: int) -> Any:
    outcome = _commit_cycle(self, now_us)
    self._due_us = now_us
    return outcome


def _retry_commit_without_end(self: Any, now_us: int) -> list[do.Effect]:
    self.open.is_commit_unanswered = True
    return [do.CommitTransaction()]


def _each_key_alone(self: Any) -> Any:
    return {name: [key] for name, key in self._keys.items()}


def _begin_a_chain_after_any_change(self: Any, tokens: int) -> bool:
    return self._position is None or self._entries > 0


_commit_publisher = KafkaPublisher.commit


def _take_refusal_for_silence(self: Any) -> Any:
    outcome = _commit_publisher(self)
    if isinstance(outcome, CommitOutcomeUnknown):
        return CommitUnanswered(outcome.reason)
    return outcome


def _leave_the_place_to_the_client(key: bytes, number: int) -> int:
    """Name no topic partition: the client takes the number that the topic has by now."""
    return -1


_produce = KafkaPublisher._produce


def _without_vector(self: Any, topic: str, **options: Any) -> Any:
    """Publish what has no value without its place in the vector."""
    if options["value"] is None and topic != self._progress_topic:
        options["on_delivery"] = self._reports.of_parked(options["slot"], options["records"])
    return _produce(self, topic, **options)


def _with_headers(self: Any, topic: str, **options: Any) -> Any:
    """Publish what has no value as a change, with the headers of one."""
    if options["value"] is None:
        options["headers"] = [("order", b""), ("mod", b"D")]
    return _produce(self, topic, **options)


def _murmur2_of_signed_bytes(data: bytes) -> int:
    """Forget `& 0xff`, without which Java's bytes beyond 127 are negative."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    size = len(data)
    hashed = 0x9747B28C ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        mixed = int.from_bytes(data[at : at + 4], "little") * factor & mask
        hashed = (hashed * factor ^ (mixed ^ mixed >> 24) * factor) & mask
    tail = data[whole:]
    if tail:
        signed = int.from_bytes(tail, "little", signed=True)
        hashed = (hashed ^ signed) * factor & mask
    hashed = (hashed ^ hashed >> 13) * factor & mask
    return hashed ^ hashed >> 15


_UNDELIVERABLE = "tests/unit/producer/core/test_undeliverable.py"
_count = UndeliverableRecords._count


def _count_by_slot(self: UndeliverableRecords, failure: Any) -> int:
    return _count(self, replace(failure, topic=f"{failure.topic} {failure.slot}"))


_delivered = UndeliverableRecords.delivered


def _forget_with_any_commit(self: UndeliverableRecords, topics: Any) -> None:
    self._failed.clear()


def _forget_records_too(self: UndeliverableRecords, topics: Any) -> None:
    _delivered(self, topics)
    self._too_large.clear()


BROKEN_PUBLISHING = (
    UnitMutant(
        "a row that is parked under a key of an earlier version and goes on",
        (f"{_PARKED_KEYS}::test_a_row_that_an_earlier_version_parked_under_another_key_is_parked",),
        ((ParkedKeys, "_holds", lambda *_: False),),
    ),
    UnitMutant(
        "a key of an earlier version taken for another row's",
        (f"{_FORMER_KEYS}::test_what_an_earlier_version_has_parked_is_put_back_under_todays_key",),
        ((FormerKeys, "todays", lambda _self, key: key),),
    ),
    UnitMutant(
        "keys of one row put back one after the other",
        (f"{_SURVEY}::test_the_keys_of_one_row_go_back_together_and_in_the_order_of_the_row",),
        ((ParkedSurvey, "_groups", _each_key_alone),),
    ),
    UnitMutant(
        "a denied topic counted for each slot",
        (f"{_UNDELIVERABLE}::test_a_fault_of_a_topic_is_counted_over_all_slots",),
        ((UndeliverableRecords, "_count", _count_by_slot),),
    ),
    UnitMutant(
        "a denied topic forgotten with any commit",
        (f"{_UNDELIVERABLE}::test_only_what_the_topic_takes_starts_its_count_again",),
        ((UndeliverableRecords, "delivered", _forget_with_any_commit),),
    ),
    UnitMutant(
        "a record that is too large forgotten with a commit",
        (
            f"{_UNDELIVERABLE}::test_a_record_that_is_too_large_has_three_attempts_whatever_is_committed_between",
        ),
        ((UndeliverableRecords, "delivered", _forget_records_too),),
    ),
    UnitMutant(
        "transactions without the interval between them",
        (f"{_CYCLE}::TestDue::test_a_commit_is_followed_by_the_interval_unless_much_is_pending",),
        ((TransactionCycle, "commit", _commit_without_interval),),
    ),
    UnitMutant(
        "an unanswered commit retried without end",
        (
            f"{_CYCLE}::TestOutcomes::test_a_commit_without_an_answer_is_retried_for_a_minute",
            "tests/unit/producer/core/test_worker.py::TestTransaction::test_an_unanswered_commit_is_asked_for_again_until_patience_ends",
        ),
        ((TransactionCycle, "retry_commit", _retry_commit_without_end),),
    ),
    UnitMutant(
        "a tombstone whose offset is in no vector",
        (f"{_PUBLISHER}::{_TOMBSTONE}",),
        ((KafkaPublisher, "_produce", _without_vector),),
    ),
    UnitMutant(
        "a tombstone with the headers of a change",
        (f"{_PUBLISHER}::{_TOMBSTONE}",),
        ((KafkaPublisher, "_produce", _with_headers),),
    ),
    UnitMutant(
        "a commit that was refused taken for one without an answer",
        (
            "tests/unit/producer/kafka/test_publisher.py::test_a_commit_error_that_is_neither_fatal_nor_retriable_leaves_the_outcome_open",
        ),
        ((KafkaPublisher, "commit", _take_refusal_for_silence),),
    ),
    UnitMutant(
        "a key placed by the live number of topic partitions",
        (
            "tests/unit/producer/kafka/test_publisher.py::test_keys_stay_where_the_recorded_number_of_topic_partitions_puts_them",
        ),
        ((kafka_publisher, "topic_partition_of", _leave_the_place_to_the_client),),
    ),
    UnitMutant(
        "a hash over signed bytes",
        (
            "tests/unit/schemas/test_partitioner.py::test_framed_avro_keys_stand_where_javas_client_puts_them",
            "tests/unit/producer/kafka/test_partitioner.py::test_a_key_is_placed_as_the_contract_says",
        ),
        ((partitioner, "murmur2", _murmur2_of_signed_bytes),),
    ),
    UnitMutant(
        "a chain that ends before its changes pay for its snapshot",
        (
            f"{_HEARTBEAT}::test_over_a_chain_heartbeats_with_its_snapshot_cost_in_proportion_to_what_moved",
        ),
        ((HeartbeatWriter, "_is_chain_due", _begin_a_chain_after_any_change),),
    ),
)
