"""The follower in memory reads what is committed, and ends as the one on Kafka does."""

from __future__ import annotations

import pytest

from tests.unit.producer.memory.conftest import PROGRESS, SLOTS
from tidegate.producer.core.events import FleetRead, ProgressReadLost, ReadInterrupted
from tidegate.producer.memory.log import TOMBSTONE
from tidegate.producer.memory.progress_follower import MemoryProgressFollower
from tidegate.schemas.progress import ProgressRecord, SlotProgress, TokenSnapshot

NOW_US = 10**12


def beat(slot, revision=1):
    tokens = (TokenSnapshot("a", 0, (), ("",), 30 + slot, number=0),)
    return ProgressRecord("e", "w", SlotProgress(slot, revision, 0, -1, (), tokens))


@pytest.fixture
def follower(broker):
    return MemoryProgressFollower(broker, topic=PROGRESS, slots=SLOTS, epoch="e")


def test_each_poll_reads_every_slot_to_its_end(broker, follower):
    assert follower.poll(NOW_US) == FleetRead(dict.fromkeys(range(SLOTS)), is_current=False)
    for slot in range(SLOTS):
        broker.logs[PROGRESS, slot].append(b"k", beat(slot), None)
        broker.logs[PROGRESS, slot].append(b"k", TOMBSTONE, None)

    lowest_us = {slot: 30 + slot for slot in range(SLOTS)}
    assert follower.poll(NOW_US) == FleetRead(lowest_us, is_current=True)
    assert follower.poll(NOW_US) is None


def test_a_topic_that_is_gone_brings_nothing(broker, follower):
    follower.poll(NOW_US)
    broker.logs.clear()

    assert follower.poll(NOW_US + 10**7) is None


def test_what_contradicts_the_protocol_ends_it(broker, follower):
    for _ in range(2):
        broker.logs[PROGRESS, 0].append(b"k", beat(0), None)

    assert isinstance(follower.poll(NOW_US), ReadInterrupted)
    assert follower.poll(NOW_US + 10**7) is None


def test_a_slot_that_is_read_again_ends_it(broker, follower):
    broker.logs[PROGRESS, 0].append(b"k", beat(0), None)
    follower.poll(NOW_US)
    follower._positions[0] = 0

    found = follower.poll(NOW_US)
    assert isinstance(found, ProgressReadLost)
    assert (found.error.fields["was"], found.error.fields["now"]) == (1, 0)
    assert follower.poll(NOW_US + 10**7) is None
