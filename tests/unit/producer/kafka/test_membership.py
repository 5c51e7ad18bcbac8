"""What the group's adapter does at rebalances, recoveries and fences; no broker is needed."""

import struct
import subprocess
import sys
import threading
import time
import weakref
from types import SimpleNamespace
from unittest import mock

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.core import events as on
from tidegate.producer.kafka import group as consumer_group
from tidegate.producer.kafka import membership as kafka_membership
from tidegate.producer.kafka.group import NameClaim, keep_place, leave_group
from tidegate.producer.kafka.membership import KafkaMembership
from tidegate.producer.kafka.slots import HeldMessages, SlotRecovery
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

TOPIC_DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = KafkaError.GROUP_AUTHORIZATION_FAILED
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
    error = KafkaError(KafkaError._PARTITION_EOF)
    return SimpleNamespace(error=lambda: error, partition=lambda: slot, offset=lambda: offset)


def message(slot, offset, record=None):
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


def decoder():
    return ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[1])


@pytest.fixture
def new_member(cluster, monkeypatch, listener):
    monkeypatch.setattr(kafka_membership, "Consumer", Consumer)

    def make(**options):
        return KafkaMembership(
            **{
                "bootstrap_servers": "x", "group": "g", "worker": "w", "topic": "t",
                "session_timeout_ms": 6_000, "listener": listener, "decoder": decoder(), **options,
            }
        )  # fmt: skip

    return make


@pytest.fixture
def member(new_member):
    return new_member()


def assign(member, *slots):
    consumer = member._consumer
    consumer.callbacks["on_assign"](consumer, [TopicPartition("t", slot) for slot in slots])


@pytest.fixture
def own(cluster):
    def start(member):
        cluster.answers.append("")
        member.start()
        assign(member, 3)
        return member

    return start


@pytest.fixture
def owner(member, own):
    return own(member)


class TestJoining:
    def test_the_name_is_claimed_before_the_group_is_joined(self, member, new_member, cluster):
        calls, config = member._consumer.calls, member._config
        cluster.on_commit = lambda _place: calls.append("claim")
        cluster.answers.append("")
        member.start()
        assert calls == ["claim", "subscribe"]
        assert cluster.requests[0][1].metadata == config["client.id"]
        assert config["group.instance.id"] == "w"
        assert config["auto.offset.reset"] == "error", "the client never goes back by itself"
        assert new_member()._config["client.id"] != config["client.id"], "of another process"
        member.rejoin()
        assert calls[2:] == ["unsubscribe", "subscribe"]

    @pytest.mark.parametrize(
        ("session_ms", "heartbeat_ms"), [(6_000, 1_200), (10_000, 2_000), (1_800_000, 2_000)]
    )
    def test_a_long_session_delays_no_rebalance(
        self, new_member, monkeypatch, session_ms, heartbeat_ms
    ):
        """A member hears that others came or left in the answer to a heartbeat.

        A real client is made here: it refuses a session longer than its longest poll interval.
        """
        monkeypatch.setattr(kafka_membership, "Consumer", confluent_kafka.Consumer)
        member = new_member(session_timeout_ms=session_ms)
        assert member._config["heartbeat.interval.ms"] == heartbeat_ms


