"""What is read beside the group: the root's slot, all slots, and descriptions; needs no broker."""

import struct
from concurrent.futures import Future
from types import SimpleNamespace
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException
from structlog.testing import capture_logs

from tidegate.producer.core import events as on
from tidegate.producer.errors import ProgressLost
from tidegate.producer.kafka import admin as kafka_admin
from tidegate.producer.kafka import monitors, slots
from tidegate.producer.kafka.monitors import GroupMonitor, TopicMonitor
from tidegate.producer.kafka.progress_follower import ProgressFollower
from tidegate.producer.kafka.root_slot import RootSlotReader
from tidegate.producer.kafka.slots import SlotEnds
from tidegate.program import kafka_clients
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import (
    ChildPartition,
    ControlState,
    DataTopic,
    PartitionAnnounced,
    ProgressRecord,
    SlotPaused,
    SlotProgress,
    StreamControl,
    StreamStarted,
    TableAdded,
    TokenSnapshot,
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
INTERRUPTED = on.ReadInterrupted("slot 0 of topic g-progress", "broker down")


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
    key = frame(1, encode_key(body))
    framed = value or frame(2, encode_record(ProgressRecord("e", "w", body)))
    at = None if offset is None else lambda: offset
    return SimpleNamespace(error=lambda: None, key=lambda: key, value=lambda: framed, offset=at)


def failed(error, slot=None, offset=None):
    """Return an event instead of a message."""
    return SimpleNamespace(error=lambda: error, partition=lambda: slot, offset=lambda: offset)


@pytest.fixture
def batches():
    """What consumers return, poll by poll."""
    return []


@pytest.fixture
def made(monkeypatch, batches):
    """The consumers that a test's readers have made."""
    found = []

    def make(config):
        found.append(Consumer(config))
        found[-1].batches = batches
        return found[-1]

    monkeypatch.setattr(kafka_clients, "Consumer", make)
    return found


@pytest.fixture
def reader(made):
    return RootSlotReader(
        bootstrap_servers="x", group="g", topic="g-progress",
        decoder=ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[2]),
    )  # fmt: skip


REMOVED = SimpleNamespace(
    error=lambda: None, key=lambda: frame(1, encode_key(ANNOUNCED)), value=lambda: None
)


