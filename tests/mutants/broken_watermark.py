"""Parts that are broken on purpose: how far the log is complete (P4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.backfill import chunk_query, on_demand, stream
from tidegate.producer.core.progress_writer import HeartbeatWriter
from tidegate.producer.kafka.publisher import KafkaPublisher

_STREAM = "tests/unit/producer/backfill/test_stream.py"


def _same_time(read_ns: int) -> int:
    return read_ns


def _announce_in_the_end(self: Any, records: Any) -> Any:
    return [*records, *(request.start for request in self._requests())]


def _give_up(_self: Any, error: Any) -> Any:
    raise error


_ON_DEMAND = "tests/unit/producer/backfill/test_on_demand.py"
_draft = HeartbeatWriter.draft


def _without_slots(self: Any, tokens: Any, publications: Any, before: Any, after: Any) -> Any:
    """Draft heartbeats whose vector names data topics alone, and not the slots of children."""
    vector = {place: n for place, n in after.vector.items() if not place[0].endswith("-progress")}
    return _draft(self, tokens, publications, before, replace(after, vector=vector))


_produce = KafkaPublisher._produce


def _without_vector(self: Any, topic: str, **options: Any) -> Any:
    """Publish what has no value without its place in the vector."""
    if options["value"] is None and topic != self._progress_topic:
        options["on_delivery"] = self._reports.of_parked(options["slot"], options["records"])
    return _produce(self, topic, **options)


BROKEN_WATERMARK = (
    UnitMutant(
        "a tombstone whose offset is in no vector",
        (
            "tests/unit/producer/kafka/test_publisher.py::TestParkedAndTombstones::test_a_tombstone_without_headers_follows_each_delete_and_moves_the_vector",
        ),
        ((KafkaPublisher, "_produce", _without_vector),),
    ),
    UnitMutant(
        "a vector that forgets the other slots",
        (
            "tests/unit/producer/core/test_worker.py::TestLineage::test_the_finishing_snapshots_vector_holds_the_announcement",
        ),
        ((HeartbeatWriter, "draft", _without_slots),),
    ),
    UnitMutant(
        "a refused chunk that holds the watermark",
        (f"{_ON_DEMAND}::test_a_chunk_that_is_refused_is_read_later_at_another_time",),
        ((chunk_query.RunChunkQuery, "_after_refusal", _give_up),),
    ),
    UnitMutant(
        "a run that is announced behind what is later",
        (f"{_ON_DEMAND}::test_a_run_is_announced_before_the_first_record_of_a_later_time",),
        ((on_demand._Announcing, "_insert", _announce_in_the_end),),
    ),
    UnitMutant(
        "changes of the read's own time come again",
        (f"{_STREAM}::test_the_change_stream_begins_when_all_rows_are_read",),
        ((stream, "next_us_ns", _same_time),),
    ),
)
