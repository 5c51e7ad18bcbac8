"""The root's slot is read once: over chunks and errors to the record, then for later tables."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from tidegate.producer.core.events import (
    AccessDenied,
    ProgressReadLost,
    ReadInterrupted,
    RootSlotRead,
)
from tidegate.producer.errors import ProgressLost
from tidegate.producer.kafka.root_slot import RootSlotReader
from tidegate.program import from_beginning
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import (
    ChildPartition,
    ControlState,
    DataTopic,
    PartitionAnnounced,
    ProgressRecord,
    SlotPaused,
    StreamControl,
    StreamStarted,
    TableAdded,
    WorkerDrain,
)
from tidegate.schemas.progress_chunks import split
from tidegate.schemas.progress_codec import RECORD_SCHEMA, encode_key, encode_record
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.wire_format import frame

STARTED = StreamStarted(
    stream="s",
    dialect="GOOGLE_STANDARD_SQL",
    start_ns=1_000,
    end_ns=None,
    group="g",
    slots=4,
    progress_topic_id="id",
    topics=(DataTopic("t", "id", 3, 1),),
    children=(ChildPartition("a", (), 1_000), ChildPartition("b", (), 1_000)),
)
ANNOUNCED = PartitionAnnounced(ChildPartition("a", (), 1), "")
ADDED = TableAdded(DataTopic("t", "id", 3, 7))
FOUND = ProgressRecord("e", "w", STARTED)
TABLE = ProgressRecord("e", "w", ADDED)
END = KafkaError(KafkaError._PARTITION_EOF)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized")
LOST = KafkaError(KafkaError._TRANSPORT, "broker down")
INTERRUPTED = ReadInterrupted("slot 0 of topic g-progress", "broker down")


class Consumer:
    """Returns what a test gave it, batch by batch."""

    def __init__(self, config):
        self.config = config
        self.batches = []
        self.is_closed = False
        self._offset = 0

    def get_watermark_offsets(self, _place, timeout):
        return 3, 9

    def assign(self, places):
        self.assigned = [(place.topic, place.partition, place.offset) for place in places]

    def consume(self, _count, _timeout_s):
        """Return a batch; messages without an offset get the next one."""
        batch = self.batches.pop(0) if self.batches else []
        return [self._placed(one) for one in batch]

    def _placed(self, one):
        if one.error() is not None or getattr(one, "offset", None) is not None:
            return one
        self._offset += 1
        return SimpleNamespace(**{**vars(one), "offset": lambda at=self._offset - 1: at})

    def close(self):
        self.is_closed = True


def message(body, *, offset=None, value=None):
    """Return a record as a message."""
    key = frame(1, encode_key(body))
    framed = value or frame(2, encode_record(ProgressRecord("e", "w", body)))
    return SimpleNamespace(
        error=lambda: None,
        key=lambda: key,
        value=lambda: framed,
        offset=None if offset is None else lambda: offset,
    )


def failed(error):
    """Return an event instead of a message."""
    return SimpleNamespace(error=lambda: error)


@pytest.fixture
def made():
    """The consumers that a test's reader has made."""
    return []


@pytest.fixture
def batches():
    """What the consumer returns, poll by poll."""
    return []


@pytest.fixture
def reader(monkeypatch, made, batches):
    def make(config):
        made.append(Consumer(config))
        made[-1].batches = batches
        return made[-1]

    monkeypatch.setattr(from_beginning, "Consumer", make)
    return RootSlotReader(
        bootstrap_servers="x", group="g", topic="g-progress",
        decoder=ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[2]),
    )  # fmt: skip


def test_one_client_serves_the_search_and_the_tables(reader, made, batches):
    batches += [[message(STARTED)], [message(ADDED)]]
    assert made == []
    assert reader.poll() == (FOUND, False)
    assert reader.poll_records() == RootSlotRead((TABLE,), is_at_end=False, begin=0, end=2)

    (consumer,) = made
    assert consumer.assigned == [("g-progress", 0, 3)]
    assert consumer.config["group.id"] == "g-root"
    reader.close()
    reader.close()
    assert consumer.is_closed