class TestRootSlot:
    def test_one_client_serves_the_search_and_the_tables(self, reader, made, batches):
        batches += [[message(ANNOUNCED), REMOVED, message(STARTED)], [message(ADDED)]]
        assert made == []
        assert reader.poll() == (FOUND, False)
        assert reader.poll_records() == on.RootSlotRead((TABLE,), is_at_end=False, begin=0, end=4)
        (consumer,) = made
        assert consumer.assigned == [("g-progress", 0, 3)]
        assert consumer.config["group.id"] == "g-root"
        reader.close()
        reader.close()
        assert consumer.is_closed

    def test_what_the_search_reads_beside_the_record_is_not_lost(self, reader, batches):
        first, second = split(STARTED, items_max=1)
        batches += [
            [message(ADDED), message(first)],
            [message(second), message(ADDED), failed(END)],
        ]
        assert reader.poll() == (None, False), "its chunks may come in several polls"
        assert reader.poll() == (FOUND, True)
        read = on.RootSlotRead((TABLE, TABLE), is_at_end=True, begin=0, end=4)
        assert reader.poll_records() == read
        assert reader.poll_records() is None

    def test_a_missing_right_ends_the_search_and_is_reported_by_a_poll(self, reader, batches):
        batches += [[failed(DENIED)]] * 2
        with pytest.raises(ConfigError, match="cannot read the progress topic: Kafka denies"):
            reader.poll()
        assert reader.poll_records() == on.AccessDenied("topic g-progress", "not authorized")

    @pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION])
    def test_an_offset_that_is_gone_is_reported_once(self, reader, batches, code):
        """It never begins again."""
        lost = failed(KafkaError(code, "offset 7 is gone"))
        batches += [[message(ADDED)], [lost], [message(ADDED, offset=0)]]
        reader.poll_records()
        lost = reader.poll_records()
        assert isinstance(lost, on.ProgressReadLost)
        assert isinstance(lost.error, ProgressLost)
        assert lost.error.fields == {"slot": 0, "position": 1, "reason": "offset 7 is gone"}
        assert reader.poll_records() is None
        assert batches, "nothing is read any more"

    def test_the_search_ends_with_the_error(self, reader, batches):
        batches.append([failed(KafkaError(KafkaError._AUTO_OFFSET_RESET, "offset 7 is gone"))])
        with pytest.raises(ProgressLost, match="is not in its log"):
            reader.poll()

    def test_a_step_backwards_is_believed_by_nobody(self, reader, batches):
        drain = WorkerDrain("w", "me", 7)
        batches += [[message(ADDED), message(drain), failed(END)], [message(drain, offset=1)]]
        reader.poll_records()
        lost = reader.poll_records()
        assert isinstance(lost, on.ProgressReadLost)
        assert (lost.error.fields["was"], lost.error.fields["now"]) == (2, 1)

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

    def test_nothing_but_tables_and_commands_is_decoded(self, reader, batches):
        undecodable = message(ANNOUNCED, value=b"\0\0\0\0\1garbage")
        bare = SimpleNamespace(error=lambda: None, key=lambda: None, value=lambda: b"x")
        bodies = (StreamControl(1, ControlState.PAUSED, "me", 7), WorkerDrain("w", "me", 7))
        batches += [
            [undecodable, REMOVED, bare],
            [message(ADDED), *map(message, bodies), message(SlotPaused(0, 1))],
        ]
        reader.decode_with(ProgressDecoder(pytest.fail, own_ids=[2]))
        assert reader.poll_records() is None
        read = reader.poll_records()
        assert [record.body for record in read.records] == [ADDED, *bodies]
        assert (read.begin, read.end, read.is_at_end) == (0, 7, False)

    def test_an_error_that_lasts_before_the_first_end_is_not_swallowed(self, reader, batches):
        """Without the end no query starts: nothing else would say why the worker is idle."""
        batches += [[failed(LOST)], [failed(LOST)]]
        assert [reader.poll_records() for _ in range(2)] == [INTERRUPTED] * 2

    def test_records_wait_for_a_schema_that_is_not_known_yet(self, reader, batches):
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
        read = on.RootSlotRead((TABLE, TABLE), is_at_end=False, begin=0, end=3)
        assert reader.poll_records() == read
        assert reader.poll_records() is None
        known.add(10)
        assert reader.poll_records() == on.RootSlotRead((TABLE,), is_at_end=True, begin=3, end=4)


class Admins:
    """Stands for the class of admin clients: remembers what each was asked."""

    def __init__(self):
        self.made = 0
        self.asked = []

    def __call__(self, _config):
        self.made += 1
        return self

    def list_offsets(self, places, *, isolation_level, request_timeout):
        assert isolation_level is IsolationLevel.READ_COMMITTED
        assert request_timeout < slots._AGE_MAX_US / 1e6
        return self.describe_topics(places)

    def describe_topics(self, topics, **_):
        self.asked.append({topic: Future() for topic in topics})
        return self.asked[-1]

    def answer(self, ends=(), **states):
        """Answer the last question; a number of a KafkaError fails."""
        for asked, promise in self.asked[-1].items():
            answer = states[asked] if states else ends[asked.partition]
            if answer is None or (states and isinstance(answer, int)):
                error = KafkaError(answer or KafkaError._TRANSPORT, "refused")
                promise.set_exception(KafkaException(error))
                continue
            topic_id, count = answer if states else ("", 0)
            found = SimpleNamespace(topic_id=topic_id, partitions=[None] * count, offset=answer)
            promise.set_result(found)


@pytest.fixture
def admins(monkeypatch):
    made = Admins()
    monkeypatch.setattr(kafka_admin, "AdminClient", made)
    monkeypatch.setattr(monitors, "TopicCollection", list)
    return made


