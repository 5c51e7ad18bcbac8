"""The dead-letter topic is read to its end, over open transactions, and only dead letters pass."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
)

from tidegate.producer.kafka import dead_letters
from tidegate.producer.kafka.dead_letters import KafkaDeadLetters, parked_change
from tidegate.producer.messages import FORM_EVENT, FORM_REDRIVEN, ParkedChange
from tidegate.program import from_beginning
from tidegate.schemas.errors import ConfigError, SchemaError, UnreachableError

CHANGE = ParkedChange("p.t", b"k", b"order", b"U", b"{}", b"record", "SchemaError", "text", "s")
FOLLOWER = CHANGE._replace(form=b"message", reason="KeyParked", error="")
END = KafkaError(KafkaError._PARTITION_EOF)
LOST = KafkaError(KafkaError._TRANSPORT)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
NO_GROUP = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)


class Message:
    def __init__(self, change=CHANGE, *, headers=None, error=None, number=0, offset=0, at_ms=None):
        at = (TIMESTAMP_NOT_AVAILABLE, -1) if at_ms is None else (TIMESTAMP_CREATE_TIME, at_ms)
        self.timestamp = lambda: at
        self.headers = lambda: change.headers if headers is None else headers
        self.key, self.value = (lambda: change.key), (lambda: change.value)
        self.topic, self.partition = (lambda: "p-dead-letter"), (lambda: number)
        self.error, self.offset = (lambda: error), (lambda: offset)


def at_end(offset, number=0):
    return Message(error=END, number=number, offset=offset)


class Client:
    """Delivers one list for each call, then nothing; stands for admin client and consumer."""

    def __init__(self, ends, *batches):
        self.ends, self.batches = ends, list(batches)
        self.assigned = None
        self.is_closed = False

    def list_offsets(self, places, **_):
        return {
            place: SimpleNamespace(
                result=lambda place=place: SimpleNamespace(offset=self.ends[place.partition])
            )
            for place in places
        }

    def get_watermark_offsets(self, _place, timeout):
        return 3, 9

    def assign(self, places):
        self.assigned = [(place.partition, place.offset) for place in places]

    def consume(self, _count, _timeout):
        return self.batches.pop(0) if self.batches else []

    def close(self):
        self.is_closed = True


@pytest.fixture
def letters_on(monkeypatch):
    def make(client, *, patience_s=60.0):
        admin = SimpleNamespace(call=lambda ask, *_, **__: ask(client))
        monkeypatch.setattr(dead_letters, "RetryingAdmin", lambda _config: admin)
        monkeypatch.setattr(from_beginning, "Consumer", lambda _config: client)
        return KafkaDeadLetters(
            bootstrap_servers="x",
            group="g",
            topic="p-dead-letter",
            topic_partitions=len(client.ends),
            patience_s=patience_s,
        )

    return make


def test_every_record_is_read_and_then_the_reader_is_closed(letters_on):
    client = Client([4], [Message(CHANGE)], [], [Message(FOLLOWER, offset=1, at_ms=5), at_end(4)])

    found = list(letters_on(client).read())
    assert found == [(0, 0, CHANGE, None), None, (0, 1, FOLLOWER, 5_000)]
    assert client.assigned == [(0, 3)]
    assert client.is_closed


def test_an_open_transaction_below_the_end_is_waited_for(letters_on):
    client = Client([4], [Message(CHANGE), at_end(1)], [], [Message(FOLLOWER), at_end(4)])

    found = [one.change for one in letters_on(client).read() if one is not None]
    assert found == [CHANGE, FOLLOWER]


def test_every_topic_partition_is_read_to_its_own_end(letters_on):
    batches = [at_end(9, number=2)], [Message(number=0), at_end(2, number=0)]
    client = Client([2, 0, 9], *batches)

    assert [one.change for one in letters_on(client).read()] == [CHANGE]
    assert [number for number, _ in client.assigned] == [0, 2]


def test_an_empty_topic_is_not_waited_for(letters_on):
    assert list(letters_on(Client([0])).read()) == []


def test_an_outage_is_waited_out_and_a_missing_right_is_not(letters_on):
    client = Client([1], [Message(error=LOST)], [Message(), at_end(1)])
    assert [one.change for one in letters_on(client).read()] == [CHANGE]

    client = Client([1], [Message(error=DENIED)])
    with pytest.raises(ConfigError, match="dead-letter"):
        list(letters_on(client).read())
    assert client.is_closed


def test_no_right_to_a_group_is_needed(letters_on):
    """The client asks for the coordinator of the group that it is named after."""
    client = Client([1], [Message(error=NO_GROUP)], [Message(), at_end(1)])

    assert [one.change for one in letters_on(client).read()] == [CHANGE]


def test_reading_that_stands_still_is_given_up(letters_on, monkeypatch):
    monkeypatch.setattr(dead_letters.time, "monotonic", itertools.count().__next__)
    letters = letters_on(Client([4], [Message(CHANGE), at_end(1)]), patience_s=5)

    with pytest.raises(UnreachableError, match="cannot be read to its end"):
        list(letters.read())


def test_a_record_becomes_what_was_parked():
    marker = CHANGE._replace(form=FORM_REDRIVEN, content=b"", reason="", error="", token="")

    event = CHANGE._replace(form=FORM_EVENT, topic="", order_key=b"", mod=b"")

    for change in (CHANGE, FOLLOWER, marker, event):
        assert parked_change(Message(change)) == change
    no_text = [(name, content or None) for name, content in FOLLOWER.headers]
    assert parked_change(Message(FOLLOWER, headers=no_text)) == FOLLOWER


@pytest.mark.parametrize(
    "headers",
    [
        [],
        CHANGE.headers[:-1],
        [*CHANGE.headers, ("more", b"1")],
        list(reversed(CHANGE.headers)),
        CHANGE._replace(form=b"other").headers,
    ],
)
def test_a_record_of_another_program_is_refused(headers):
    with pytest.raises(SchemaError, match="dead-letter topic"):
        parked_change(Message(headers=headers))
