"""The initial query runs until its end is proved; then the stream is opened, once, as recorded."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.unit.producer.core.conftest import PROGRESS, SLOTS, START_US, TOPIC, Bench, parked_change
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core import stream_start_search
from tidegate.producer.core.effects import FindStreamStart
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.stream_identity import StreamIdentity, require_settings
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.stream_start_search import StreamStartSearch
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.errors import InitialQueryChange, QueryInterrupted, StreamChangedError
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
)
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    StreamStarted,
    TimestampForm,
)
from tidegate.schemas.topics import ROOT_TOKEN, slot_of


@pytest.fixture
def opening(bench):
    """Return the opening of a worker whose initial query runs."""
    bench.own(*range(SLOTS))
    return bench.worker._opening


@pytest.mark.rule("spanner-initial-token")
def test_an_end_without_children_opens_nothing(bench, opening):
    assert bench.queries[ROOT_TOKEN].start_ns == START_US * 1000
    bench.ends(ROOT_TOKEN)
    bench.later()
    assert bench.bodies(StreamStarted) == []
    assert bench.worker.counters.counts["unproven_finish"] == 1
    query = bench.queries[ROOT_TOKEN]
    bench.fails(ROOT_TOKEN, QueryInterrupted("gone"))
    assert ROOT_TOKEN not in bench.queries
    bench.later()
    assert bench.queries[ROOT_TOKEN].query_id > query.query_id


def test_a_lost_slot_stops_it_and_what_it_held_is_released_once(bench, opening):
    bench.returns(ROOT_TOKEN, bench.heartbeat(START_US + 10))
    bench.returns(ROOT_TOKEN, bench.children("a", start_us=START_US))
    bench.give(on.SlotsLost((0,)))
    assert opening.root is None
    assert ROOT_TOKEN not in bench.queries
    released = [one for one in bench.effects if isinstance(one, do.ReleaseBudget)]
    assert released == [do.ReleaseBudget(((ROOT_TOKEN, 100),))] * 2


AT_US = START_US + 10
CHANGE = Bench.change(AT_US)
PARKED = PublishableRecord(AT_US, "tx", "1", (), (parked_change(b"o", topic="p.t"),))


@pytest.mark.rule("spanner-initial-changes")
@pytest.mark.parametrize(
    "item", [CHANGE, PARKED, PartitionEventRecord(AT_US * 1000, "1", ("a",), ("b",))],
    ids=["a change", "a parked change", "a move"],
)  # fmt: skip
def test_what_no_stream_partition_would_return_again_is_an_error(bench, opening, item):
    """Its time is before their start."""
    bench.returns(ROOT_TOKEN, item, bench.children("a", start_us=START_US + 20))
    (stopped,) = bench.stopped
    assert isinstance(stopped.error, InitialQueryChange)
    assert stopped.error.fields["commit_timestamp_us"] == AT_US
    assert stopped.error.exit_code == 2
    assert bench.bodies(StreamStarted) == []


def test_a_stream_that_begins_after_such_a_change_is_opened(bench, opening, log):
    bench.returns(ROOT_TOKEN, CHANGE, bench.children("a", start_us=START_US + 20))
    assert "setting start" in bench.stopped[0].error.hint
    assert log.data == []
    later = bench.successor(start_us=AT_US + 1)
    assert later.queries[ROOT_TOKEN].start_ns == (AT_US + 1) * 1000
    later.returns(ROOT_TOKEN, later.children("a", start_us=AT_US + 1))
    later.ends(ROOT_TOKEN)
    later.read()
    (started,) = later.bodies(StreamStarted)
    assert [child.token for child in started.children] == ["a"]
    assert later.worker._opening.root is None


@pytest.mark.rule("spanner-initial-changes")
@pytest.mark.parametrize("end_ns", [None, (START_US + 5) * 1000])
def test_what_moves_other_stream_partitions_does_not_move_the_start(end_ns):
    """A later attempt that began elsewhere would have stream partitions of a later start."""
    filtered = PublishableRecord(AT_US, "tx", "1", (), filtered=1)
    others = [HeartbeatRecord(AT_US * 1000), filtered, PartitionEndRecord(AT_US * 1000, "1")]
    child = ChildPartition("a", (), START_US * 1000)
    root = StreamPartition(ChildPartition(ROOT_TOKEN, (), START_US * 1000))
    assert root.start_query(1) == START_US * 1000
    assert not root.add_items([*others], 1, end_ns=end_ns)
    root.fail_query(0)
    assert root.start_query(2) == START_US * 1000
    named = ChildPartitionsRecord(START_US * 1000, "0", (child,))
    assert not root.add_items([named, *others], 1, end_ns=end_ns)
    assert root.state is PartitionState.RUNNING
    assert root.end_query(0)
    assert root.publication().finish == (START_US * 1000, (child,))


@pytest.mark.rule("spanner-equal-queries")
def test_the_recorded_end_holds_for_a_worker_with_another_setting(make_bench):
    first = make_bench(name="w1", end_ns=(START_US + 100) * 1000)
    first.open_stream("a")
    first.later()
    (started,) = first.bodies(StreamStarted)
    heir = first.successor(end_ns=(START_US + 900) * 1000)
    assert started.end_ns == (START_US + 100) * 1000
    assert heir.queries["a"].end_ns is None, "Spanner is not asked for the end"
    heir.returns("a", heir.heartbeat(START_US + 101))
    heir.later()
    (marker,) = heir.bodies(PartitionFinished)
    assert marker.end_ns == started.end_ns


def test_only_a_slot_that_had_an_owner_starts_a_search_that_decides():
    """The record may stand behind what the first search had read."""
    new, known = (SimpleNamespace(proves_stream_start=proves) for proves in (False, True))
    patience_us, search = stream_start_search._PATIENCE_US, StreamStartSearch()
    assert search.begin() == [FindStreamStart(1)]
    assert search.begin() == []
    assert search.poll([new], now_us=0) == []
    assert search.poll([new, known], now_us=10 * patience_us) == []
    assert search.poll([new], now_us=11 * patience_us - 1) == []
    assert not search.is_decided_by(1)
    assert search.poll([new], now_us=11 * patience_us) == [FindStreamStart(2)]
    assert search.is_decided_by(2)
    assert not search.is_decided_by(1)
    assert search.poll([known], now_us=20 * patience_us) == []


DATA_TOPIC = DataTopic("bank.accounts", "id-1", 3, 7)
IDENTITY = StreamIdentity(
    stream="db/changeStreams/s",
    dialect="GOOGLE_STANDARD_SQL",
    group="bank-fleet",
    slots=16,
    progress_topic_id="id-0",
    topics=(DATA_TOPIC,),
    filters=("exclude_insert=true",),
)
RECORDED = IDENTITY.started(start_ns=5, end_ns=9, children=(ChildPartition("a", (), 5),))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"stream": "other"}, "stream: recorded 'db/changeStreams/s', now 'other'"),
        ({"dialect": "POSTGRESQL"}, "dialect: recorded 'GOOGLE_STANDARD_SQL', now 'POSTGRESQL'"),
        ({"group": "x", "slots": 8}, "group: recorded 'bank-fleet', now 'x'; slots: .* 16, now 8"),
        ({"progress_topic_id": "id-9"}, "progress_topic_id: recorded 'id-0', now 'id-9'"),
        *[
            ({"topics": (replace(DATA_TOPIC, **topic),)}, r"topic: recorded .*bank\.accounts")
            for topic in ({"topic_id": "id-2"}, {"topic_partitions": 6}, {"key_schema_id": 8})
        ],
        ({"filters": ()}, None),
        ({"topics": (DATA_TOPIC, DataTopic("bank.new", "id-3", 3, 9))}, None),
        ({"topics": ()}, None),
        ({}, None),
    ],
)
def test_a_difference_of_the_stream_is_named_with_both_values(changed, text):
    now = replace(IDENTITY, **changed)
    if text is None:
        now.require(RECORDED)
    else:
        with pytest.raises(StreamChangedError, match=text):
            now.require(RECORDED)


@pytest.mark.parametrize(
    ("recorded", "now"),
    [(TimestampForm.MICROS, TimestampForm.STRING), (TimestampForm.STRING, TimestampForm.MICROS)],
)
def test_another_form_of_timestamps_is_named_as_the_setting_has_it(recorded, now):
    text = f"timestamps: recorded '{recorded.lower()}', now '{now.lower()}'"
    with pytest.raises(StreamChangedError, match=text):
        replace(IDENTITY, timestamps=now).require(replace(RECORDED, timestamps=recorded))
    with pytest.raises(StreamChangedError, match=text):
        require_settings(
            replace(RECORDED, timestamps=recorded), stream=IDENTITY.stream, timestamps=now
        )
    replace(IDENTITY, timestamps=now).require(
        replace(IDENTITY, timestamps=now).started(start_ns=5, end_ns=None, children=())
    )


def filtered(*filters):
    return replace(IDENTITY, filters=filters)


TEMPLATE = "producer.topic_template={prefix}-{table}"


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ("producer.tables=a", None, "filter: recorded tables=a, now without it"),
        (None, "producer.tables=a", "filter: recorded without tables=a, now with it"),
        (
            TEMPLATE,
            None,
            r"stream: topic_template: recorded '{prefix}-{table}', now '{prefix}\.{table}'\. Use",
        ),
        (None, TEMPLATE, r"topic_template: recorded '{prefix}\.{table}', now '{prefix}-{table}'"),
        ("producer.tombstones=true", None, "tombstones: recorded 'true', now 'false'"),
        ("producer.envelope=flat", None, "envelope: recorded 'flat', now 'tidegate'"),
        (None, "producer.envelope=flat", "envelope: recorded 'tidegate', now 'flat'"),
        ("producer.envelope=later", None, "envelope: recorded 'later', now 'tidegate'"),
        ("producer.value_format=json", None, "value_format: recorded 'json', now 'avro'"),
        (None, "producer.value_format=json", "value_format: recorded 'avro', now 'json'"),
        ("producer.key_format=json", None, "key_format: recorded 'json', now 'avro'"),
    ],
)
def test_another_filter_is_named(before, now, text):
    before, now = ((one,) if one else () for one in (before, now))
    recorded = filtered(*before).started(start_ns=5, end_ns=None, children=())
    with pytest.raises(StreamChangedError, match=text):
        filtered(*now).require(recorded)
    with pytest.raises(StreamChangedError, match=text):
        require_settings(
            recorded, stream=IDENTITY.stream, timestamps=IDENTITY.timestamps, filters=now
        )


def test_what_the_change_stream_leaves_out_may_be_altered():
    recorded = filtered("exclude_insert=true", "producer.tables=a")
    started = recorded.started(start_ns=5, end_ns=None, children=())
    filtered("producer.tables=a", "exclude_delete=true").require(started)


ROOT_SLOT = slot_of(ROOT_TOKEN, SLOTS)
STEP_US = 100_000
STEPS = 40
# What an opener calls, with two children; the last two are the fence and the commit.
CALLS = (
    "begin", "publish_progress", "publish_progress", "publish_progress", "await_delivery",
    "publish_progress", "publish_progress", "await_delivery", "send_offsets", "commit",
)  # fmt: skip


class InterruptedPublisher:
    """Notes the calls of a publisher, and lets `interrupt` run before one of them."""

    def __init__(self, publisher):
        self.publisher = publisher
        self.calls = []
        self.interrupt_at = None
        self.interrupt = None

    def __getattr__(self, name):
        found = getattr(self.publisher, name)
        if name not in CALLS:
            return found

        def call(*args):
            self.calls.append(name)
            if len(self.calls) - 1 == self.interrupt_at:
                self.interrupt()
            return found(*args)

        return call


class Reader:
    """A query: the initial one names two children and ends, others wait for the test."""

    def __init__(self, program, query, deliver):
        self.program, self.query, self.deliver = program, query, deliver

    def start(self):
        token, query_id = self.query.token, self.query.query_id
        if token != ROOT_TOKEN:
            self.program.readers[token] = self
        else:
            self.program.initial_queries += 1
            children = Bench.children("a", "b", start_us=self.query.start_ns // 1000)
            self.deliver(on.RecordsRead(token, query_id, [children], 100))
            self.deliver(on.QueryEnded(token, query_id))

    def stop(self):
        self.program.readers.pop(self.query.token, None)


class NoThreads:
    """Nothing else runs, so there is nothing to wait for."""

    def condition(self):
        condition = threading.Condition()
        condition.wait_for = lambda predicate, timeout=None: predicate()
        return condition


class Program:
    """One worker's program."""

    def __init__(self, broker, clock, name):
        self.readers = {}
        self.initial_queries = 0
        self.publisher = InterruptedPublisher(
            MemoryPublisher(broker, transactional_id=name, progress_topic=PROGRESS)
        )
        progress_id, data_id = (broker.describe_topic(one).topic_id for one in (PROGRESS, TOPIC))
        identity = StreamIdentity(
            "db/changeStreams/s", "GOOGLE_STANDARD_SQL", "g", SLOTS, progress_id,
            (DataTopic(TOPIC, data_id, 1, 1),),
        )  # fmt: skip
        self.worker = Worker(name=name, epoch=f"epoch-of-{name}", identity=identity, start_ns=None)
        self.loop = FleetWorker(
            self.worker,
            publisher=self.publisher,
            open_reader=lambda query, deliver: Reader(self, query, deliver),
            open_stream_start=lambda: MemoryStreamStartFinder(
                broker, topic=PROGRESS, root_slot=ROOT_SLOT
            ),
            release_budget=lambda _size: None,
            clock=clock,
            threads=NoThreads(),
            observe=lambda _event, worker: worker.check_invariants(),
        )
        self.loop.attach(
            MemoryMembership(
                broker, worker=name, client_id=f"{name}-1", topic=PROGRESS,
                listener=self.loop, clock=clock,
            )
        )  # fmt: skip
        self.loop.start()