NOW_US = 10**12
ALL_INTERRUPTED = on.ReadInterrupted("all slots of topic g-progress", "broker down")


def beat(slot, offset, *, revision=1, value=None):
    tokens = (TokenSnapshot("a", 0, (), ("",), 30 + slot, number=0),)
    record = ProgressRecord("e", "w", SlotProgress(slot, revision, 0, -1, (), tokens))
    framed = value or frame(1, encode_record(record))
    return SimpleNamespace(
        error=lambda: None, value=lambda: framed, partition=lambda: slot, offset=lambda: offset
    )


class TestFollower:
    @pytest.fixture
    def follower(self, made, admins):
        return ProgressFollower(
            bootstrap_servers="x", group="g", topic="g-progress", slots=2, epoch="e",
            decoder=ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[1]),
        )  # fmt: skip

    def test_the_ends_make_what_was_read_current(self, follower, made, batches, admins):
        (consumer,) = made
        assert consumer.assigned == [("g-progress", 0, 3), ("g-progress", 1, 3)]
        assert consumer.config["group.id"] == "g-follower"
        batches += [
            [beat(0, 0), failed(END, 0, 2), beat(1, 0)],
            [failed(KafkaError(KafkaError._TRANSPORT, "broker down"))],
            [failed(END, 1, 2)],
        ]
        assert follower.poll(NOW_US) == on.FleetRead({0: 30, 1: 31}, is_current=False)
        admins.answer({0: 2, 1: 2})
        assert follower.poll(NOW_US) == ALL_INTERRUPTED
        assert not follower.has_failed
        assert follower.poll(NOW_US) == on.FleetRead({}, is_current=True)
        assert follower.poll(NOW_US) is None
        assert len(admins.asked) == 1
        follower.poll(NOW_US + 10**6)
        admins.answer({0: 2, 1: 2})
        assert follower.poll(NOW_US + 10**6) == on.FleetRead({}, is_current=True), "asked for again"
        follower.close()
        assert consumer.is_closed

    def test_a_missing_right_is_reported(self, follower, batches):
        batches.append([failed(DENIED)])
        assert follower.poll(NOW_US) == on.AccessDenied("topic g-progress", "not authorized")

    GONE = failed(KafkaError(KafkaError._AUTO_OFFSET_RESET, "gone"), 0)

    @pytest.mark.parametrize(
        ("lost", "fields"),
        [
            (GONE, {"slot": 0, "position": 6, "reason": "gone"}),
            (beat(0, 5, revision=2), {"slot": 0, "was": 6, "now": 5}),
            (beat(0, 6), None),
            (beat(0, 6, value=b"\0\0\0\0\1garbage"), None),
        ],
        ids=["out of range", "backwards", "a revision twice", "garbage"],
    )
    def test_what_contradicts_the_protocol_ends_it(self, follower, batches, lost, fields):
        batches += [[beat(0, 5), beat(1, 0), lost], [beat(1, 1, revision=2)]]
        found = follower.poll(NOW_US)
        if fields is None:
            assert (type(found), found.resource) == (on.ReadInterrupted, "topic g-progress")
        else:
            assert isinstance(found.error, ProgressLost)
            assert (type(found), found.error.fields) == (on.ProgressReadLost, fields)
        assert follower.has_failed
        assert follower.poll(NOW_US) is None
        assert batches, "nothing more is read"


class TestSlotEnds:
    @pytest.fixture
    def ends(self, admins):
        """Those of two slots, asked for at 10."""
        made = SlotEnds(kafka_admin.SharedAdmin({}), topic="p", slots=2)
        assert made.poll(10) is None
        return made

    def test_a_question_that_fails_is_asked_again_with_a_new_client(self, ends, admins):
        admins.answer({0: 1, 1: None})
        assert ends.poll(1) is None
        assert ends.poll(2) is None
        assert (admins.made, len(admins.asked)) == (2, 2)

    def test_an_answer_without_an_offset_is_no_end(self, ends, admins):
        """A broker that restarts gives one without an error: everything would seem to be read."""
        admins.answer({0: 1, 1: OFFSET_INVALID})
        assert ends.poll(11) is None
        assert ends.poll(12) is None
        assert len(admins.asked) == 2

    def test_a_client_that_does_not_answer_is_dropped(self, ends, admins):
        assert ends.poll(slots._AGE_MAX_US + 9) is None
        assert (admins.made, len(admins.asked)) == (1, 1)
        for _ in range(2):
            assert ends.poll(slots._AGE_MAX_US + 10) is None
        assert (admins.made, len(admins.asked)) == (2, 2)


