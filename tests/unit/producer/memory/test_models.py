"""The models of Kafka: what the contract suites, which hold for both, do not ask of them."""

import pytest

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.memory.broker import TOMBSTONE, MemoryBroker, ProducerFenced
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.memory.data_topics import MemoryDataTopics, MemoryMessageLimits
from tidegate.producer.memory.group import (
    ClientState,
    Group,
    GroupClient,
    GroupRefusal,
    MemberMetadata,
)
from tidegate.producer.memory.membership import MemoryMembership, MemoryProgressFollower
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.messages import ChangeMessage, ParkedChange, PublishableRecord
from tidegate.schemas.errors import UnreachableError
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    TokenSnapshot,
)

SLOTS = 4
EVERY_SLOT = tuple(range(SLOTS))
DATA, PROGRESS = "bank.accounts", "bank-progress"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def broker():
    return MemoryBroker({DATA: 2, PROGRESS: SLOTS}, group=Group(SLOTS))


def test_the_clocks_move_when_a_test_moves_them():
    clock = ManualClock(wall_us=1_000)
    clock.advance(50)
    clock.sleep(0.002)
    clock.step_wall(-400)
    assert (clock.monotonic_us(), clock.wall_us()) == (2_050, 2_650)


FIRST, SECOND = (DATA, 0), (DATA, 1)


def values(broker, topic=DATA):
    return [entry.value for entry in broker.read(topic)]


class TestBroker:
    def test_markers_may_come_later_and_in_any_order(self):
        broker = MemoryBroker({DATA: 2}, group=Group(SLOTS), settles_at_once=False)
        handle = broker.init_producer("w")
        broker.produce(handle, FIRST, b"k", "one")
        broker.produce(handle, SECOND, b"k", "two")
        transaction = broker.end(handle, commit=True)
        assert values(broker) == []
        broker.write_marker(transaction, 1)
        assert values(broker) == ["two"]
        broker.settle()
        assert values(broker) == ["one", "two"]

    def test_a_transaction_that_timed_out_fences_its_producer(self, broker):
        kept, other = broker.init_producer("kept"), broker.init_producer("other")
        assert broker.end(kept, commit=True) is None, "it has sent nothing"
        broker.produce(kept, FIRST, b"k", "kept")
        broker.produce(other, SECOND, b"k", "other")
        broker.time_out_all_but([kept])
        assert broker.open_transactions == ["kept"]
        assert broker.time_out("kept")
        assert not broker.time_out("kept")
        with pytest.raises(ProducerFenced):
            broker.end(kept, commit=True)
        assert (values(broker), broker.unsettled) == ([], [])


def test_a_missing_topic_is_made_and_an_existing_one_kept():
    broker = MemoryBroker({"p-progress": 1, "p.old": 2}, group=Group(1))
    limits = MemoryMessageLimits(broker, ["p.old"])
    found = []
    topics = MemoryDataTopics(broker, limits, topic_partitions=3, on_found=found.append)
    kept = broker.logs["p.old", 0]
    for _ in range(2):
        topics.ensure("p.new", key_schema_id=7)
        topics.ensure("p.old", key_schema_id=8)
    assert broker.topic_partitions("p.new") == 3
    assert broker.topic_partitions("p.old") == 2
    assert broker.logs["p.old", 0] is kept
    ids = [broker.describe_topic(topic).topic_id for topic in ("p.new", "p.old")]
    new, old = DataTopic("p.new", ids[0], 3, 7), DataTopic("p.old", ids[1], 2, 8)
    assert found == [new, old, new, old]
    assert limits.bytes_max("p.new") == broker.bytes_max("p.new")


NOTHING = frozenset()


def joined(group, *names):
    """Let members join without slots and complete the rebalance; return their ids."""
    ids = {name: group.join(name, "", NOTHING) for name in names}
    assert group.complete()
    return ids


class TestGroup:
    def test_without_chance_slots_stay_with_their_owner(self):
        group = Group(4)
        ids = joined(group, "a")
        owned = group.assignment()["a"]
        group.join("b", "", NOTHING)
        group.join("a", ids["a"], owned)
        group.complete()
        assert group.assignment() == {"a": frozenset({0, 1}), "b": NOTHING}
        assert group.unassigned == {2, 3}, "revoked in this rebalance, assigned in the next"

    def test_metadata_of_another_generation_or_process_is_refused(self):
        group = Group(2)
        ids = joined(group, "a")
        metadata = MemberMetadata("a", ids["a"], group.generation)
        assert MemberMetadata.decode(metadata.encode()) == metadata
        assert group.check(metadata)
        assert not group.check(MemberMetadata("", "", -1))
        for wrong in (
            MemberMetadata("a", ids["a"], group.generation - 1),
            MemberMetadata("a", "another", group.generation),
            MemberMetadata("b", "", -1),
        ):
            with pytest.raises(GroupRefusal):
                group.check(wrong)
        assert group.held_by(metadata) == {0, 1}
        assert group.expire("a")
        assert not group.expire("a")
        assert group.held_by(metadata) == NOTHING