class Race:
    """Both programs on one broker."""

    def __init__(self):
        self.broker = MemoryBroker({TOPIC: 1, PROGRESS: SLOTS}, group=Group(SLOTS))
        self.clock = ManualClock()
        self.first = Program(self.broker, self.clock, "w1")
        self.second = Program(self.broker, self.clock, "w2")

    def go_on(self, *programs):
        """Let programs do their rounds in turn, for some seconds."""
        for _ in range(STEPS):
            self.clock.advance(STEP_US)
            for program in programs:
                assert program.loop.step(), program.loop.error

    def bodies(self, kind):
        found = [entry.value for entry in self.broker.read(PROGRESS)]
        return [record for record in found if isinstance(getattr(record, "body", None), kind)]


@pytest.mark.parametrize("is_timed_out", [False, True], ids=["", "timed out"])
@pytest.mark.parametrize("at", range(len(CALLS)), ids=lambda at: f"{at}-{CALLS[at]}")
def test_one_opens_the_stream_and_the_other_takes_it_over(at, is_timed_out):
    """Two workers find no `StreamStarted`, and both begin to open the stream.

    The first is removed from the group at each of its calls to the broker in turn, and goes on
    when the second has done all that it can do by then.
    """
    race = Race()
    first, second, broker = race.first, race.second, race.broker

    def lose_the_slots():
        broker.group.expire("w1")
        if is_timed_out:
            broker.time_out("w1")
        # A new owner waits here until the fence before it has an outcome.
        if broker.offsets_are_stable(ROOT_SLOT):
            race.go_on(second)

    first.publisher.interrupt_at, first.publisher.interrupt = at, lose_the_slots
    race.go_on(first)
    assert first.publisher.calls[: at + 1] == list(CALLS[: at + 1])
    race.go_on(first, second)
    # Once the group has accepted the fence, losing the slot does not change the outcome.
    is_first = CALLS[at] == "commit" and not is_timed_out
    winner, loser = (first, second) if is_first else (second, first)
    (started,) = race.bodies(StreamStarted)
    assert started.epoch == f"epoch-of-{winner.worker.name}"
    assert (first.initial_queries, second.initial_queries) == (1, 0 if is_first else 1)
    assert loser.worker.stream == winner.worker.stream == started.body
    assert loser.worker.epoch == winner.worker.epoch == started.epoch
    announced = race.bodies(PartitionAnnounced)
    assert sorted(one.body.child.token for one in announced) == ["a", "b"]
    assert {one.epoch for one in announced} == {started.epoch}
    # Both work for the one epoch, each stream partition in one of them.
    assert {len(one.worker.slots) for one in (first, second)} == {SLOTS // 2}
    assert sorted([*first.readers, *second.readers]) == ["a", "b"]
    for reader in [*first.readers.values(), *second.readers.values()]:
        query = reader.query
        change = Bench.change(query.start_ns // 1000 + 10)
        reader.deliver(on.RecordsRead(query.token, query.query_id, [change], 100))
    race.go_on(first, second)
    assert len(broker.read(TOPIC)) == 2
