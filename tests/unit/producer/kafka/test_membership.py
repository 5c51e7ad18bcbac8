"""What the group's adapter does at rebalances, recoveries and fences; no broker is needed."""

from __future__ import annotations

import struct
import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tidegate.producer.core.events import (
    AccessDenied,
    FleetRead,
    GroupDescribed,
    ProgressRead,
    ProgressReadLost,
    ReadInterrupted,
    RootSlotRead,
    SlotOutOfRange,
    SlotPositionAdvanced,
    TopicsObserved,
    TopicState,
)
from tidegate.producer.errors import ProgressLost
from tidegate.producer.kafka import membership as kafka_membership
from tidegate.producer.kafka.membership import KafkaMembership
from tidegate.schemas.errors import ProducerError, UnreachableError
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
)
from tidegate.schemas.progress_codec import RECORD_SCHEMA, encode_key, encode_record
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.wire_format import frame

NO_OFFSET = -1001
PATIENCE_S = 20.0
FENCED = KafkaError(KafkaError._FATAL, fatal=True)
RECORD = ProgressRecord("e", "w", PartitionAnnounced(ChildPartition("a", (), 1), ""))
OWN = ProgressRecord("e", "w", SlotProgress(3, 1, 0, -1, (), ()))


class Consumer:
    """Remembers its calls; refuses the first `refusals` seeks, returns the `messages`."""

    def __init__(self, config):
        self.config = config
        self.refusals = 0
        self.calls = []
        self.places = []
        self.messages = []
        self.callbacks = {}
        self.group_metadata = b""
        self.owned = set()
        self.is_leaving = False
        self.closed = threading.Event()

    def subscribe(self, topics, **callbacks):
        self.calls.append("subscribe")
        self.callbacks = callbacks

    def unsubscribe(self):
        self.calls.append("unsubscribe")
        self.is_leaving = True

    def incremental_assign(self, places):
        self.places += [(place.partition, place.offset) for place in places]
        self.owned.update(place.partition for place in places)

    def incremental_unassign(self, places):
        self.calls.append(("unassign", [place.partition for place in places]))
        self.owned.difference_update(place.partition for place in places)

    def assignment(self):
        return [TopicPartition("t", slot) for slot in self.owned]

    def seek(self, place):
        if self.refusals:
            self.refusals -= 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.places.append((place.partition, place.offset))

    def consume(self, _count, _timeout_s):
        if self.is_leaving and self.owned:
            self.callbacks["on_revoke"](self, self.assignment())
        messages, self.messages = self.messages, []
        return messages

    def consumer_group_metadata(self):
        return self.group_metadata

    def memberid(self):
        has_left = self.is_leaving and not self.owned
        return "m" if self.group_metadata and not has_left else ""

    def close(self):
        self.closed.set()


class Listener:
    """Recovers what is assigned and remembers everything."""

    def __init__(self):
        self.seen = []
        self.recover = lambda slot: None

    def slots_assigned(self, slots):
        self.seen.append(("assigned", slots))
        for slot in slots:
            self.recover(slot)

    def slots_revoked(self, slots):
        self.seen.append(("revoked", slots))

    def slots_lost(self, slots):
        self.seen.append(("lost", slots))


def end_of(slot, offset):
    """Return the event that a slot's end was reached."""
    error = KafkaError(KafkaError._PARTITION_EOF)
    return SimpleNamespace(error=lambda: error, partition=lambda: slot, offset=lambda: offset)


def message(slot, offset, record=None):
    """Return a record of a slot."""
    record = record or RECORD
    key, value = frame(1, encode_key(record.body)), frame(1, encode_record(record))
    return SimpleNamespace(
        error=lambda: None,
        partition=lambda: slot,
        offset=lambda: offset,
        key=lambda: key,
        value=lambda: value,
    )


