"""The publisher in memory: what it queues, reports and leaves behind."""

from __future__ import annotations

import pytest

from tests.unit.producer.memory.conftest import DATA, PROGRESS
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.memory.group import MemberMetadata
from tidegate.producer.memory.log import TOMBSTONE
from tidegate.producer.memory.message_limits import MemoryMessageLimits
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.messages import ChangeMessage, ParkedChange, PublishableRecord
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    TopicOffset,
)

ALONE = MemberMetadata("", "", -1).encode()
CHANGE = ChangeMessage(DATA, b"key", b"value", b"order", b"I", bytes(8))
RECORDS = do.PublishRecords(2, "token", (PublishableRecord(1, "t", "0", (CHANGE, CHANGE)),))
ANNOUNCED = do.PublishProgress(
    1, 2, ProgressRecord("e", "w", PartitionAnnounced(ChildPartition("c", (), 1), "p"))
)
SNAPSHOT = do.PublishProgress(2, None, ProgressRecord("e", "w", SlotProgress(2, 1, 0, -1, (), ())))


@pytest.fixture
def publisher(broker):
    made = MemoryPublisher(broker, transactional_id="w", progress_topic=PROGRESS)
    made.start()
    return made


def test_delivery_reports_carry_the_last_offsets_and_the_first_of_a_snapshot(publisher, broker):
    assert publisher.begin(ALONE) is None
    assert publisher.publish_records(RECORDS) is None
    assert publisher.publish_progress(ANNOUNCED) is None
    delivered = publisher.await_delivery()
    number = next(n for (topic, n), log in broker.logs.items() if topic == DATA and log.end)

    assert delivered.written == {2: (TopicOffset(PROGRESS, 1, 0), TopicOffset(DATA, number, 1))}
    publisher.publish_progress(SNAPSHOT)
    assert publisher.await_delivery().snapshots == {2: 0}


def test_a_topic_that_grows_moves_no_key(publisher, broker):
    def published():
        publisher.begin(ALONE)
        publisher.publish_records(RECORDS)
        (data,) = publisher.await_delivery().written[2]
        publisher.abort("enough")
        return data.topic_partition

    before = published()
    for count in range(3, 9):
        broker.add_topic_partitions(DATA, count)
        assert published() == before


def test_a_topic_that_is_gone_aborts_the_transaction(publisher, broker):
    publisher.begin(ALONE)
    publisher.publish_records(RECORDS)
    broker.delete_topic(DATA)

    outcome = publisher.await_delivery()
    assert isinstance(outcome, on.TransactionAborted)
    assert DATA in outcome.reason


def test_a_committed_transaction_is_read_and_sets_offsets(publisher, broker):
    publisher.begin(ALONE)
    publisher.publish_records(RECORDS)
    assert publisher.send_offsets(((2, 5),)) is None
    assert broker.offsets == {}

    assert publisher.commit() == on.TransactionCommitted()
    assert [entry.value for entry in broker.read(DATA)] == [CHANGE, CHANGE]
    assert broker.offsets == {2: 5}


def test_an_aborted_transaction_leaves_nothing(publisher, broker):
    publisher.begin(ALONE)
    publisher.publish_records(RECORDS)
    publisher.await_delivery()

    assert publisher.abort("because") == on.TransactionAborted("because")
    assert broker.read(DATA) == []


@pytest.mark.parametrize("step", ["await_delivery", "commit"])
def test_a_message_beyond_its_topics_limit_aborts_and_is_named(publisher, broker, step):
    broker.topic_bytes_max[DATA] = CHANGE.size_bytes - 1
    publisher.begin(ALONE)
    publisher.publish_records(RECORDS)
    outcome = getattr(publisher, step)()

    assert isinstance(outcome, on.TransactionAborted)
    assert outcome.failure == on.DeliveryFailure(
        on.DeliveryFault.TOO_LARGE, "MSG_SIZE_TOO_LARGE", 2, DATA, "key", CHANGE.size_bytes,
        commit_timestamp_us=1, limit_bytes=CHANGE.size_bytes - 1,
    )  # fmt: skip
    broker.topic_bytes_max[DATA] = CHANGE.size_bytes
    publisher.begin(ALONE)
    publisher.publish_records(RECORDS)
    assert publisher.commit() == on.TransactionCommitted()


def test_a_progress_record_has_a_size_too(publisher, broker):
    broker.message_bytes_max = 60
    publisher.begin(ALONE)
    publisher.publish_progress(SNAPSHOT)
    outcome = publisher.await_delivery()

    assert (outcome.failure.topic, outcome.failure.slot) == (PROGRESS, 2)
    assert outcome.failure.commit_timestamp_us is None