class TestRecovery:
    def test_a_slot_being_assigned_is_read_from_its_fence_at_once(self, member, listener, cluster):
        """A slot that is assigned twice within the callback is a rebalance that never ends."""
        cluster.answers += ["", 7, 42, NO_OFFSET, 42]
        listener.recover = lambda slot: member.recover(slot, 1)
        member.start()
        assign(member, 3, 5)
        assert member._consumer.places == [(3, 7), (5, 0)]

    @pytest.mark.parametrize(("fence", "committed"), [(7, 7), (NO_OFFSET, None)])
    def test_what_is_read_before_the_seek_is_ignored(self, owner, cluster, fence, committed):
        consumer = owner._consumer
        consumer.places.clear()
        consumer.refusals = 2
        cluster.answers += [fence, 42]
        started = owner.recover(3, 9)
        assert started == on.SlotRecoveryStarted(3, 9, committed, end_offset=42)
        consumer.messages = [end_of(3, 40), message(3, 39)]
        assert owner.poll(0.0) == []
        consumer.messages = [message(3, 41), end_of(3, 42)]
        read, advanced = on.ProgressRead(3, 9, 41, RECORD), on.SlotPositionAdvanced(3, 9, 42)
        assert owner.poll(0.0) == [read, advanced]
        assert consumer.places == [(3, committed or 0)]

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
        read = [on.ProgressRead(*place, RECORD) for place in ((3, -1, 40), (4, -1, 7))]
        assert owner.poll(0.0) == read
        consumer.messages = after[:2]
        assert owner.poll(0.0) == []
        known.add(9)
        consumer.messages = [later, message(3, 42), end_of(3, 43)]
        assert owner.poll(0.0) == [
            on.ProgressRead(3, -1, 41, RECORD),
            on.ProgressRead(3, -1, 42, RECORD),
            on.SlotPositionAdvanced(3, -1, 43),
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
        assert owner.poll(0.0) == [on.ProgressRead(3, 2, 7, RECORD)]
        assert consumer.places == [(3, 7)]

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
            on.SlotPositionAdvanced(3, 9, 45),
            on.SlotPositionAdvanced(4, 9, 43),
            on.ProgressRead(3, 9, 45, RECORD),
            on.SlotPositionAdvanced(3, 9, 47),
            on.SlotPositionAdvanced(3, 9, 44),  # a step backwards stops the worker
        ]

    def test_a_slot_that_is_gone_is_not_sought(self, member, cluster):
        cluster.answers += [7, 42]
        member.recover(3, 9)
        member.poll(0.0)
        assert member._consumer.places == []


class TestPolling:
    def test_descriptions_of_the_group_and_the_topics_are_events(self, member):
        described = on.GroupDescribed(True, True, {"w": frozenset()})
        observed = on.TopicsObserved(on.TopicState("t", "id", 4), ())
        member.watch("p.later")
        assert member._topic_monitor._topics == ["t", "p.later"]
        for name, found in (("_monitor", described), ("_topic_monitor", observed)):
            setattr(member, name, SimpleNamespace(poll=mock.Mock(side_effect=[found, None])))
        found = {type(event): event for event in member.poll(0.0)}
        assert found == {on.GroupDescribed: described, on.TopicsObserved: observed}
        assert member.poll(0.0) == []

    @pytest.mark.parametrize(
        ("code", "place", "expected"),
        [
            (KafkaError._TRANSPORT, (None, None), on.ReadInterrupted("topic t", "why")),
            (KafkaError._MAX_POLL_EXCEEDED, (None, None), on.ReadInterrupted("topic t", "why")),
            (KafkaError._AUTO_OFFSET_RESET, (None, 3), on.SlotOutOfRange(3, 9, "why")),
            (KafkaError._LOG_TRUNCATION, (None, 3), on.SlotOutOfRange(3, 9, "why")),
            (KafkaError.OFFSET_OUT_OF_RANGE, (None, 3), on.SlotOutOfRange(3, 9, "why")),
            (TOPIC_DENIED, ("other", None), on.AccessDenied("topic other", "why")),
            (TOPIC_DENIED, (None, None), on.AccessDenied("topic t", "why")),
            (GROUP_DENIED, (None, None), on.AccessDenied("group g", "why")),
        ],
    )
    def test_an_error_names_the_resource(self, owner, cluster, code, place, expected):
        topic, slot = place
        cluster.answers += [7, 42]
        owner.recover(3, 9)
        event = failed(KafkaError(code, "why"), topic)
        event.partition = lambda: slot
        owner._consumer.messages = [event]
        assert owner.poll(0.0) == [expected]

    def test_metadata_is_there_only_with_a_generation(self, member):
        generation, none = (struct.pack("=i", number) + b"rest" for number in (5, -1))
        for metadata in (b"", b"CGMDv2:" + none, b"CGMDv3:" + generation):
            member._consumer.group_metadata = metadata
            assert member.metadata() is None
        member._consumer.group_metadata = b"CGMDv2:" + generation
        assert member.metadata() == b"CGMDv2:" + generation