def failed(error, topic=None):
    """Return an error that has no topic partition."""
    return SimpleNamespace(
        error=lambda: error, topic=lambda: topic, partition=lambda: None, offset=lambda: None
    )


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture
def member(cluster, monkeypatch, listener):
    monkeypatch.setattr(kafka_membership, "Consumer", Consumer)
    return KafkaMembership(
        bootstrap_servers="x",
        group="g",
        worker="w",
        topic="t",
        session_timeout_ms=6_000,
        listener=listener,
        decoder=decoder(),
    )


def decoder():
    return ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[1])


def assign(member, *slots):
    """Let the group assign slots."""
    consumer = member._consumer
    consumer.callbacks["on_assign"](consumer, [TopicPartition("t", slot) for slot in slots])


@pytest.fixture
def owner(member, cluster):
    """A member that joined the group and owns slot 3."""
    cluster.answers.append("")
    member.start()
    assign(member, 3)
    return member


class TestJoining:
    """A member is static, and claims its name before it joins."""

    def test_the_name_is_claimed_before_the_group_is_joined(self, member, cluster):
        calls = member._consumer.calls
        cluster.on_commit = lambda _place: calls.append("claim")
        cluster.answers.append("")
        member.start()

        assert calls == ["claim", "subscribe"]
        assert cluster.requests[0][1].metadata == member._config["client.id"]
        assert member._config["group.instance.id"] == "w"

    @pytest.mark.parametrize(
        ("session_ms", "heartbeat_ms"), [(6_000, 1_200), (10_000, 2_000), (1_800_000, 2_000)]
    )
    def test_a_long_session_does_not_delay_a_rebalance(self, cluster, session_ms, heartbeat_ms):
        """A member hears that others came or left in the answer to a heartbeat.

        A real client is made here: it refuses a session longer than its longest poll interval.
        """
        member = KafkaMembership(
            bootstrap_servers="x", group="g", worker="w", topic="t",
            session_timeout_ms=session_ms, listener=Listener(), decoder=decoder(),
        )  # fmt: skip

        assert member._config["heartbeat.interval.ms"] == heartbeat_ms

    def test_two_processes_of_one_name_differ(self, member):
        other = KafkaMembership(
            bootstrap_servers="x", group="g", worker="w", topic="t",
            session_timeout_ms=6_000, listener=Listener(), decoder=decoder(),
        )  # fmt: skip

        assert other._config["client.id"] != member._config["client.id"]

    def test_rejoining_is_leaving_and_joining(self, member):
        member.rejoin()

        assert member._consumer.calls == ["unsubscribe", "subscribe"]


