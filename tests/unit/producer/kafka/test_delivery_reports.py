"""What is read from delivery reports, and what outlives a transaction."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from tidegate.producer.core import effects as do
from tidegate.producer.kafka.delivery_reports import DeliveryReports
from tidegate.producer.messages import ChangeMessage, ParkedChange, PublishableRecord
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    TopicOffset,
)

LOST = KafkaError(KafkaError._MSG_TIMED_OUT)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


class Report:
    """A report as the client gives it; None stands for what it could not tell."""

    def __init__(self, topic, topic_partition, offset, *, value=b"v"):
        self.topic = lambda: topic
        self.partition = lambda: topic_partition
        self.offset = lambda: offset
        self.key = lambda: b"k"
        self.value = lambda: value


def snapshot(*, chunk):
    body = SlotProgress(
        slot=3, revision=1, minute=1, includes=0, vector=(), tokens=(), chunk=chunk, chunks=2
    )
    return do.PublishProgress(3, None, ProgressRecord("e", "w", body))


def test_a_slot_has_its_last_offset_in_each_topic_partition():
    reports = DeliveryReports()
    of_one, of_other = reports.of_changes(1), reports.of_changes(2)
    for offset in (7, 9, 8):
        of_one(None, Report("a", 0, offset))
    of_one(None, Report("b", 1, 4))
    of_other(None, Report("a", 0, 10))

    assert reports.written == {
        1: (TopicOffset("a", 0, 9), TopicOffset("b", 1, 4)),
        2: (TopicOffset("a", 0, 10),),
    }
    assert not reports.failures


def test_two_batches_of_one_slot_count_together():
    reports = DeliveryReports()
    reports.of_changes(1)(None, Report("a", 0, 7))
    reports.of_changes(1)(None, Report("b", 0, 2))

    assert reports.written == {1: (TopicOffset("a", 0, 7), TopicOffset("b", 0, 2))}


def test_a_snapshot_is_where_its_chunk_0_is():
    reports = DeliveryReports()
    reports.of_progress(snapshot(chunk=0))(None, Report("progress", 3, 20))
    reports.of_progress(snapshot(chunk=1))(None, Report("progress", 3, 21))

    assert reports.snapshots == {3: 20}
    assert reports.written == {}


def test_progress_about_a_stream_partition_counts_for_the_slot_that_wrote_it():
    reports = DeliveryReports()
    body = PartitionAnnounced(ChildPartition("child", (), 1), "parent")
    reports.of_progress(do.PublishProgress(5, 1, ProgressRecord("e", "w", body)))(
        None, Report("progress", 5, 6)
    )

    assert reports.written == {1: (TopicOffset("progress", 5, 6),)}


@pytest.mark.parametrize(
    ("error", "report"),
    [
        (LOST, Report("a", 0, -1)),
        (None, Report("a", 0, None)),
        (None, Report("a", 0, -1001)),
        (None, Report("a", None, 3)),
        (None, Report(None, 0, 3)),
    ],
)
def test_a_message_without_an_offset_has_failed(error, report):
    reports = DeliveryReports()
    reports.of_changes(1)(error, report)

    assert len(reports.failures) == 1
    assert reports.written == {1: ()}


def test_a_refused_message_is_named_with_its_record():
    message = ChangeMessage("a", b"k", b"v" * 50, b"order", b"I", bytes(8))
    reports = DeliveryReports()
    reports.of_changes(1, (PublishableRecord(77, "tx", "0", (message,)),))(
        TOO_LARGE, Report("a", 0, None, value=message.value)
    )
    failure = reports.refusals.failure()

    assert failure is not None
    assert (failure.slot, failure.topic, failure.commit_timestamp_us) == (1, "a", 77)
    assert failure.size_bytes == message.size_bytes


def test_a_refused_snapshot_is_named_with_its_slot():
    reports = DeliveryReports()
    reports.of_progress(snapshot(chunk=1))(TOO_LARGE, Report("progress", 3, None))
    failure = reports.refusals.failure()

    assert failure is not None
    assert (failure.slot, failure.topic, failure.commit_timestamp_us) == (3, "progress", None)


def test_parked_changes_are_in_no_vector_and_named_when_refused():
    change = ParkedChange("a", b"k", b"order", b"I", b"v" * 50, b"record", "r", "e", "k")
    records = (PublishableRecord(77, "tx", "0", (), (change,)),)
    reports = DeliveryReports()
    reports.of_changes(1, records)
    reports.of_parked(1, records)(None, Report("dead", 0, 5))
    assert reports.written == {1: ()}

    reports.of_parked(1, records)(TOO_LARGE, Report("dead", 0, None, value=change.content))
    failure = reports.refusals.failure()
    assert failure is not None
    assert (failure.slot, failure.topic, failure.commit_timestamp_us) == (1, "dead", 77)
    assert failure.size_bytes == change.size_bytes