def settled(group, client):
    """Let a client work and its application agree until nothing happens any more."""
    for _ in range(12):
        client.work()
        group.complete()
        while client.callbacks:
            client.done(client.callbacks[0])
    return client


class TestGroupClient:
    @pytest.fixture
    def group(self):
        return Group(2)

    @pytest.fixture
    def client(self, group):
        made = settled(group, GroupClient(group, "a"))
        assert made.owned == {0, 1}
        assert made.is_settled
        assert made.metadata().generation == group.generation
        return made

    def test_a_loss_takes_the_place_of_a_revocation_and_it_joins_again(self, group, client):
        client.rejoin()
        revoked = client.callbacks[0]
        group.expire("a")
        client.work()
        client.done(revoked)
        assert client.callbacks[0] == ("lost", {0, 1})
        assert client.metadata().generation == -1
        settled(group, client)
        assert client.owned == {0, 1}

    def test_the_former_process_of_a_name_is_locked_out(self, group, client):
        heir = settled(group, GroupClient(group, "a"))
        client.work()
        assert client.state is ClientState.LOCKED_OUT
        client.leave()
        assert client.state is ClientState.LOCKED_OUT, "it has no place to give up"
        assert client.has_left
        assert (heir.has_left, heir.owned) == (False, {0, 1})


ANNOUNCED = ProgressRecord("e", "w", PartitionAnnounced(ChildPartition("c", (), 1), "p"))


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


class TestMembership:
    @pytest.fixture
    def member(self, join):
        made = join()
        assert made.metadata() is None
        assert polled(made) == [on.RootSlotRead((), is_at_end=True)]
        assert made._listener.callbacks == [("assigned", EVERY_SLOT)]
        return made

    def test_topics_and_the_group_are_described_now_and_then(self, member, broker, clock):
        member.watch("p.later")
        clock.advance(11_000_000)
        found = {type(event): event for event in polled(member)}
        assert found[on.TopicsObserved] == on.TopicsObserved(
            broker.describe_topic(PROGRESS), (broker.describe_topic("p.later"),)
        )
        assert found[on.GroupDescribed] == on.GroupDescribed(
            is_stable=True, is_member=True, assignments={"w": frozenset(EVERY_SLOT)}
        )
        before = clock.monotonic_us()
        member.poll(0.5)
        assert clock.monotonic_us() - before == 500_000, "a poll that brings nothing waits"

    def test_a_right_that_is_lost_is_reported_until_it_is_back(self, member, broker):
        broker.logs[PROGRESS, 1].append(b"k", ANNOUNCED, None)
        broker.denied.add(PROGRESS)
        member.recover(1, 7)
        denied = on.AccessDenied(f"topic {PROGRESS}", "not authorized")
        assert polled(member, times=2) == [denied, denied]
        broker.denied.clear()
        assert on.ProgressRead(1, 7, 0, ANNOUNCED) in polled(member)
        broker.delete_topic(PROGRESS)
        assert polled(member, times=1) == [on.ReadInterrupted(f"topic {PROGRESS}", "unknown topic")]
        with pytest.raises(UnreachableError):
            member.recover(1, 8)
        member.close()
        assert member.positions == {}


NOW_US = 10**12


def beat(slot, revision=1):
    tokens = (TokenSnapshot("a", 0, (), ("",), 30 + slot, number=0),)
    return ProgressRecord("e", "w", SlotProgress(slot, revision, 0, -1, (), tokens))


@pytest.fixture
def follower(broker):
    return MemoryProgressFollower(broker, topic=PROGRESS, slots=SLOTS, epoch="e")


def test_each_poll_reads_every_slot_to_its_end(broker, follower):
    assert follower.poll(NOW_US) == on.FleetRead(dict.fromkeys(range(SLOTS)), is_current=False)
    for slot in range(SLOTS):
        broker.logs[PROGRESS, slot].append(b"k", beat(slot), None)
        broker.logs[PROGRESS, slot].append(b"k", TOMBSTONE, None)
    lowest_us = {slot: 30 + slot for slot in range(SLOTS)}
    assert follower.poll(NOW_US) == on.FleetRead(lowest_us, is_current=True)
    assert follower.poll(NOW_US) is None