class TestFenced:
    @pytest.fixture
    def fence(self, owner, cluster):
        """Fence or replace the client; return the former one."""

        def act(how, owner_of_the_name=None):
            former = owner._consumer
            cluster.answers.append(owner_of_the_name or owner._config["client.id"])
            if how == "fenced":
                former.messages = [failed(FENCED)]
            else:
                owner.replace_client()
            return former

        return act

    @pytest.mark.parametrize("how", ["fenced", "replaced"])
    def test_without_a_successor_it_joins_with_a_new_client(self, owner, listener, fence, how):
        former = fence(how)
        assert listener.seen == [("assigned", (3,))]
        assert owner.poll(0.0) == []
        lost = [("assigned", (3,)), ("lost", (3,))]
        assert listener.seen == lost
        assert former.closed.wait(PATIENCE_S)
        second = owner._consumer
        assert second is not former
        assert second.calls == ["subscribe"]
        assert owner.poll(0.0) == []
        assert owner._consumer is second

    def test_with_a_successor_it_ends(self, owner, listener, fence):
        fence("fenced", "another process")
        with pytest.raises(ProducerError, match="the group fenced this worker"):
            owner.poll(0.0)
        assert listener.seen == [("assigned", (3,))]


class TestClosing:
    @pytest.mark.parametrize("kind", ["revoke", "lost"])
    def test_slots_are_unassigned_after_the_listener_released_them(self, owner, listener, kind):
        consumer = owner._consumer
        consumer.callbacks[f"on_{kind}"](consumer, [TopicPartition("t", 3)])
        assert listener.seen[-1] == ({"revoke": "revoked"}.get(kind, kind), (3,))
        assert consumer.calls[-1] == ("unassign", [3])
        assert owner._assigned == set()

    def test_slots_are_revoked_before_it_leaves(self, owner, listener):
        owner.close(leaves_group=True)
        assert owner._consumer.closed.is_set()
        assert owner._consumer.calls == ["subscribe", "unsubscribe", ("unassign", [3])]
        assert listener.seen == [("assigned", (3,)), ("revoked", (3,))]

    def test_clients_that_still_leave_give_up_slots_without_listener(
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
        listener.slots_revoked = mock.Mock(side_effect=UnreachableError("not released"))
        with pytest.raises(UnreachableError, match="not released"):
            owner.close(leaves_group=True)


class TestRarelyUsedClients:
    def test_a_look_at_the_claim_leaves_none_behind(self, member, cluster):
        cluster.answers += ["", "", ""]
        member.start()
        member.has_successor()
        member.poll(0.0)
        member.has_successor()
        assert cluster.made == 2, "the claim's, which looks as well, and one after the next poll"


class TestTables:
    @pytest.mark.parametrize("is_fenced", [False, True])
    def test_what_was_read_comes_with_the_next_poll(self, new_member, own, cluster, is_fenced):
        """It is kept beside a client that is replaced, too."""
        found = on.RootSlotRead((RECORD,), is_at_end=True)
        answers = [found, None]
        root_slot = SimpleNamespace(poll_records=lambda: answers.pop(0))
        member = own(new_member(root_slot=root_slot))
        if is_fenced:
            cluster.answers.append("")
            member._consumer.messages = [failed(FENCED)]
        assert member.poll(0.0) == [found]
        assert member.poll(0.0) == []

    def test_the_fleet_is_followed_once_the_core_asks_for_it(self, new_member, own):
        found, opened, asked, closed = on.FleetRead({0: 5}, is_current=True), [], [], []
        answers = [found, None]

        def follow(epoch, with_moves):
            opened.append((epoch, with_moves))
            return SimpleNamespace(
                progress=SimpleNamespace(await_sources=asked.extend),
                poll=lambda _now_us: answers.pop(0),
                close=lambda: closed.append(True),
            )

        member = own(new_member(open_follower=follow))
        assert member.poll(0.0) == []
        member.await_sources([("early", 1)])
        member.follow("e", with_moves=True)
        member.await_sources([("a", 7)])
        assert (opened, asked) == ([("e", True)], [("a", 7)])
        assert member.poll(0.0) == [found]
        assert member.poll(0.0) == []
        member.close()
        assert closed == [True]


GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))
UNSTABLE = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)


