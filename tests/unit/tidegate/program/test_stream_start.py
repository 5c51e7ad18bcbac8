"""What a stream was begun with, read from a broker that librdkafka runs in this process."""

from __future__ import annotations

from typing import ClassVar

import pytest
from confluent_kafka import KafkaError, Producer
from pydantic_settings import SettingsConfigDict

from tidegate.program import stream_start
from tidegate.program.settings_stream import StreamSettings
from tidegate.program.stream_start import recorded_filters, recorded_start, require_topic_names
from tidegate.schemas.errors import ConfigError, SchemaError, UnreachableError
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    StreamStarted,
)
from tidegate.schemas.progress_chunks import split
from tidegate.schemas.progress_codec import RECORD_SCHEMAS, encode_record
from tidegate.schemas.wire_format import frame

VERSION = 2
FILTERS = ("exclude_insert=true", "producer.topic_template={prefix}-{table}")
CHILDREN = tuple(ChildPartition(f"t{number}", ("",), 0) for number in range(3))


class Settings(StreamSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_SETTINGS_")
    help_command: ClassVar[str] = "settings --help"
    owned_kafka_options: ClassVar[frozenset[str]] = frozenset()


def started(children=()):
    return StreamStarted("s", "GOOGLE_STANDARD_SQL", 0, None, "g", 1, "id", (), children, FILTERS)


class Broker:
    """A broker with one progress topic."""

    def __init__(self):
        options = {"bootstrap.servers": "-", "test.mock.num.brokers": 1, "log_level": 0}
        self.client = Producer(options)
        (broker,) = self.client.list_topics("bank-progress", timeout=30).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def write(self, *bodies):
        for body in bodies:
            record = encode_record(ProgressRecord("e", "w", body, VERSION))
            self.put(frame(VERSION, record))

    def put(self, value):
        self.client.produce("bank-progress", key=b"k", value=value, partition=0)
        assert self.client.flush(30) == 0

    def filters(self):
        return recorded_filters(
            "bank-progress",
            bootstrap_servers=self.address,
            options={},
            schema_of=RECORD_SCHEMAS.__getitem__,
        )

    def start(self):
        return recorded_start(
            "bank-progress",
            bootstrap_servers=self.address,
            options={},
            schema_of=RECORD_SCHEMAS.__getitem__,
        )

    def settings(self, **changes):
        return Settings.load(
            None, bootstrap_servers=self.address, registry_url="http://r", prefix="bank", **changes
        )


@pytest.fixture
def broker(monkeypatch):
    monkeypatch.setattr(stream_start, "_POLL_S", 0.05)
    broker = Broker()
    yield broker
    broker.client.flush(0)
    del broker.client


def test_a_topic_without_a_stream_has_no_filters(broker):
    assert broker.filters() is broker.start() is None
    broker.put(None)  # removes an earlier record, for compaction
    broker.write(PartitionAnnounced(ChildPartition("t", ("",), 0), ""))
    assert broker.filters() is None
    require_topic_names(broker.settings(), RECORD_SCHEMAS.__getitem__)


def test_the_filters_are_those_of_the_first_chunk(broker):
    chunks = split(started(CHILDREN), items_max=1)
    assert len(chunks) == len(CHILDREN)
    broker.write(*chunks)
    assert broker.filters() == FILTERS
    assert broker.start() == chunks[0]


def test_other_names_than_those_of_the_stream_are_refused(broker):
    broker.write(started())
    require_topic_names(
        broker.settings(topic_template="{prefix}-{table}"), RECORD_SCHEMAS.__getitem__
    )
    with pytest.raises(ConfigError, match="topic_template: the stream was begun with") as caught:
        require_topic_names(broker.settings(), RECORD_SCHEMAS.__getitem__)
    assert caught.value.exit_code == 2


def test_a_record_that_is_not_one_of_a_stream_is_an_error(broker):
    broker.put(b"of another program")
    with pytest.raises(SchemaError):
        broker.filters()


class Client:
    """Answers with errors, the last one again and again."""

    def __init__(self, *codes):
        self._codes = list(codes)
        self.is_closed = False

    def consume(self, *_):
        return [self]

    def error(self):
        return KafkaError(self._codes.pop(0) if self._codes[1:] else self._codes[0])

    def value(self):
        return b"text of the error"

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConfigError),
        (KafkaError._TRANSPORT, UnreachableError),
    ],
)
def test_a_topic_that_cannot_be_read_is_named(monkeypatch, code, kind):
    client = Client(code)
    monkeypatch.setattr(stream_start, "consume_from_beginning", lambda *_, **__: client)
    monkeypatch.setattr(stream_start, "_PATIENCE_S", 0.1)
    with pytest.raises(kind, match="bank-progress"):
        recorded_filters("bank-progress", bootstrap_servers="b", options={}, schema_of=dict)
    assert client.is_closed


def test_no_right_to_a_group_is_needed(monkeypatch):
    """The client asks for the coordinator of the group that it is named after."""
    client = Client(KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._PARTITION_EOF)
    monkeypatch.setattr(stream_start, "consume_from_beginning", lambda *_, **__: client)
    found = recorded_filters("bank-progress", bootstrap_servers="b", options={}, schema_of=dict)
    assert found is None
    assert client.is_closed
