"""The membership in memory: rebalances inside polls, reading, and the search for the start."""

from __future__ import annotations

import pytest

from tests.unit.producer.memory.conftest import PROGRESS, SLOTS
from tidegate.producer.core import events as on
from tidegate.producer.memory.group import MemberMetadata
from tidegate.producer.memory.group_client import ClientState
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.schemas.errors import ProducerError, UnreachableError
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    ProgressRecord,
    StreamStarted,
    TableAdded,
)

EVERY_SLOT = tuple(range(SLOTS))
ANNOUNCED = ProgressRecord("e", "w", PartitionAnnounced(ChildPartition("c", (), 1), "p"))
STARTED = ProgressRecord(
    "e", "w", StreamStarted("s", "GOOGLE_STANDARD_SQL", 1, None, "g", SLOTS, "p", (), ())
)


class Listener:
    """Agrees to everything and remembers it."""

    def __init__(self):
        self.callbacks = []

    def slots_assigned(self, slots):
        self.callbacks.append(("assigned", slots))

    def slots_revoked(self, slots):
        self.callbacks.append(("revoked", slots))

    def slots_lost(self, slots):
        self.callbacks.append(("lost", slots))


@pytest.fixture
def join(broker, clock):
    """Start a process of a worker."""

    def start(name="w", *, client_id="w-1"):
        member = MemoryMembership(
            broker, worker=name, client_id=client_id, topic=PROGRESS,
            listener=Listener(), clock=clock,
        )  # fmt: skip
        member.start()
        return member

    return start


def polled(member, times=8):
    return [event for _ in range(times) for event in member.poll(0.0)]


def test_slots_are_assigned_inside_a_poll(join):
    member = join()
    assert member.metadata() is None
    polled(member)

    assert member._listener.callbacks == [("assigned", EVERY_SLOT)]
    assert MemberMetadata.decode(member.metadata()).generation == 1


def test_a_slot_is_read_from_its_beginning_without_an_offset(join, broker):
    member = join()
    polled(member)
    broker.logs[PROGRESS, 1].append(b"k", ANNOUNCED, None)

    assert member.recover(1, 7) == on.SlotRecoveryStarted(1, 7, committed_offset=None, end_offset=1)
    assert polled(member) == [
        on.ProgressRead(1, 7, 0, ANNOUNCED),
        on.SlotPositionAdvanced(1, 7, 1),
    ]


def test_a_slot_is_read_from_its_committed_offset(join, broker):
    member = join()
    polled(member)
    for _ in range(3):
        broker.logs[PROGRESS, 1].append(b"k", ANNOUNCED, None)
    broker.offsets[1] = 2

    assert member.recover(1, 7).committed_offset == 2
    assert [event.offset for event in polled(member) if isinstance(event, on.ProgressRead)] == [2]


@pytest.mark.parametrize("expired", [3, 0])
def test_an_offset_that_is_not_in_the_log_is_reported_and_not_replaced(join, broker, expired):
    member = join()
    polled(member)
    for _ in range(3):
        broker.logs[PROGRESS, 1].append(b"k", ANNOUNCED, None)
    broker.offsets[1] = 2 if expired else 4
    member.recover(1, 7)
    broker.logs[PROGRESS, 1].expire(expired)
    found = polled(member, times=2)

    assert [(type(event), event.slot, event.incarnation) for event in found] == [
        (on.SlotOutOfRange, 1, 7)
    ] * 2


def test_topics_are_described_now_and_then(join, broker, clock):
    member = join()
    polled(member)
    clock.advance(11_000_000)
    observed = [event for event in polled(member) if isinstance(event, on.TopicsObserved)]

    assert observed == [on.TopicsObserved(broker.describe_topic(PROGRESS), ())]


def test_a_right_that_is_lost_is_reported_until_it_is_back(join, broker):
    member = join()
    polled(member)
    broker.logs[PROGRESS, 1].append(b"k", ANNOUNCED, None)
    broker.denied.add(PROGRESS)
    member.recover(1, 7)
    denied = on.AccessDenied(f"topic {PROGRESS}", "not authorized")
    assert polled(member, times=2) == [denied, denied]
    broker.denied.clear()

    assert on.ProgressRead(1, 7, 0, ANNOUNCED) in polled(member)


def test_a_progress_topic_that_is_gone_interrupts_reading(join, broker):
    member = join()
    polled(member)
    member.recover(1, 7)
    broker.delete_topic(PROGRESS)

    assert polled(member, times=1) == [on.ReadInterrupted(f"topic {PROGRESS}", "unknown topic")]
    with pytest.raises(UnreachableError):
        member.recover(1, 8)