@pytest.mark.parametrize(
    ("again", "kind"),
    [(False, on.ReadInterrupted), (True, on.ProgressReadLost)],
    ids=["twice", "again"],
)
def test_a_follower_ends_with_what_contradicts_the_protocol(broker, follower, again, kind):
    broker.logs[PROGRESS, 0].append(b"k", beat(0), None)
    follower.poll(NOW_US)
    if again:
        follower._positions[0] = 0
    else:
        broker.logs[PROGRESS, 0].append(b"k", beat(0), None)
    assert isinstance(follower.poll(NOW_US), kind)
    assert follower.poll(NOW_US + 10**7) is None


def test_a_follower_of_a_topic_that_is_gone_brings_nothing(broker, follower):
    follower.poll(NOW_US)
    broker.logs.clear()
    assert follower.poll(NOW_US + 10**7) is None


ALONE = MemberMetadata("", "", -1).encode()
CHANGE = ChangeMessage(DATA, b"key", b"value", b"order", b"I", bytes(8))
RECORDS = do.PublishRecords(2, "token", (PublishableRecord(1, "t", "0", (CHANGE, CHANGE)),))
SNAPSHOT = do.PublishProgress(2, None, ProgressRecord("e", "w", SlotProgress(2, 1, 0, -1, (), ())))


class TestPublisher:
    @pytest.fixture
    def open_publisher(self, broker):
        broker.create_topic("dead", 1)

        def make(**options):
            made = MemoryPublisher(
                broker, transactional_id="w", progress_topic=PROGRESS, dead_letter="dead", **options
            )
            made.start()
            return made

        return make

    @pytest.fixture
    def publisher(self, open_publisher):
        made = open_publisher()
        assert isinstance(made.begin(None), on.TransactionAborted), "without a membership"
        assert not made.is_open
        assert made.begin(ALONE) is None
        return made

    def test_a_topic_that_grows_moves_no_key_and_one_that_is_gone_aborts(self, publisher, broker):
        def published():
            publisher.publish_records(RECORDS)
            (data,) = publisher.await_delivery().written[2]
            publisher.abort("enough")
            publisher.begin(ALONE)
            return data.topic_partition

        before = published()
        for count in range(3, 9):
            broker.add_topic_partitions(DATA, count)
            assert published() == before
        publisher.publish_progress(SNAPSHOT)
        assert publisher.await_delivery().snapshots == {2: 0}
        publisher.publish_records(RECORDS)
        broker.delete_topic(DATA)
        outcome = publisher.await_delivery()
        assert isinstance(outcome, on.TransactionAborted)
        assert DATA in outcome.reason

    @pytest.mark.parametrize("step", ["await_delivery", "commit"])
    def test_a_message_beyond_its_topics_limit_aborts_and_is_named(self, publisher, broker, step):
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

    def test_progress_records_and_parked_changes_have_a_size_too(self, publisher, broker):
        parked = ParkedChange(DATA, b"key", b"order", b"U", b"{}", b"record", "r", "e", "token")
        broker.topic_bytes_max["dead"] = parked.size_bytes - 1
        record = PublishableRecord(1, "t", "0", (), (parked,))
        publisher.publish_records(do.PublishRecords(2, "token", (record,)))
        failure = publisher.await_delivery().failure
        assert (failure.topic, failure.slot, failure.size_bytes) == ("dead", 2, parked.size_bytes)
        broker.message_bytes_max = 60
        publisher.begin(ALONE)
        publisher.publish_progress(SNAPSHOT)
        failure = publisher.await_delivery().failure
        assert (failure.topic, failure.slot, failure.commit_timestamp_us) == (PROGRESS, 2, None)

    @pytest.mark.parametrize("first", ["await_delivery", "commit", "abort", "send_offsets"])
    def test_a_producer_that_was_replaced_is_fenced_in_any_call(self, publisher, broker, first):
        publisher.publish_records(RECORDS)
        publisher.await_delivery()
        publisher.publish_records(RECORDS)
        broker.init_producer("w")
        arguments = {"abort": ("because",), "send_offsets": (((0, 1),),)}.get(first, ())
        assert isinstance(getattr(publisher, first)(*arguments), on.ProducerFenced)

    def test_a_tombstone_follows_each_delete_and_is_in_the_vector(self, open_publisher, broker):
        publisher = open_publisher(tombstones=True)
        gone = CHANGE._replace(mod=b"D")
        record = PublishableRecord(1, "t", "0", (gone, CHANGE))
        publisher.begin(ALONE)
        publisher.publish_records(do.PublishRecords(2, "token", (record,)))
        assert [place.offset for place in publisher.await_delivery().written[2]] == [2]
        assert publisher.send_offsets(((2, 5),)) is None
        assert (broker.read(DATA), broker.offsets) == ([], {})
        publisher.commit()
        assert broker.offsets == {2: 5}
        found = [(entry.key, entry.value) for entry in broker.read(DATA)]
        assert found == [(b"key", gone), (b"key", TOMBSTONE), (b"key", CHANGE)]