class TestRecovery:
    """A slot is read from its fence offset on, and never from two places at once."""

    def test_a_slot_that_is_being_assigned_is_read_from_its_fence_at_once(
        self, member, listener, cluster
    ):
        """A slot that is assigned twice within the callback is a rebalance that never ends."""
        cluster.answers += ["", 7, 42, NO_OFFSET, 42]
        listener.recover = lambda slot: member.recover(slot, 1)
        member.start()
        assign(member, 3, 5)

        assert member._consumer.places == [(3, 7), (5, 0)]

    @pytest.mark.parametrize(("fence", "committed"), [(7, 7), (NO_OFFSET, None)])
    def test_it_reports_where_recovery_ends(self, owner, cluster, fence, committed):
        cluster.answers += [fence, 42]
        started = owner.recover(3, 9)

        assert (started.slot, started.incarnation) == (3, 9)
        assert (started.committed_offset, started.end_offset) == (committed, 42)

    def test_what_is_read_before_the_seek_is_ignored(self, owner, cluster):
        consumer = owner._consumer
        consumer.places.clear()
        consumer.refusals = 2
        cluster.answers += [7, 42]
        owner.recover(3, 9)
        consumer.messages = [end_of(3, 40), message(3, 39)]
        assert owner.poll(0.0) == []
        consumer.messages = [message(3, 41), end_of(3, 42)]

        assert owner.poll(0.0) == [ProgressRead(3, 9, 41, RECORD), SlotPositionAdvanced(3, 9, 42)]
        assert consumer.places == [(3, 7)]

    def test_a_slot_is_read_again_from_a_record_whose_schema_is_not_known_yet(self, owner):
        """The group is polled meanwhile, and other slots are read."""
        consumer, known = owner._consumer, set()
        owner._decoder = ProgressDecoder(
            lambda _id: RECORD_SCHEMA, own_ids=[1], has_answer=known.__contains__
        )
        assign(owner, 4)
        consumer.places.clear()
        later = message(3, 41)
        later.value = lambda: frame(9, encode_record(RECORD))
        after = [later, message(3, 42), message(4, 7), end_of(3, 43)]
        consumer.messages = [message(3, 40), *after]
        assert owner.poll(0.0) == [ProgressRead(3, -1, 40, RECORD), ProgressRead(4, -1, 7, RECORD)]
        consumer.messages = after[:2]
        assert owner.poll(0.0) == []
        known.add(9)
        consumer.messages = [later, message(3, 42), end_of(3, 43)]
        assert owner.poll(0.0) == [
            ProgressRead(3, -1, 41, RECORD),
            ProgressRead(3, -1, 42, RECORD),
            SlotPositionAdvanced(3, -1, 43),
        ]
        assert consumer.places == [(3, 41), (3, 41)]

    def test_a_slot_that_comes_back_is_read_from_its_new_place_only(self, owner, cluster, listener):
        consumer = owner._consumer
        owner._decoder = ProgressDecoder(lambda _id: {}, has_answer=lambda _id: False)
        consumer.messages = [message(3, 41)]
        assert owner.poll(0.0) == []
        consumer.callbacks["on_revoke"](consumer, [TopicPartition("t", 3)])
        consumer.places.clear()
        cluster.answers += [7, 42]
        listener.recover = lambda slot: owner.recover(slot, 2)
        assign(owner, 3)
        owner._decoder = decoder()
        consumer.messages = [message(3, 7)]
        assert owner.poll(0.0) == [ProgressRead(3, 2, 7, RECORD)]
        assert consumer.places == [(3, 7)]

    def test_after_recovery_what_the_owner_wrote_is_not_decoded(self, owner, cluster):
        consumer = owner._consumer
        cluster.answers += [7, 42, 7, 50]
        owner.recover(3, 9)
        owner.read_announcements(3, 9)
        undecodable = message(3, 43, OWN)
        undecodable.value = lambda: b"not decoded"
        consumer.messages = [message(3, 42), undecodable]
        assert owner.poll(0.0) == [
            ProgressRead(3, 9, 42, RECORD),
            SlotPositionAdvanced(3, 9, 44),
        ]

        owner.recover(3, 10)
        consumer.messages = [message(3, 42, OWN)]
        assert owner.poll(0.0) == [ProgressRead(3, 10, 42, OWN)]

    def test_what_is_passed_over_in_a_row_is_one_event(self, owner, cluster):
        consumer = owner._consumer
        assign(owner, 4)
        cluster.answers += [7, 42, 7, 42]
        for slot in (3, 4):
            owner.recover(slot, 9)
            owner.read_announcements(slot, 9)
        own = [message(3, offset, OWN) for offset in (42, 43)]
        consumer.messages = [
            *own, end_of(3, 45), message(4, 42, OWN), message(3, 45), message(3, 46, OWN),
            end_of(3, 44),
        ]  # fmt: skip

        assert owner.poll(0.0) == [
            SlotPositionAdvanced(3, 9, 45),
            SlotPositionAdvanced(4, 9, 43),
            ProgressRead(3, 9, 45, RECORD),
            SlotPositionAdvanced(3, 9, 47),
            SlotPositionAdvanced(3, 9, 44),  # a step backwards stops the worker
        ]

    def test_a_slot_that_is_gone_is_not_sought(self, member, cluster):
        cluster.answers += [7, 42]
        member.recover(3, 9)
        member.poll(0.0)

        assert member._consumer.places == []