@pytest.fixture
def recovery(admin, open_committed):
    return SlotRecovery(admin, open_committed("g"), topic="t")


class TestOffsets:
    @pytest.mark.parametrize(("committed", "expected"), [(7, 7), (0, 0), (-1001, None)])
    def test_the_fence_offset_is_the_committed_one(self, cluster, recovery, committed, expected):
        cluster.answers.append(committed)
        assert recovery.fence_offset(3) == expected
        ((group, place, config),) = cluster.requests
        assert (group, place.topic, place.partition) == ("g", "t", 3)
        assert config["isolation.level"] == "read_committed"  # a transaction may move it

    def test_open_transactions_are_waited_for(self, cluster, recovery):
        cluster.answers += [UNSTABLE, UNSTABLE, 9]
        assert recovery.fence_offset(3) == 9
        assert cluster.made == 1, "the client is as good as before"

    def test_the_end_includes_open_transactions(self, cluster, recovery):
        """librdkafka gives no end, without an error, while a broker that was killed starts."""
        cluster.answers += [GONE, OFFSET_INVALID, 42]
        assert recovery.uncommitted_end(3) == 42
        places, options = cluster.requests[-1]
        assert [(place.topic, place.partition) for place in places] == [("t", 3)]
        assert options["isolation_level"] is IsolationLevel.READ_UNCOMMITTED

    @pytest.mark.parametrize("call", ["fence_offset", "uncommitted_end"])
    def test_a_broker_that_does_not_answer_is_an_error(self, cluster, recovery, impatient, call):
        cluster.answers.append(GONE)
        with pytest.raises(UnreachableError, match="slot=3"):
            getattr(recovery, call)(3)


PROGRAM = """
import ctypes
from pathlib import Path
import confluent_kafka
from tidegate.producer.kafka.admin import CommittedOffsets

OFFSET_COMMIT, OFFSET_FETCH, NOT_COORDINATOR = 8, 9, 16
(path,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*")
kafka = ctypes.CDLL(str(path))
for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
    getattr(kafka, name).restype = ctypes.c_void_p
kafka.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
text = ctypes.create_string_buffer(512)
config = ctypes.c_void_p(kafka.rd_kafka_conf_new())
client = ctypes.c_void_p(kafka.rd_kafka_new(0, config, text, 512))
cluster = ctypes.c_void_p(kafka.rd_kafka_mock_cluster_new(client, 1))
kafka.rd_kafka_mock_topic_create(cluster, b"t", 1, 1)
for request in OFFSET_COMMIT, OFFSET_FETCH:
    kafka.rd_kafka_mock_push_request_errors(
        cluster, ctypes.c_int16(request), ctypes.c_size_t(2), NOT_COORDINATOR, NOT_COORDINATOR
    )
servers = kafka.rd_kafka_mock_cluster_bootstraps(cluster).decode()
committed = CommittedOffsets({"bootstrap.servers": servers}, group="g")
print(committed.find("t", 0, "cannot read it").offset)
committed.write(confluent_kafka.TopicPartition("t", 0, 7, "who"), "cannot write it")
written = committed.find("t", 0, "cannot read it")
print(written.offset, written.metadata)
"""


def test_a_coordinator_that_has_moved_is_asked_again_and_ends_no_process():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout.split()) == (0, ["-1001", "7", "who"]), ran.stderr


@pytest.fixture
def name(open_committed):
    return NameClaim(open_committed("g-w"), topic="t", process="w-1")


class TestNames:
    def test_a_claim_is_written_into_a_group_of_its_own(self, cluster, name):
        cluster.answers += [GONE, KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS), ""]
        name.claim()
        (group, place, _), *again = cluster.requests
        assert (group, len(again)) == ("g-w", 2)
        assert (place.topic, place.partition, place.metadata) == ("t", 0, "w-1")

    @pytest.mark.parametrize(
        ("call", "text"),
        [("claim", "cannot claim the worker's name.*g-w"), ("has_successor", "cannot look up the")],
    )
    def test_a_claim_that_is_not_answered_is_an_error(self, cluster, name, impatient, call, text):
        cluster.answers.append(GONE)
        with pytest.raises(UnreachableError, match=text):
            getattr(name, call)()