def test_what_the_search_reads_beside_the_record_is_not_lost(reader, batches):
    batches.append([message(ADDED), message(STARTED), message(ADDED), failed(END)])

    assert reader.poll() == (FOUND, True)
    assert reader.poll_records() == RootSlotRead((TABLE, TABLE), is_at_end=True, begin=0, end=3)
    assert reader.poll_records() is None


class TestSearch:
    """For the record that opened the epoch."""

    def test_a_missing_acl_ends_it(self, reader, batches):
        batches.append([failed(DENIED)])
        with pytest.raises(ConfigError, match="cannot read the progress topic: Kafka denies"):
            reader.poll()

    def test_it_finds_the_record_among_others(self, reader, batches):
        removed = SimpleNamespace(
            error=lambda: None, key=lambda: frame(1, encode_key(ANNOUNCED)), value=lambda: None
        )
        batches.append([message(ANNOUNCED), removed, message(STARTED)])

        assert reader.poll() == (FOUND, False)

    def test_chunks_may_come_in_several_polls(self, reader, batches):
        first, second = split(STARTED, items_max=1)
        batches += [[message(first)], [message(second, offset=1)]]

        assert reader.poll() == (None, False)
        assert reader.poll() == (FOUND, False)

    @pytest.mark.parametrize(("error", "at_end"), [(END, True), (LOST, False)])
    def test_only_the_end_of_the_slot_is_its_end(self, reader, batches, error, at_end):
        batches.append([failed(error)])

        assert reader.poll() == (None, at_end)


OUT_OF_RANGE = KafkaError(KafkaError._AUTO_OFFSET_RESET, "offset 7 is gone")
TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION, "offset 7 is gone")


class TestLoss:
    """A slot that is truncated while it is read ends the reading; it never begins again."""

    @pytest.mark.parametrize("error", [OUT_OF_RANGE, TRUNCATED])
    def test_an_offset_that_is_gone_is_reported_once(self, reader, batches, error):
        batches += [[message(ADDED)], [failed(error)], [message(ADDED, offset=0)]]
        reader.poll_records()
        found = reader.poll_records()

        assert isinstance(found, ProgressReadLost)
        assert isinstance(found.error, ProgressLost)
        assert found.error.fields == {"slot": 0, "position": 1, "reason": "offset 7 is gone"}
        assert reader.poll_records() is None
        assert batches, "nothing is read any more"

    def test_a_step_backwards_is_believed_by_nobody(self, reader, batches):
        drain = WorkerDrain("w", "me", 7)
        batches += [[message(ADDED), message(drain), failed(END)], [message(drain, offset=1)]]
        reader.poll_records()
        found = reader.poll_records()

        assert isinstance(found, ProgressReadLost)
        assert (found.error.fields["was"], found.error.fields["now"]) == (2, 1)

    def test_the_search_ends_with_the_error(self, reader, batches):
        batches.append([failed(OUT_OF_RANGE)])

        with pytest.raises(ProgressLost, match="is not in its log"):
            reader.poll()

    def test_what_was_read_says_between_which_offsets(self, reader, batches):
        batches += [[message(ANNOUNCED)] * 3 + [failed(END)], [message(ADDED)]]

        assert reader.poll_records() == RootSlotRead((), is_at_end=True, begin=0, end=3)
        assert reader.poll_records() == RootSlotRead((TABLE,), is_at_end=True, begin=3, end=4)


class TestCommands:
    """What operators want, and how soon it is known."""

    def test_it_is_read_as_the_tables_are(self, reader, batches):
        bodies = (StreamControl(1, ControlState.PAUSED, "me", 7), WorkerDrain("w", "me", 7))
        batches.append([message(ADDED), *map(message, bodies), message(SlotPaused(0, 1))])
        read = reader.poll_records()

        assert [record.body for record in read.records] == [ADDED, *bodies]

    def test_full_batches_are_read_on_until_the_end(self, reader, batches):
        """No query starts before: a day of the slot has to be passed over."""
        full = [message(ANNOUNCED)] * 500
        batches += [full] * 30 + [[message(ADDED), failed(END)], full, full]

        assert reader.poll_records() is None
        assert len(batches) == 13
        read = reader.poll_records()
        assert (read.records, read.is_at_end) == ((TABLE,), True)
        assert (read.begin, read.end) == (0, 15_001)
        assert len(batches) == 2
        assert reader.poll_records() is None
        assert len(batches) == 1


