"""Parts that are broken on purpose: positions, a stream's bounded end, who waits for what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.core import position, stream_partition
from tidegate.producer.core.fleet_alignment import FleetAlignment
from tidegate.producer.core.heartbeat import HeartbeatWriter
from tidegate.producer.core.position import Position
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import HeartbeatRecord, PartitionEndRecord, PartitionStartRecord
from tidegate.schemas import order_key
from tidegate.schemas.instants import NS_PER_US

__all__ = ["BROKEN_POSITIONS"]

_TESTS = "tests/unit/producer/core/test_stream_partition.py"
_POSITIONS = "tests/unit/producer/core/test_position.py"
_MOVES = "tests/unit/producer/core/test_key_moves.py"

_sequence_pair = order_key.sequence_pair


def _low_before_high(record_sequence: str) -> tuple[int, int]:
    high, low = _sequence_pair(record_sequence)
    return (low, high) if "-" in record_sequence else (high, low)


_draft = HeartbeatWriter.draft


def _without_slots(self: Any, tokens: Any, publications: Any, before: Any, after: Any) -> Any:
    """Draft heartbeats whose vector names data topics alone, and not the slots of children."""
    vector = {place: n for place, n in after.vector.items() if not place[0].endswith("-progress")}
    return _draft(self, tokens, publications, before, replace(after, vector=vector))


_lies_past = stream_partition.lies_past


def _past_within_the_microsecond(item: Any, end_ns: int) -> bool:
    if isinstance(item, HeartbeatRecord):
        return item.timestamp_ns > end_ns
    return _lies_past(item, end_ns)


def _past_at_the_end_itself(item: Any, end_ns: int) -> bool:
    if isinstance(item, PublishableRecord):
        return item.commit_timestamp_us >= end_ns // NS_PER_US
    return _lies_past(item, end_ns)


def _repeats_without_end(self: Any, record: PublishableRecord, query: Any) -> bool:
    return bool(query.resumed_at.covers(record))


def _move_as_progress(self: Any, event: Any) -> Position:
    at_us = event.commit_timestamp_ns // NS_PER_US
    return Position(at_us - 1, {**self.boundary, position.MOVE_OUTS: event.record_sequence})


def _wait_in_silence(self: Any) -> None:
    """Report nothing."""


_elsewhere_us = FleetAlignment._elsewhere_us


def _count_what_may_be_held(self: Any, current_at_us: int, now_us: int) -> int | None:
    self._has_stopped = False
    return _elsewhere_us(self, current_at_us, now_us)


_waits = stream_partition.waits_for_move_ins


def _end_is_read_at_once(item: Any, at_us: int) -> bool:
    return not isinstance(item, PartitionEndRecord) and _waits(item, at_us)


def _never_covered(_self: Position, _start: PartitionStartRecord) -> bool:
    return False


BROKEN_POSITIONS = (
    UnitMutant(
        "a move-out that counts as progress again and again",
        (
            f"{_POSITIONS}::TestPosition::test_a_move_out_that_is_read_again_changes_nothing",
            f"{_TESTS}::TestBackOff::test_a_query_that_fails_after_each_repeat_is_not_repeated_often",
        ),
        ((Position, "with_move", _move_as_progress),),
    ),
    UnitMutant(
        "a reader that waits for a schema in silence",
        (
            "tests/unit/producer/driver/test_reader.py::test_a_reader_says_when_a_record_waits_for_its_tables_schema",
        ),
        ((PartitionReader, "_pause", _wait_in_silence),),
    ),
    UnitMutant(
        "a drift compared with what waits for a stopped stream partition",
        (
            "tests/unit/producer/core/test_fleet_alignment.py::test_others_count_for_nothing_while_one_may_wait_for_what_is_stopped",
        ),
        ((FleetAlignment, "_elsewhere_us", _count_what_may_be_held),),
    ),
    UnitMutant(
        "an end that does not wait for keys that moved in",
        (f"{_MOVES}::TestWaiting::test_what_follows_is_held_and_the_query_given_back",),
        ((stream_partition, "waits_for_move_ins", _end_is_read_at_once),),
    ),
    UnitMutant(
        "a vector that forgets the other slots",
        (
            "tests/unit/producer/core/test_worker.py::TestLineage::test_the_finishing_snapshots_vector_holds_the_announcement",
        ),
        ((HeartbeatWriter, "draft", _without_slots),),
    ),
    UnitMutant(
        "a start that is announced again with each query",
        (f"{_MOVES}::TestStarts::test_they_are_announced_once_with_the_position_behind_them",),
        ((Position, "covers_start", _never_covered),),
    ),
    UnitMutant(
        "record sequences compared as text",
        (f"{_POSITIONS}::TestPosition::test_sequences_of_any_width_are_compared_as_numbers",),
        ((position, "sequence_pair", str),),
    ),
    UnitMutant(
        "the halves of a record sequence exchanged",
        (
            "tests/unit/schemas/test_order_key.py::test_record_sequences_of_one_notation_sort_as_their_numbers",
        ),
        ((order_key, "sequence_pair", _low_before_high),),
    ),
    UnitMutant(
        "an end proved by a heartbeat of its own microsecond",
        (f"{_TESTS}::TestLife::test_an_end_between_two_microseconds_closes_none_of_its_instant",),
        ((stream_partition, "lies_past", _past_within_the_microsecond),),
    ),
    UnitMutant(
        "an end that leaves out the commits of its instant",
        (f"{_TESTS}::TestLife::test_what_lies_past_a_bounded_end_proves_it",),
        ((stream_partition, "lies_past", _past_at_the_end_itself),),
    ),
    UnitMutant(
        "a resumed query whose repetition never ends",
        (
            f"{_TESTS}::TestPublishing::test_a_source_that_breaks_its_order_after_a_resume_is_refused",
        ),
        ((StreamPartition, "_is_repeated", _repeats_without_end),),
    ),
)