INTERVAL, AGE_MAX = monitors._INTERVAL_US, monitors._AGE_MAX_US
P, A, B = ("id-0", 4), ("id-1", 2), ("id-2", 2)
STATES = [on.TopicState("p", *P), on.TopicState("a", *A), on.TopicState("b", *B)]


class TestTopicMonitor:
    @pytest.fixture
    def monitor(self, admins):
        """A worker's monitor, first polled at 0."""
        made = TopicMonitor(kafka_admin.SharedAdmin({}), progress="p", data=["a", "b"])
        assert made.poll(0) is None
        return made

    @pytest.mark.parametrize(
        ("answers", "expected"),
        [
            ({"b": B}, on.TopicsObserved(STATES[0], (STATES[1], STATES[2]))),
            (
                {"b": KafkaError.UNKNOWN_TOPIC_OR_PART},
                on.TopicsObserved(STATES[0], (STATES[1], on.TopicState("b", None, 0))),
            ),
            ({"b": KafkaError.TOPIC_AUTHORIZATION_FAILED}, on.AccessDenied("topic b", "refused")),
            ({"p": KafkaError._TRANSPORT, "b": B}, None),
        ],
        ids=["all", "unknown", "denied", "without the progress topic"],
    )
    def test_an_answer_becomes_a_description(self, monitor, admins, answers, expected):
        assert monitor.poll(INTERVAL - 1) is None
        assert not admins.asked
        monitor.poll(INTERVAL)
        assert monitor.poll(INTERVAL + 1) is None, "no answer yet"
        assert [list(asked) for asked in admins.asked] == [["p", "a", "b"]]
        admins.answer(**{"p": P, "a": A, **answers})
        assert monitor.poll(INTERVAL + 2) == expected
        assert monitor.poll(INTERVAL + 3) is None, "each answer is delivered once"

    @pytest.mark.parametrize("is_answered", [False, True], ids=["never", "late"])
    def test_a_late_answer_is_dropped_and_another_one_requested(self, monitor, admins, is_answered):
        monitor.poll(INTERVAL)
        if is_answered:
            admins.answer(p=P, a=A, b=B)
            assert monitor.poll(INTERVAL + AGE_MAX) is None
        monitor.poll(2 * INTERVAL)
        admins.answer(p=P, a=A, b=B)
        assert monitor.poll(2 * INTERVAL + 1) is not None
        assert (admins.made, len(admins.asked)) == (2, 2)

    def test_an_error_about_one_topic_leaves_it_out_and_makes_a_new_client(self, monitor, admins):
        """The others are compared all the same."""
        with capture_logs() as lines:
            for times in (1, 2):
                monitor.poll(times * INTERVAL)
                admins.answer(p=P, a=KafkaError._TRANSPORT, b=B)
                observed = on.TopicsObserved(STATES[0], (STATES[2],))
                assert monitor.poll(times * INTERVAL + 1) == observed
        monitor.poll(3 * INTERVAL)
        assert admins.made == 3
        failed = {"event": "topic description failed", "topic": "a", "reason": "refused"}
        assert lines == [{**failed, "log_level": "warning"}]


GROUP_INTERVAL = monitors._INTERVAL_US
GROUP_AGE_MAX = monitors._AGE_MAX_US
GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))
ASSIGNMENTS = {"w": frozenset({0}), "x": frozenset({1})}