class TestTables:
    """Records of later tables."""

    def test_nothing_else_is_decoded(self, reader, batches):
        undecodable = message(ANNOUNCED, value=b"\0\0\0\0\1garbage")
        removed = SimpleNamespace(
            error=lambda: None, key=lambda: frame(1, encode_key(ANNOUNCED)), value=lambda: None
        )
        bare = SimpleNamespace(error=lambda: None, key=lambda: None, value=lambda: b"x")
        batches += [[undecodable, removed, bare], [message(ANNOUNCED), message(ADDED)]]

        assert reader.poll_records() is None
        read = reader.poll_records()
        assert (read.records, read.is_at_end) == ((TABLE,), False)
        assert reader.poll_records() is None

    def test_the_first_end_is_reported_and_holds(self, reader, batches):
        batches += [[failed(END)], [failed(END)], [message(ADDED)]]

        assert reader.poll_records() == RootSlotRead((), is_at_end=True)
        assert reader.poll_records() is None
        assert reader.poll_records() == RootSlotRead((TABLE,), is_at_end=True, begin=0, end=1)

    def test_errors_that_pass_are_reported_after_what_was_read_beside_them(self, reader, batches):
        batches.append([failed(LOST), message(ADDED)])

        assert reader.poll_records() == RootSlotRead((TABLE,), is_at_end=False, begin=0, end=1)
        assert reader.poll_records() == INTERRUPTED
        assert reader.poll_records() is None

    def test_an_error_that_lasts_before_the_first_end_is_not_swallowed(self, reader, batches):
        """Without the end no query starts: nothing else would say why the worker is idle."""
        batches += [[failed(LOST)], [failed(LOST)]]

        assert [reader.poll_records() for _ in range(2)] == [INTERRUPTED] * 2

    def test_an_error_of_the_search_for_the_start_is_not_swallowed(self, reader, batches):
        batches.append([failed(LOST)])

        assert reader.poll() == (None, False)
        assert reader.poll_records() == INTERRUPTED

    def test_a_missing_right_is_reported(self, reader, batches):
        batches.append([failed(DENIED)])

        assert reader.poll_records() == AccessDenied("topic g-progress", "not authorized")

    def test_a_decoder_that_knows_the_workers_own_schema_asks_nobody(self, reader, batches):
        def schema_of(_number):
            raise AssertionError("the registry was asked")

        batches.append([message(ADDED)])
        reader.decode_with(ProgressDecoder(schema_of, own_ids=[2]))
        assert reader.poll_records() == RootSlotRead((TABLE,), is_at_end=False, begin=0, end=1)


def test_records_wait_for_a_schema_that_is_not_known_yet(reader, batches):
    known = set()
    reader.decode_with(
        ProgressDecoder(lambda _id: RECORD_SCHEMA, own_ids=[2], has_answer=known.__contains__)
    )
    started = message(STARTED, value=frame(9, encode_record(FOUND)))
    added = message(ADDED, value=frame(10, encode_record(TABLE)))
    batches += [[message(ADDED), started, message(ADDED)], [added, failed(END)]]

    assert reader.poll() == (None, False)
    assert reader.poll() == (None, False)
    known.add(9)
    assert reader.poll() == (FOUND, False)
    assert reader.poll_records() == RootSlotRead((TABLE, TABLE), is_at_end=False, begin=0, end=3)
    assert reader.poll_records() is None
    known.add(10)
    assert reader.poll_records() == RootSlotRead((TABLE,), is_at_end=True, begin=3, end=4)