class TestPolling:
    """What a poll returns."""

    def test_a_description_of_the_group_is_an_event(self, member):
        described = [GroupDescribed(True, True, {"w": frozenset()}), None]
        member._monitor = SimpleNamespace(poll=lambda _now_us: described.pop(0))

        assert member.poll(0.0) == [GroupDescribed(True, True, {"w": frozenset()})]
        assert member.poll(0.0) == []

    def test_a_description_of_the_topics_is_an_event(self, member):
        observed = TopicsObserved(TopicState("t", "id", 4), ())
        member._topic_monitor = SimpleNamespace(poll=lambda _now_us: observed)

        assert member.poll(0.0) == [observed]

    @pytest.mark.parametrize(
        "code",
        [KafkaError._TRANSPORT, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MAX_POLL_EXCEEDED],
    )
    def test_an_error_that_passes_is_an_interruption(self, owner, code):
        owner._consumer.messages = [failed(KafkaError(code, "for now"))]

        assert owner.poll(0.0) == [ReadInterrupted("topic t", "for now")]

    @pytest.mark.parametrize(
        "code",
        [KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE],
    )
    def test_an_offset_that_the_log_does_not_hold_is_an_event(self, owner, cluster, code):
        cluster.answers += [7, 42]
        owner.recover(3, 9)
        error = KafkaError(code, "offset out of range")
        owner._consumer.messages = [
            SimpleNamespace(error=lambda: error, partition=lambda: 3, offset=lambda: None)
        ]

        assert owner.poll(0.0) == [SlotOutOfRange(3, 9, "offset out of range")]

    def test_the_client_never_goes_back_by_itself(self, member):
        assert member._config["auto.offset.reset"] == "error"

    @pytest.mark.parametrize(
        ("code", "topic", "resource"),
        [
            (KafkaError.TOPIC_AUTHORIZATION_FAILED, "other", "topic other"),
            (KafkaError.TOPIC_AUTHORIZATION_FAILED, None, "topic t"),
            (KafkaError.GROUP_AUTHORIZATION_FAILED, None, "group g"),
        ],
    )
    def test_a_missing_right_is_an_event_that_names_the_resource(
        self, owner, code, topic, resource
    ):
        owner._consumer.messages = [failed(KafkaError(code, "not authorized"), topic)]

        assert owner.poll(0.0) == [AccessDenied(resource, "not authorized")]

    @pytest.mark.parametrize(
        ("metadata", "expected"),
        [
            (b"", None),
            (b"CGMDv2:" + struct.pack("=i", -1) + b"rest", None),
            (b"CGMDv3:" + struct.pack("=i", 5) + b"rest", None),
            (b"CGMDv2:" + struct.pack("=i", 5) + b"rest", b"CGMDv2:" + struct.pack("=i", 5)),
        ],
        ids=["no member", "no generation", "another format", "member"],
    )
    def test_metadata_is_there_only_with_a_generation(self, member, metadata, expected):
        member._consumer.group_metadata = metadata

        found = member.metadata()
        assert found == (None if expected is None else metadata)


class TestRebalances:
    """The listener is called inside the client's callbacks."""

    @pytest.mark.parametrize("kind", ["revoke", "lost"])
    def test_slots_are_unassigned_after_the_listener_released_them(self, owner, listener, kind):
        consumer = owner._consumer
        consumer.callbacks[f"on_{kind}"](consumer, [TopicPartition("t", 3)])

        assert listener.seen[-1] == ({"revoke": "revoked"}.get(kind, kind), (3,))
        assert consumer.calls[-1] == ("unassign", [3])
        assert owner._assigned == set()