def test_limits_are_what_was_read_last(broker):
    limits = MemoryMessageLimits(broker, [DATA, PROGRESS])
    broker.message_bytes_max, broker.topic_bytes_max[DATA] = 100, 200
    assert limits.bytes_max(DATA) == limits.bytes_max(PROGRESS) == 1_048_588

    limits.refresh()
    assert (limits.bytes_max(DATA), limits.bytes_max(PROGRESS)) == (200, 100)


def test_without_a_membership_nothing_is_begun(publisher):
    assert isinstance(publisher.begin(None), on.TransactionAborted)
    assert not publisher.is_open


def test_a_group_that_moved_on_refuses_the_fence(publisher, broker):
    former = broker.group.join("w", "", frozenset())
    broker.group.complete()
    publisher.begin(MemberMetadata("w", former, broker.group.generation - 1).encode())

    assert isinstance(publisher.send_offsets(((0, 1),)), on.TransactionAborted)
    assert broker.offsets == {}


@pytest.mark.parametrize("first", ["await_delivery", "commit", "abort", "send_offsets"])
def test_a_producer_that_was_replaced_is_fenced_whatever_it_asks(publisher, broker, first):
    publisher.begin(ALONE)
    publisher.publish_records(RECORDS)
    publisher.await_delivery()
    publisher.publish_records(RECORDS)
    broker.init_producer("w")
    arguments = {"abort": ("because",), "send_offsets": (((0, 1),),)}.get(first, ())

    assert isinstance(getattr(publisher, first)(*arguments), on.ProducerFenced)


def test_a_transaction_of_a_closed_publisher_stays_open_until_its_successor(publisher, broker):
    publisher.begin(ALONE)
    publisher.publish_records(RECORDS)
    publisher.await_delivery()
    publisher.close()

    (log,) = (log for (topic, _), log in broker.logs.items() if topic == DATA and log.entries)
    assert log.stable_end == 0
    publisher.start()
    assert broker.read(DATA) == []
    assert log.stable_end > 0


def test_parked_changes_are_committed_and_in_no_vector(broker):
    broker.create_topic("dead", 1)
    publisher = MemoryPublisher(
        broker, transactional_id="w", progress_topic=PROGRESS, dead_letter="dead"
    )
    publisher.start()
    change = ParkedChange(DATA, b"key", b"order", b"U", b"{}", b"record", "r", "e", "token")
    record = PublishableRecord(1, "t", "0", (CHANGE,), (change,))
    for end in (publisher.abort, lambda _: publisher.commit()):
        publisher.begin(ALONE)
        publisher.publish_records(do.PublishRecords(2, "token", (record,)))
        delivered = publisher.await_delivery()
        assert [place.topic for place in delivered.written[2]] == [DATA]
        assert broker.read("dead") == []
        end("first")

    assert [entry.value for entry in broker.read("dead")] == [change]
    assert [entry.value for entry in broker.read(DATA)] == [CHANGE]


def test_a_tombstone_follows_each_delete_in_the_transaction_and_is_in_the_vector(broker):
    publisher = MemoryPublisher(
        broker, transactional_id="w", progress_topic=PROGRESS, tombstones=True
    )
    publisher.start()
    gone = CHANGE._replace(mod=b"D")
    record = PublishableRecord(1, "t", "0", (gone, CHANGE))
    publisher.begin(ALONE)
    publisher.publish_records(do.PublishRecords(2, "token", (record,)))
    delivered = publisher.await_delivery()
    assert [place.offset for place in delivered.written[2]] == [2]
    assert broker.read(DATA) == []
    publisher.commit()

    found = [(entry.key, entry.value) for entry in broker.read(DATA)]
    assert found == [(b"key", gone), (b"key", TOMBSTONE), (b"key", CHANGE)]


def test_a_parked_change_beyond_the_limit_is_named(broker):
    broker.create_topic("dead", 1)
    publisher = MemoryPublisher(
        broker, transactional_id="w", progress_topic=PROGRESS, dead_letter="dead"
    )
    publisher.start()
    change = ParkedChange(DATA, b"key", b"order", b"U", b"{}", b"record", "r", "e", "token")
    broker.topic_bytes_max["dead"] = change.size_bytes - 1
    publisher.begin(ALONE)
    record = PublishableRecord(1, "t", "0", (), (change,))
    publisher.publish_records(do.PublishRecords(2, "token", (record,)))

    outcome = publisher.await_delivery()
    assert (outcome.failure.topic, outcome.failure.slot) == ("dead", 2)
    assert outcome.failure.size_bytes == change.size_bytes
