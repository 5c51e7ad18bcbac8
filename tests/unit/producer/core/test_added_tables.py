"""Later tables: recorded unless another worker has done it, believed only once they are read."""

from dataclasses import replace

import pytest

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.added_tables import AddedTables
from tidegate.producer.core.heartbeat import HeartbeatLimits
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.schemas.progress import DataTopic, ProgressRecord, TableAdded
from tidegate.schemas.topics import slot_of

SLOTS = 4
START_US = 1_700_000_000_000_000
FIRST = DataTopic("bank.accounts", "id-1", 3, 7)
LATER = DataTopic("bank.later", "id-2", 3, 8)
IDENTITY = StreamIdentity(
    "db/changeStreams/s", "GOOGLE_STANDARD_SQL", "bank-fleet", 4, "id-0", (FIRST,)
)
STARTED = ProgressRecord(
    "e", "w1", IDENTITY.started(start_ns=1, end_ns=None, children=())
)  # fmt: skip
AT_END = on.RootSlotRead((), is_at_end=True)


def added(topic=LATER, *, epoch="e"):
    return ProgressRecord(epoch, "w2", TableAdded(topic))


def read(*records):
    return on.RootSlotRead(records, is_at_end=True)


def record_of(*topics):
    messages = tuple(ChangeMessage(topic, b"k", b"v", b"o", b"I", bytes(8)) for topic in topics)
    return PublishableRecord(1, "tx", "0", messages)


def tables(*, version=2, identity=IDENTITY, is_open=True):
    made = AddedTables(identity, version=version)
    if is_open:
        assert made.open(STARTED) == []
    return made


def give(made, event):
    return made.handle(event, now_us=0)


def stop_of(effects):
    (stop,) = effects
    assert isinstance(stop, do.Stop)
    assert stop.error.exit_code == 2
    return str(stop.error)


def test_the_streams_first_tables_wait_for_nothing():
    made = tables()
    assert made.waited_for([record_of(FIRST.topic)]) == set()
    assert made.due([FIRST.topic]) == []


def test_a_later_table_waits_until_its_record_is_read():
    made = tables()
    assert give(made, on.TableFound(LATER)) == [do.WatchTopic(LATER.topic)]
    records = [record_of(FIRST.topic), record_of(LATER.topic)]
    assert made.waited_for(records) == {LATER.topic}

    assert give(made, read(added())) == []
    assert made.waited_for(records) == set()


def test_its_record_is_due_once_the_slot_was_read_to_its_end_and_until_it_is_committed():
    made = tables()
    give(made, on.TableFound(LATER))
    assert made.due([LATER.topic]) == []
    give(made, AT_END)
    assert made.due([LATER.topic]) == made.due([LATER.topic]) == [TableAdded(LATER)]
    assert made.due([FIRST.topic]) == []

    made.confirm([TableAdded(LATER)])
    assert made.due([LATER.topic]) == []
    assert made.waited_for([record_of(LATER.topic)]), "it is committed, and not read yet"


def test_a_table_that_was_there_at_the_start_and_not_when_the_stream_began_is_a_later_one():
    made = tables(identity=replace(IDENTITY, topics=(FIRST, LATER)), is_open=False)
    assert made.waited_for([record_of(LATER.topic)]) == set(), "there is no stream yet"
    made.open(STARTED)
    assert made.waited_for([record_of(LATER.topic)]) == {LATER.topic}


def test_what_was_read_before_the_epoch_is_known_counts_afterwards():
    made = tables(is_open=False)
    assert give(made, read(added(), added(replace(LATER, topic="bank.x"), epoch="other"))) == []
    assert made.open(STARTED) == [do.WatchTopic(LATER.topic)]
    assert give(made, on.TableFound(LATER)) == []
    assert made.due([LATER.topic, "bank.x"]) == []


def test_a_worker_that_writes_version_1_records_nothing_and_checks_all_the_same():
    made = tables(version=1)
    give(made, AT_END)
    give(made, on.TableFound(LATER))
    assert made.waited_for([record_of(LATER.topic)]) == set()
    assert made.due([LATER.topic]) == []
    assert "key schema 9" in stop_of(give(made, read(added(replace(LATER, key_schema_id=9)))))


def test_a_worker_that_writes_version_1_waits_for_what_others_may_have_recorded():
    made = tables(version=1, identity=replace(IDENTITY, topics=(FIRST, LATER)))
    records = [record_of(FIRST.topic), record_of(LATER.topic)]
    assert made.waited_for(records) == {LATER.topic}
    give(made, on.RootSlotRead((), is_at_end=False))
    assert made.waited_for(records) == {LATER.topic}
    assert made.due([LATER.topic]) == []
    grown = added(replace(LATER, topic_partitions=2))
    assert "2 topic partitions" in stop_of(give(made, read(grown)))