def assignment(*slots):
    """Encode an assignment as a Kafka client does."""
    topics = struct.pack(">h1si", 1, b"t", len(slots)) + struct.pack(f">{len(slots)}i", *slots)
    return struct.pack(">hi", 0, 1) + topics + struct.pack(">i", 0)


def group(*, state="Stable", client_id="w-1", worker="w", error=None):
    """Return the client's answer: a group of w and x with a slot each."""
    members = [
        SimpleNamespace(id=f"{name}-{uuid4()}", client_id=client, assignment=assignment(slot))
        for name, client, slot in ((worker, client_id, 0), ("x", "x-1", 1))
    ]
    return [SimpleNamespace(state=state, members=members, error=error)]


class TestGroupMonitor:
    @pytest.fixture
    def calls(self, monkeypatch):
        """Stands for admin clients and threads; a call is answered by `answer`."""
        made = SimpleNamespace(clients=0, asked=[], outcome=None)

        def connect(_config):
            made.clients += 1
            return SimpleNamespace(list_groups=list_groups)

        def list_groups(group, timeout):
            assert (group, timeout) == ("g", kafka_admin.CALL_TIMEOUT_S)
            if isinstance(made.outcome, Exception):
                raise made.outcome
            return made.outcome

        def answer(outcome):
            made.outcome = outcome
            made.asked[-1]()

        def thread(*, target, **_):
            return SimpleNamespace(start=lambda: made.asked.append(target))

        made.answer = answer
        monkeypatch.setattr(kafka_admin, "AdminClient", connect)
        monkeypatch.setattr(monitors, "Thread", thread)
        return made

    @pytest.fixture
    def monitor(self, calls):
        """A worker's monitor, first polled at 0."""
        made = GroupMonitor(kafka_admin.SharedAdmin({}), group="g", worker="w", client_id="w-1")
        assert made.poll(0) is None
        return made

    @pytest.mark.parametrize(
        ("answered", "expected"),
        [
            (group(), on.GroupDescribed(True, True, ASSIGNMENTS)),
            (group(state="PreparingRebalance"), on.GroupDescribed(False, True, ASSIGNMENTS)),
            (group(client_id="w-younger"), on.GroupDescribed(True, False, ASSIGNMENTS)),
            (group(worker="y"), on.GroupDescribed(True, False, {"y": {0}, "x": {1}})),
            ([], None),
            (group(error=KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)), None),
            (GONE, None),
        ],
    )
    def test_an_answer_becomes_a_description(self, monitor, calls, answered, expected):
        assert monitor.poll(GROUP_INTERVAL - 1) is None
        assert calls.clients == 0
        monitor.poll(GROUP_INTERVAL)
        assert monitor.poll(GROUP_INTERVAL + 1) is None, "no answer yet"
        assert len(calls.asked) == 1
        calls.answer(answered)
        assert monitor.poll(GROUP_INTERVAL + 2) == expected
        assert monitor.poll(GROUP_INTERVAL + 3) is None, "each answer is delivered once"
        monitor.poll(2 * GROUP_INTERVAL + 2)
        calls.answer(group())
        assert monitor.poll(2 * GROUP_INTERVAL + 3) is not None
        assert calls.clients == (1 if expected or answered == [] else 2)

    @pytest.mark.parametrize("is_answered", [False, True], ids=["never", "late"])
    def test_a_late_answer_is_dropped_and_another_client_asked(self, monitor, calls, is_answered):
        monitor.poll(GROUP_INTERVAL)
        if is_answered:
            calls.answer(group())
        assert monitor.poll(GROUP_INTERVAL + GROUP_AGE_MAX) is None
        monitor.poll(2 * GROUP_INTERVAL)
        calls.answer(group())
        assert monitor.poll(2 * GROUP_INTERVAL + 1) is not None
        assert (calls.clients, len(calls.asked)) == (2, 2)

    @pytest.mark.parametrize("slots", [(), (3,), (0, 5, 70_000)])
    def test_an_assignment_is_read_as_kafka_writes_it(self, slots):
        assert monitors._assigned(assignment(*slots)) == frozenset(slots)
        assert monitors._assigned(b"") == frozenset()