class TestFenced:
    """A fatal error has no topic partition, and the client never polls again after it."""

    def test_without_a_successor_it_joins_with_a_new_client(self, owner, listener, cluster):
        former = owner._consumer
        former.messages = [failed(FENCED)]
        cluster.answers.append(owner._config["client.id"])

        assert owner.poll(0.0) == []
        assert listener.seen == [("assigned", (3,)), ("lost", (3,))]
        assert former.closed.wait(PATIENCE_S)
        assert owner._consumer is not former
        assert owner._consumer.calls == ["subscribe"]
        assert owner.poll(0.0) == []

    def test_a_former_client_assigns_nothing(self, owner, listener, cluster):
        former = owner._consumer
        former.messages = [failed(FENCED)]
        cluster.answers.append(owner._config["client.id"])
        owner.poll(0.0)
        former.callbacks["on_assign"](former, [TopicPartition("t", 1)])

        assert listener.seen[-1] == ("lost", (3,))

    def test_a_client_that_is_replaced_loses_its_slots_in_the_next_poll(
        self, owner, listener, cluster
    ):
        former = owner._consumer
        cluster.answers.append(owner._config["client.id"])
        owner.replace_client()
        assert listener.seen == [("assigned", (3,))]

        assert owner.poll(0.0) == []
        assert listener.seen == [("assigned", (3,)), ("lost", (3,))]
        assert owner._consumer is not former
        assert owner._consumer.calls == ["subscribe"]
        assert former.closed.wait(PATIENCE_S)
        second = owner._consumer
        owner.poll(0.0)
        assert owner._consumer is second

    def test_a_client_that_never_ends_holds_up_nothing(self, owner, listener, cluster):
        go_on = threading.Event()
        owner._consumer.close = lambda: go_on.wait(PATIENCE_S)
        cluster.answers.append(owner._config["client.id"])
        owner.replace_client()
        owner.poll(0.0)

        assert owner._consumer.calls == ["subscribe"]
        go_on.set()

    def test_with_a_successor_it_ends(self, owner, listener, cluster):
        owner._consumer.messages = [failed(FENCED)]
        cluster.answers.append("another process")

        with pytest.raises(ProducerError, match="the group fenced this worker"):
            owner.poll(0.0)
        assert listener.seen == [("assigned", (3,))]


class TestClosing:
    """The group is left in order where the client lets us."""

    def test_slots_are_revoked_before_it_leaves(self, owner, listener):
        owner.close(leaves_group=True)

        assert owner._consumer.closed.is_set()
        assert owner._consumer.calls == ["subscribe", "unsubscribe", ("unassign", [3])]
        assert listener.seen == [("assigned", (3,)), ("revoked", (3,))]

    def test_a_client_that_keeps_its_place_is_dropped_and_nothing_is_called(self, owner, listener):
        """Closing a static member's client calls its callbacks, which may hang."""
        client = owner._consumer
        owner.close()

        assert client.calls == ["subscribe"]
        assert not client.closed.is_set()
        assert not hasattr(owner, "_consumer")
        assert listener.seen == [("assigned", (3,))]

    def test_clients_that_still_leave_give_up_their_slots_without_the_listener(
        self, owner, listener, cluster
    ):
        """A replaced client leaves on a thread of its own, and a dropped one may be polled."""
        former = owner._consumer
        cluster.answers.append(owner._config["client.id"])
        owner.replace_client()
        owner.poll(0.0)
        assert former.closed.wait(PATIENCE_S)
        last, seen = owner._consumer, list(listener.seen)
        owner.close()
        for client in (former, last):
            client.callbacks["on_revoke"](client, [TopicPartition("t", 3)])
            assert client.calls[-1] == ("unassign", [3])
            client.callbacks["on_assign"](client, [TopicPartition("t", 1)])

        assert listener.seen == seen

    def test_an_error_of_the_listener_is_raised(self, owner, listener):
        def fail(_slots):
            message = "not released"
            raise UnreachableError(message)

        listener.slots_revoked = fail
        with pytest.raises(UnreachableError, match="not released"):
            owner.close(leaves_group=True)