def test_an_offset_that_an_open_transaction_moves_is_waited_for(join, broker):
    member = join()
    polled(member)
    handle = broker.init_producer("other")
    broker.send_offsets(handle, [(1, 5)], MemberMetadata.decode(member.metadata()))

    with pytest.raises(UnreachableError):
        member.recover(1, 7)
    broker.end(handle, commit=True)
    member.recover(1, 8)
    assert member.positions[1] == (8, 5)


def test_a_second_worker_gets_half_of_the_slots(join):
    first = join("a")
    polled(first)
    second = join("b", client_id="b-1")
    for _ in range(12):
        first.poll(0.0)
        second.poll(0.0)

    assert ("revoked", (2, 3)) in first._listener.callbacks
    assert second._listener.callbacks == [("assigned", (2, 3))]


def test_the_former_process_of_a_name_gets_an_error(join):
    former = join()
    polled(former)
    heir = join(client_id="w-2")
    assert former.has_successor()
    assert not heir.has_successor()
    polled(heir)

    with pytest.raises(ProducerError):
        polled(former)


def test_a_stuck_client_is_replaced_and_its_slots_are_lost_before_they_come_again(join):
    member = join()
    polled(member)
    member.client.state = ClientState.STUCK
    polled(member, 12)
    assert [kind for kind, _ in member._listener.callbacks] == ["assigned"]

    member.replace_client()
    polled(member, 12)
    assert [kind for kind, _ in member._listener.callbacks] == ["assigned", "lost", "assigned"]


def test_a_stuck_client_of_a_former_process_is_not_replaced(join):
    former = join()
    polled(former)
    former.client.state = ClientState.STUCK
    join(client_id="w-2")
    former.replace_client()

    with pytest.raises(ProducerError):
        polled(former)


def test_a_rejoin_revokes_the_slots_and_gets_them_again(join):
    member = join()
    polled(member)
    member.rejoin()
    polled(member, 12)

    assert [kind for kind, _ in member._listener.callbacks] == ["assigned", "revoked", "assigned"]


def test_the_group_is_described_now_and_then(join, clock):
    member = join()
    assert polled(member) == [on.RootSlotRead((), is_at_end=True)]
    clock.advance(11_000_000)

    described, _ = polled(member)
    assert described == on.GroupDescribed(
        is_stable=True, is_member=True, assignments={"w": frozenset(EVERY_SLOT)}
    )


def test_a_poll_that_brings_nothing_waits(join, clock):
    member = join()
    polled(member)
    before = clock.monotonic_us()
    member.poll(0.5)

    assert clock.monotonic_us() - before == 500_000


def test_a_closed_membership_reads_nothing(join):
    member = join()
    polled(member)
    member.recover(1, 7)
    member.close()

    assert member.positions == {}


def test_the_stream_start_is_found_once_it_is_there(broker):
    finder = MemoryStreamStartFinder(broker, topic=PROGRESS, root_slot=0)
    assert finder.poll() == (None, True)
    broker.logs[PROGRESS, 0].append(b"k", ANNOUNCED, None)
    broker.logs[PROGRESS, 0].append(b"k", STARTED, None)

    assert finder.poll(0.1) == (STARTED, False)
    finder.close()


def test_every_member_reads_later_tables_from_the_roots_slot_each_once(broker, join):
    table = ProgressRecord("e", "w", TableAdded(DataTopic("t", "id", 1, 7)))
    root = broker.logs[PROGRESS, 0]
    root.append(b"k", STARTED, None)
    member = join()
    assert member.read_root_slot() == [on.RootSlotRead((), is_at_end=True, begin=0, end=1)]
    root.append(b"l", table, None)
    broker.logs[PROGRESS, 1].append(b"l", table, None)

    assert member.read_root_slot() == [on.RootSlotRead((table,), is_at_end=True, begin=1, end=2)]
    assert member.read_root_slot() == []
    assert join("v", client_id="v-1").read_root_slot() == [
        on.RootSlotRead((table,), is_at_end=True, begin=0, end=2)
    ]


def test_a_topic_that_is_watched_is_described(broker, join, clock):
    member = join()
    member.watch("p.later")
    clock.advance(11_000_000)
    (state,) = next(one for one in polled(member) if isinstance(one, on.TopicsObserved)).data

    assert state == broker.describe_topic("p.later")