@pytest.mark.parametrize(
    "other",
    [
        replace(LATER, topic_partitions=4),
        replace(LATER, topic_id="id-9"),
        replace(LATER, key_schema_id=9),
    ],
    ids=["grown", "re-created", "other keys"],
)
class TestDifferences:
    """What differs from the first record is final, of whatever worker; the error names both."""

    def test_found_before_it_is_read(self, other):
        made = tables()
        give(made, on.TableFound(other))
        self.names_both(give(made, read(added())), LATER, other)

    def test_read_before_it_is_found(self, other):
        made = tables()
        give(made, read(added()))
        self.names_both(give(made, on.TableFound(other)), LATER, other)

    def test_found_at_the_start(self, other):
        made = tables(identity=replace(IDENTITY, topics=(FIRST, other)))
        self.names_both(give(made, read(added())), LATER, other)

    def test_two_records(self, other):
        made = tables()
        first, second = give(made, read(added(), added(other)))
        assert first == do.WatchTopic(LATER.topic)
        self.names_both([second], LATER, other)

    def test_the_same_record_twice_is_no_difference(self, other):
        made = tables()
        assert give(made, read(added(other), added(other))) == [do.WatchTopic(LATER.topic)]

    @staticmethod
    def names_both(effects, recorded, now):
        text = stop_of(effects)
        assert text.startswith("topic bank.later: recorded is ")
        for topic in (recorded, now):
            assert (
                f"the id {topic.topic_id}, {topic.topic_partitions} topic partitions, "
                f"the key schema {topic.key_schema_id}"
            ) in text


def observed(*states):
    return on.TopicsObserved(on.TopicState("bank-progress", "id-0", 4), states)


@pytest.mark.parametrize("event", [on.TableFound(LATER), read(added())], ids=["found", "read"])
def test_a_later_topic_that_grows_stops_the_worker(event):
    made = tables()
    assert give(made, event) == [do.WatchTopic(LATER.topic)]
    assert give(made, observed(on.TopicState(LATER.topic, "id-2", 3))) == []
    text = stop_of(give(made, observed(on.TopicState(LATER.topic, "id-2", 4))))
    assert text.startswith("topic bank.later had 3 topic partitions, it has 4. ")


def test_a_table_of_the_beginning_that_was_dropped_before_the_start_is_watched():
    made = tables(identity=replace(IDENTITY, topics=()), is_open=False)
    assert made.open(STARTED) == [do.WatchTopic(FIRST.topic)]
    text = stop_of(give(made, observed(on.TopicState(FIRST.topic, "id-9", 3))))
    assert "re-created" in text


class TestInAWorker:
    """A later table's topic is agreed on through the root's slot, whatever worker owns that."""

    def with_news(self, bench, log):
        log.broker.create_topic("bank.later", 1)
        bench.open_stream("a")
        bench.give(on.TableFound(LATER))
        bench.returns("a", bench.change(START_US + 10, topic="bank.later"))

    def published(self, log):
        return len(log.broker.read("bank.later"))

    def test_nothing_is_published_before_the_record_is_read_back(self, bench, log):
        self.with_news(bench, log)
        bench.later()
        assert bench.bodies(TableAdded) == [], "the slot was not read to its end"
        bench.read_root_slot()
        bench.later()
        assert bench.bodies(TableAdded) == [TableAdded(LATER)]
        assert self.published(log) == 0
        bench.read_root_slot()
        bench.later()
        assert self.published(log) == 1
        assert do.WatchTopic("bank.later") in bench.effects
        bench.later()
        assert len(bench.bodies(TableAdded)) == 1

    def test_another_worker_takes_the_record_that_it_finds(self, bench, make_bench, log):
        self.with_news(bench, log)
        bench.read_root_slot()
        bench.later()
        heir = make_bench(name="w2")
        heir.own(*range(SLOTS))
        heir.give(on.TableFound(LATER))
        heir.returns("a", heir.change(START_US + 10, topic="bank.later"))
        heir.read_root_slot()
        heir.later()
        assert self.published(log) == 1
        assert len(heir.bodies(TableAdded)) == 1

    def test_a_number_that_differs_stops_it_before_it_publishes(self, bench, make_bench, log):
        self.with_news(bench, log)
        bench.read_root_slot()
        bench.later()
        heir = make_bench(name="w2")
        heir.own(*range(SLOTS))
        heir.give(on.TableFound(replace(LATER, topic_partitions=2)))
        heir.returns("a", heir.change(START_US + 10, topic="bank.later"))
        heir.read_root_slot()
        heir.later()
        (stop,) = heir.stopped
        assert "3 topic partitions" in str(stop.error)
        assert "2 topic partitions" in str(stop.error)
        assert self.published(log) == 0

    def test_a_revoked_slot_does_not_wait_for_it(self, bench, log):
        self.with_news(bench, log)
        bench.later()
        slot = slot_of("a", SLOTS)
        effects = bench.give(on.SlotsRevoked((slot,)))

        assert do.ReleaseSlots((slot,)) in effects
        assert self.published(log) == 0

    def test_a_worker_of_version_1_publishes_at_once(self, make_bench, log):
        bench = make_bench(limits=WorkerLimits(heartbeats=HeartbeatLimits(version=1)))
        self.with_news(bench, log)
        bench.read_root_slot()
        bench.later()

        assert self.published(log) == 1
        assert bench.bodies(TableAdded) == []
