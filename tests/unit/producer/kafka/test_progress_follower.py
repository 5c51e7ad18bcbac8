"""The follower reads every slot, and ends with what contradicts the protocol."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from tests.unit.producer.kafka.test_root_slot import END, Consumer
from tests.unit.producer.kafka.test_slot_ends import Admins
from tidegate.producer.core.events import (
    AccessDenied,
    FleetRead,
    ProgressReadLost,
    ReadInterrupted,
)
from tidegate.producer.errors import ProgressLost
from tidegate.producer.kafka import admin as kafka_admin
from tidegate.producer.kafka.progress_follower import ProgressFollower
from tidegate.program import from_beginning
from tidegate.schemas.progress import ProgressRecord, SlotProgress, TokenSnapshot
from tidegate.schemas.progress_codec import RECORD_SCHEMA, encode_record
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.wire_format import frame

NOW_US = 10**12
INTERRUPTED = ReadInterrupted("all slots of topic g-progress", "broker down")


def beat(slot, offset, *, revision=1, value=None):
    tokens = (TokenSnapshot("a", 0, (), ("",), 30 + slot, number=0),)
    record = ProgressRecord("e", "w", SlotProgress(slot, revision, 0, -1, (), tokens))
    framed = value or frame(1, encode_record(record))
    return SimpleNamespace(
        error=lambda: None, value=lambda: framed, partition=lambda: slot, offset=lambda: offset
    )


def failed(error, slot=None, offset=None):
    return SimpleNamespace(error=lambda: error, partition=lambda: slot, offset=lambda: offset)


@pytest.fixture
def admins(monkeypatch):
    made = Admins()
    monkeypatch.setattr(kafka_admin, "AdminClient", made)
    return made


@pytest.fixture
def follower(monkeypatch, admins):
    monkeypatch.setattr(from_beginning, "Consumer", Consumer)
    return ProgressFollower(
        bootstrap_servers="x", group="g", topic="g-progress", slots=2, epoch="e",
        decoder=ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[1]),
    )  # fmt: skip


@pytest.fixture
def batches(follower):
    return follower._consumer.batches


def test_it_reads_every_slot_from_its_beginning(follower):
    assert follower._consumer.assigned == [
        ("g-progress", 0, 3),
        ("g-progress", 1, 3),
    ]
    assert follower._consumer.config["group.id"] == "g-follower"
    follower.close()
    assert follower._consumer.is_closed


def test_the_ends_make_what_was_read_current(follower, batches, admins):
    batches += [
        [beat(0, 0), failed(END, 0, 2), beat(1, 0)],
        [failed(KafkaError(KafkaError._TRANSPORT, "broker down"))],
        [failed(END, 1, 2)],
    ]

    assert follower.poll(NOW_US) == FleetRead({0: 30, 1: 31}, is_current=False)
    admins.answer({0: 2, 1: 2})
    assert follower.poll(NOW_US) == INTERRUPTED
    assert not follower.has_failed
    assert follower.poll(NOW_US) == FleetRead({}, is_current=True)
    assert follower.poll(NOW_US) is None
    assert len(admins.asked) == 1


def test_the_ends_are_asked_for_again_once_they_are_reached(follower, batches, admins):
    follower.poll(NOW_US)
    admins.answer({0: 1, 1: 1})
    batches.append([beat(0, 0), beat(1, 0)])
    assert follower.poll(NOW_US) == FleetRead({0: 30, 1: 31}, is_current=True)

    follower.poll(NOW_US + 10**6)
    admins.answer({0: 1, 1: 1})
    assert follower.poll(NOW_US + 10**6) == FleetRead({}, is_current=True)


def test_a_missing_right_is_reported(follower, batches):
    batches.append([failed(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized"))])

    assert follower.poll(NOW_US) == AccessDenied("topic g-progress", "not authorized")


@pytest.mark.parametrize(
    ("lost", "fields"),
    [
        (
            failed(KafkaError(KafkaError._AUTO_OFFSET_RESET, "gone"), 0),
            {"slot": 0, "position": 6, "reason": "gone"},
        ),
        (beat(0, 5, revision=2), {"slot": 0, "was": 6, "now": 5}),
    ],
    ids=["out of range", "backwards"],
)
def test_a_slot_that_cannot_be_read_on_ends_it(follower, batches, lost, fields):
    batches += [[beat(0, 5), beat(1, 0), lost], [beat(1, 1, revision=2)]]

    found = follower.poll(NOW_US)
    assert isinstance(found, ProgressReadLost)
    assert isinstance(found.error, ProgressLost)
    assert found.error.fields == fields
    assert follower.poll(NOW_US) is None
    assert follower._consumer.batches, "nothing more is read"


@pytest.mark.parametrize("second", [beat(0, 1), beat(0, 1, value=b"\0\0\0\0\1garbage")])
def test_what_contradicts_the_protocol_ends_it(follower, batches, second):
    batches += [[beat(0, 0), second], [beat(0, 2, revision=2), failed(END, 0, 3)]]

    found = follower.poll(NOW_US)
    assert isinstance(found, ReadInterrupted)
    assert found.resource == "topic g-progress"
    assert follower.has_failed
    assert follower.poll(NOW_US) is None
    assert follower._consumer.batches  # nothing more is read


def test_records_wait_for_a_schema_that_is_not_known_yet(follower, batches):
    known = set()
    follower._decoder = ProgressDecoder(
        lambda _id: RECORD_SCHEMA, own_ids=[1], has_answer=known.__contains__
    )
    record = ProgressRecord("e", "w", SlotProgress(0, 2, 0, -1, (), ()))
    later = beat(0, 1, value=frame(9, encode_record(record)))
    batches += [[beat(0, 0), later, beat(1, 0)], [beat(1, 1, revision=2)]]

    follower.poll(NOW_US)
    reached = follower.progress.reached
    assert (reached(0), reached(1)) == (1, 0)
    follower.poll(NOW_US)
    assert (reached(0), reached(1), len(batches)) == (1, 0, 1)
    known.add(9)
    follower.poll(NOW_US)
    follower.poll(NOW_US)
    assert (reached(0), reached(1)) == (2, 2)