class TestRarelyUsedClients:
    """Each has threads of its own, so it lives from its first call to the next poll."""

    def test_one_serves_all_slots_of_a_rebalance_and_no_longer(self, member, listener, cluster):
        cluster.answers += ["", *(7, 42) * 3]
        member.start()
        assert cluster.made == 1, "the claim's"
        member.poll(0.0)
        listener.recover = lambda slot: member.recover(slot, 1)
        assign(member, 3, 4)
        member.recover(4, 2)
        assert cluster.made == 3, "one for fences, one for ends"

        member.poll(0.0)
        cluster.answers += (7, 42)
        member.recover(4, 3)
        assert cluster.made == 5

    def test_a_look_at_the_claim_leaves_none_behind(self, member, cluster):
        cluster.answers += ["", "", ""]
        member.start()
        member.has_successor()
        member.poll(0.0)
        member.has_successor()
        assert cluster.made == 2, "the claim's, which looks as well, and one after the next poll"


class TestTables:
    """Records of later tables come with the polls, from the reader of the root's slot."""

    def test_what_was_read_comes_with_the_next_poll(self, cluster, monkeypatch, listener):
        monkeypatch.setattr(kafka_membership, "Consumer", Consumer)
        found = RootSlotRead((RECORD,), is_at_end=True)
        answers = [found, None]
        member = KafkaMembership(
            bootstrap_servers="x", group="g", worker="w", topic="t",
            session_timeout_ms=6_000, listener=listener, decoder=decoder(),
            root_slot=SimpleNamespace(poll_records=lambda: answers.pop(0)),
        )  # fmt: skip
        cluster.answers.append("")
        member.start()
        assert member.poll(0.0) == [found]
        assert member.poll(0.0) == []

    @pytest.mark.parametrize(
        "found",
        [
            RootSlotRead((RECORD,), is_at_end=True),
            ProgressReadLost(ProgressLost("it moved backwards", slot=0)),
            AccessDenied("topic t", "not authorized"),
            ReadInterrupted("slot 0 of topic t", "broker down"),
        ],
        ids=lambda found: type(found).__name__,
    )
    def test_what_was_read_beside_a_client_that_is_replaced_is_kept(
        self, cluster, monkeypatch, listener, found
    ):
        monkeypatch.setattr(kafka_membership, "Consumer", Consumer)
        member = KafkaMembership(
            bootstrap_servers="x", group="g", worker="w", topic="t",
            session_timeout_ms=6_000, listener=listener, decoder=decoder(),
            root_slot=SimpleNamespace(poll_records=lambda: found),
        )  # fmt: skip
        cluster.answers.append("")
        member.start()
        cluster.answers.append("")
        member._consumer.messages = [failed(FENCED)]

        assert member.poll(0.0) == [found]

    def test_the_fleet_is_followed_once_the_core_asks_for_it(self, cluster, monkeypatch, listener):
        monkeypatch.setattr(kafka_membership, "Consumer", Consumer)
        found, opened, asked, closed = FleetRead({0: 5}, is_current=True), [], [], []
        answers = [found, None]

        def follow(epoch, with_moves):
            opened.append((epoch, with_moves))
            return SimpleNamespace(
                progress=SimpleNamespace(await_sources=asked.extend),
                poll=lambda _now_us: answers.pop(0),
                close=lambda: closed.append(True),
            )

        member = KafkaMembership(
            bootstrap_servers="x", group="g", worker="w", topic="t",
            session_timeout_ms=6_000, listener=listener, decoder=decoder(), open_follower=follow,
        )  # fmt: skip
        cluster.answers.append("")
        member.start()
        assert member.poll(0.0) == []
        member.await_sources([("early", 1)])
        member.follow("e", with_moves=True)
        member.await_sources([("a", 7)])
        assert (opened, asked) == ([("e", True)], [("a", 7)])
        assert member.poll(0.0) == [found]
        assert member.poll(0.0) == []
        member.close()
        assert closed == [True]

    def test_one_more_topic_is_described(self, member):
        member.watch("p.later")

        assert member._topic_monitor._topics == ["t", "p.later"]
