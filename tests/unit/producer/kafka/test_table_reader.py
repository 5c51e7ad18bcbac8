"""The root's slot is read for later tables only, and its end is reported once."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from tests.unit.producer.kafka.test_stream_start import END, Consumer, failed
from tidegate.producer.core.events import AccessDenied, TablesRead
from tidegate.producer.kafka import slot_consumer
from tidegate.producer.kafka.table_reader import TableReader
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    ProgressRecord,
    TableAdded,
)
from tidegate.schemas.progress_codec import encode_key, encode_record
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.wire_format import frame

TABLE = ProgressRecord("e", "w", TableAdded(DataTopic("t", "id", 3, 7)))
OTHER = ProgressRecord("e", "w", PartitionAnnounced(ChildPartition("a", (), 1), ""))


def message(record, *, value=None):
    key = frame(1, encode_key(record.body))
    framed = value or frame(2, encode_record(record))
    return SimpleNamespace(error=lambda: None, key=lambda: key, value=lambda: framed)


@pytest.fixture
def reader(monkeypatch):
    monkeypatch.setattr(slot_consumer, "Consumer", Consumer)
    return TableReader(
        bootstrap_servers="x", group="g", topic="g-progress",
        decoder=ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[2]),
    )  # fmt: skip


@pytest.fixture
def batches(reader):
    return reader._consumer.batches


def test_it_reads_the_roots_slot(reader):
    assert reader._consumer.assigned == [("g-progress", 0, 0)]
    reader.close()
    assert reader._consumer.is_closed


def test_nothing_but_later_tables_is_decoded(reader, batches):
    undecodable = message(OTHER, value=b"\0\0\0\0\1garbage")
    removed = SimpleNamespace(
        error=lambda: None, key=lambda: frame(1, encode_key(OTHER.body)), value=lambda: None
    )
    bare = SimpleNamespace(error=lambda: None, key=lambda: None, value=lambda: b"x")
    batches += [[undecodable, removed, bare], [message(OTHER), message(TABLE)]]

    assert reader.poll() is None
    assert reader.poll() == TablesRead((TABLE,), is_at_end=False)
    assert reader.poll() is None


def test_the_first_end_is_reported_and_holds(reader, batches):
    batches += [[failed(END)], [failed(END)], [message(TABLE)]]

    assert reader.poll() == TablesRead((), is_at_end=True)
    assert reader.poll() is None
    assert reader.poll() == TablesRead((TABLE,), is_at_end=True)


def test_errors_that_pass_are_passed_over(reader, batches):
    batches.append([failed(KafkaError(KafkaError._TRANSPORT)), message(TABLE)])

    assert reader.poll() == TablesRead((TABLE,), is_at_end=False)


def test_a_missing_right_is_reported(reader, batches):
    batches.append([failed(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized"))])

    assert reader.poll() == AccessDenied("topic g-progress", "not authorized")