FATAL = KafkaException(KafkaError(KafkaError._FATAL))


class Client:
    """Owns slots until `polls` polls have passed; notes what is called."""

    def __init__(self, *, polls=0):
        self.polls = polls
        self.calls = []
        self.go_on = threading.Event()
        self.go_on.set()

    def unsubscribe(self):
        self.calls.append("unsubscribe")

    def assignment(self):
        return [0] if self.polls > 0 else []

    def memberid(self):
        return "w-1" if self.polls > 0 else ""

    def consume(self, _count, _timeout_s):
        self.calls.append("consume")
        self.polls -= 1
        return []

    def close(self):
        self.calls.append("close")
        self.go_on.wait(PATIENCE_S)


class TestLeaving:
    @pytest.mark.parametrize(
        ("polls", "ids", "calls"),
        [(2, None, ["consume"] * 3), (0, ["w-1", "w-1"], ["consume"] * 4)],
        ids=["it owns slots", "the request to leave is not out"],
    )
    def test_it_is_closed_once_nothing_is_owned_and_it_has_left(self, polls, ids, calls):
        client = Client(polls=polls)
        if ids is not None:
            client.memberid = lambda: ids.pop() if ids else ""
        leave_group(client)
        assert client.calls == ["unsubscribe", *calls, "close"]

    @pytest.mark.parametrize("member_id", ["", "w-1"])
    def test_a_fenced_client_hands_over_what_was_due_and_is_closed(self, member_id):
        client = Client()
        client.unsubscribe, client.memberid = mock.Mock(side_effect=FATAL), lambda: member_id
        leave_group(client)
        assert client.calls == ["consume", "consume", "close"]

    @pytest.mark.parametrize(
        ("limit", "seconds", "is_closed"),
        [("_UNASSIGN_S", -1.0, False), ("_LEAVE_S", 0.05, True), ("_CLOSE_S", 0.05, True)],
    )
    def test_a_client_that_never_ends_is_left_behind(self, monkeypatch, limit, seconds, is_closed):
        client = Client(polls=2 if limit == "_UNASSIGN_S" else 0)
        monkeypatch.setattr(consumer_group, limit, seconds)
        if limit == "_LEAVE_S":
            client.memberid = lambda: "w-1"
        elif limit == "_CLOSE_S":
            client.go_on.clear()
        leave_group(client)
        assert ("close" in client.calls) == is_closed
        client.go_on.set()

    def test_what_a_callback_raises_is_raised_after_closing(self):
        client = Client(polls=1)
        client.consume = mock.Mock(side_effect=OSError("not released"))
        with pytest.raises(OSError, match="not released"):
            leave_group(client)
        assert client.calls == ["unsubscribe", "close"]

    def test_a_client_that_keeps_its_place_hands_over_what_was_due_and_is_dropped(self):
        """An answer of the group that no poll has taken would keep its thread busy for good."""
        client = Client()
        held = [client]
        keep_place(held)
        give_up_at = time.monotonic() + PATIENCE_S
        while held and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert (held, client.calls) == ([], ["consume", "consume"])

    @pytest.mark.parametrize("error", [None, FATAL, RuntimeError("Consumer closed")])
    def test_what_is_dropped_is_referred_to_by_nothing_else(self, error):
        """Else it would end somewhere else, or never."""
        held = [Client()]
        if error is not None:
            held[0].consume = mock.Mock(side_effect=error)
        dropped = weakref.ref(held[0])
        consumer_group._drop(held)
        assert held == []
        assert error is not None or dropped() is None


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 5))
def test_every_message_comes_once_and_in_order(waits, batch):
    """Each message is ready when it has been asked for so many times."""
    left, unread, taken, held = list(waits), list(range(len(waits))), [], HeldMessages()

    def consume():
        read, unread[:] = unread[:batch], unread[batch:]
        return read

    def is_ready(message):
        left[message] -= 1
        return left[message] < 0

    while unread or held:
        before = len(taken)
        taken += held.take(consume, is_ready)
        assert len(taken) <= before + batch
    assert taken == list(range(len(waits)))
