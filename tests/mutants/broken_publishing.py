"""Parts that are broken on purpose: each change reaches Kafka once (P1)."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.core import position, stream_opening, stream_partition
from tidegate.producer.core.events import CommitOutcomeUnknown, CommitUnanswered
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.position import Position
from tidegate.producer.core.slot import Slot
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import ChildPartitionsRecord, HeartbeatRecord, PartitionStartRecord
from tidegate.schemas.instants import NS_PER_US

_OPENING = "tests/unit/producer/core/test_stream_opening.py"
_WORKER = "tests/unit/producer/core/test_worker.py::TestOwnership"


def _lacks_in_spite_of_records(self: Any) -> bool:
    recovery = self._recovery
    return self.has_caught_up and recovery is not None and recovery.committed_offset is None


def _read_backwards(self: OperatorCommands, event: Any) -> None:
    pass


def _names_without_changes(item: Any) -> bool:
    """Take a change of the initial query for none."""
    return isinstance(item, ChildPartitionsRecord | PartitionStartRecord)


_TESTS = "tests/unit/producer/core/test_stream_partition.py"
_lies_past = stream_partition.lies_past


def _past_within_the_microsecond(item: Any, end_ns: int) -> bool:
    if isinstance(item, HeartbeatRecord):
        return item.timestamp_ns > end_ns
    return _lies_past(item, end_ns)


def _past_at_the_end_itself(item: Any, end_ns: int) -> bool:
    if isinstance(item, PublishableRecord):
        return item.commit_timestamp_us >= end_ns // NS_PER_US
    return _lies_past(item, end_ns)


def _move_as_progress(self: Any, event: Any) -> Position:
    at_us = event.commit_timestamp_ns // NS_PER_US
    return Position(at_us - 1, {**self.boundary, position.MOVE_OUTS: event.record_sequence})


_commit_publisher = KafkaPublisher.commit


def _take_refusal_for_silence(self: Any) -> Any:
    outcome = _commit_publisher(self)
    if isinstance(outcome, CommitOutcomeUnknown):
        return CommitUnanswered(outcome.reason)
    return outcome


BROKEN_PUBLISHING = (
    UnitMutant(
        "a commit that was refused taken for one without an answer",
        (
            "tests/unit/producer/kafka/test_publisher.py::TestOutcomes::test_a_commit_error_that_is_neither_fatal_nor_retriable_leaves_the_outcome_open",
        ),
        ((KafkaPublisher, "commit", _take_refusal_for_silence),),
    ),
    UnitMutant(
        "changes in the answer to the initial query left out",
        (f"{_OPENING}::test_what_no_stream_partition_would_return_again_is_an_error",),
        ((stream_opening, "names_partitions", _names_without_changes),),
    ),
    UnitMutant(
        "a stream opened in a slot that holds records",
        (f"{_WORKER}::test_nobody_opens_a_stream_in_a_slot_that_holds_records",),
        ((Slot, "lacks_stream_start", property(_lacks_in_spite_of_records)),),
    ),
    UnitMutant(
        "the root's slot read backwards",
        (
            "tests/unit/producer/core/test_operator_commands.py::TestReadAgain::test_reading_backwards_is_an_error",
            "tests/unit/producer/core/test_operator_commands.py::TestReadAgain::test_a_drain_for_a_predecessor_is_not_obeyed_by_its_successor",
        ),
        ((OperatorCommands, "advance", _read_backwards),),
    ),
    UnitMutant(
        "an end proved by a heartbeat of its own microsecond",
        (f"{_TESTS}::TestLife::test_an_end_between_two_microseconds_closes_none_of_its_instant",),
        ((stream_partition, "lies_past", _past_within_the_microsecond),),
    ),
    UnitMutant(
        "a move-out that counts as progress again and again",
        (
            "tests/unit/producer/core/test_stream_partition.py::TestPosition::test_a_move_out_that_is_read_again_changes_nothing",
            f"{_TESTS}::TestBackOff::test_a_query_that_fails_after_each_repeat_is_not_repeated_often",
        ),
        ((Position, "with_move", _move_as_progress),),
    ),
    UnitMutant(
        "an end that leaves out the commits of its instant",
        (f"{_TESTS}::TestLife::test_what_lies_past_a_bounded_end_proves_it",),
        ((stream_partition, "lies_past", _past_at_the_end_itself),),
    ),
)
