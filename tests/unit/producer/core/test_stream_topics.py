"""Topics: later tables are recorded before they are published, and a changed topic is named."""

from dataclasses import replace

import pytest

from tests.unit.producer.core.conftest import PROGRESS, SLOTS, START_US, TOPIC
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core import stream_topics
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.stream_topics import StreamTopics
from tidegate.producer.errors import ProgressLost, TopicsChangedError
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import DataTopic, ProgressRecord, TableAdded
from tidegate.schemas.topics import slot_of

FIRST = DataTopic("bank.accounts", "id-1", 3, 7)
LATER = DataTopic("bank.later", "id-2", 3, 8)
IDENTITY = StreamIdentity(
    "db/changeStreams/s", "GOOGLE_STANDARD_SQL", "bank-fleet", 4, "id-0", (FIRST,)
)
BOTH = replace(IDENTITY, topics=(FIRST, LATER))
STARTED = ProgressRecord("e", "w1", IDENTITY.started(start_ns=1, end_ns=None, children=()))

AT_END = on.RootSlotRead((), is_at_end=True)


def added(topic=LATER, *, epoch="e"):
    return ProgressRecord(epoch, "w2", TableAdded(topic))


def read(*records):
    return on.RootSlotRead(records, is_at_end=True)


def record_of(*topics):
    messages = tuple(ChangeMessage(topic, b"k", b"v", b"o", b"I", bytes(8)) for topic in topics)
    return PublishableRecord(1, "tx", "0", messages)


def tables(*, version=2, identity=IDENTITY, is_open=True):
    made = StreamTopics(identity, version=version)
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


def observed(*states):
    return on.TopicsObserved(on.TopicState("bank-progress", "id-0", 4), states)


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
    made = tables(identity=BOTH, is_open=False)
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


@pytest.mark.parametrize(
    "order", ["found first", "read first", "found at the start", "two records"]
)
@pytest.mark.parametrize(
    "other",
    [
        replace(LATER, topic_partitions=4),
        replace(LATER, topic_id="id-9"),
        replace(LATER, key_schema_id=9),
    ],
    ids=["grown", "re-created", "other keys"],
)
def test_what_differs_from_the_first_record_is_final_and_both_are_named(other, order):
    both = replace(IDENTITY, topics=(FIRST, other))
    made = tables(identity=both if order == "found at the start" else IDENTITY)
    first, second = {
        "found first": (on.TableFound(other), read(added())),
        "read first": (read(added(), added()), on.TableFound(other)),
        "found at the start": (None, read(added())),
        "two records": (read(added()), read(added(other))),
    }[order]
    if first is not None:
        assert give(made, first) == [do.WatchTopic(LATER.topic)]
    text = stop_of(give(made, second))
    assert text.startswith("topic bank.later: recorded is ")
    for topic in (LATER, other):
        assert (
            f"the id {topic.topic_id}, {topic.topic_partitions} topic partitions, "
            f"the key schema {topic.key_schema_id}"
        ) in text


SLOTS_TOPIC = on.TopicState("bank-progress", "id-0", 16)
ACCOUNTS, AUDIT = on.TopicState("bank.accounts", "id-1", 6), on.TopicState("bank.audit", "id-2", 6)
AWAY = on.TopicsObserved(SLOTS_TOPIC, (ACCOUNTS, on.TopicState("bank.audit", None, 0)))


class TestWatch:
    @pytest.fixture
    def watch(self):
        topics = (DataTopic("bank.accounts", "id-1", 6, 7), DataTopic("bank.audit", "id-2", 6, 8))
        return StreamTopics(replace(IDENTITY, slots=16, topics=topics), version=2)

    @pytest.mark.parametrize(
        ("progress", "data", "texts"),
        [
            ({}, {"topic_partitions": 8}, ["topic bank.accounts had 6 topic partitions, it has 8"]),
            ({}, {"topic_id": "id-9"}, ["topic bank.accounts was re-created: its id was id-1, it"]),
            ({"topic_partitions": 17}, {}, ["topic bank-progress had 16 topic partitions, it has"]),
            ({"topic_id": "id-9"}, {}, ["topic bank-progress was re-created: its id was id-0, it"]),
            ({"topic_id": "id-9"}, {"topic_id": "id-9"}, ["bank-progress", "bank.accounts"]),
        ],
        ids=["grown", "re-created", "more slots", "other progress topic", "all together"],
    )
    def test_a_change_is_certain_at_once(self, watch, progress, data, texts):
        def observed(progress, data):
            states = (replace(ACCOUNTS, **data), AUDIT)
            return watch.changes(
                on.TopicsObserved(replace(SLOTS_TOPIC, **progress), states), now_us=0
            )

        assert observed({}, {}) is None
        error = observed(progress, data)
        assert all(text in str(error) for text in texts)
        assert "docs/how-to/reset.md" in error.hint
        assert error.exit_code == 2

    @pytest.mark.parametrize("comes_back", [False, True])
    def test_a_topic_that_stays_away_was_deleted(self, watch, comes_back):
        """A young broker may not know it yet."""
        assert watch.changes(AWAY, now_us=5) is None
        assert watch.changes(AWAY, now_us=4 + PATIENCE_US) is None
        if comes_back:
            watch.changes(on.TopicsObserved(SLOTS_TOPIC, (ACCOUNTS, AUDIT)), now_us=4 + PATIENCE_US)
        error = watch.changes(AWAY, now_us=5 + PATIENCE_US)
        if comes_back:
            assert error is None
        else:
            assert "topic bank.audit was deleted (its id was id-2)" in str(error)


PATIENCE_US = stream_topics._MISSING_PATIENCE_US


class TestWorker:
    def see(self, bench, topic_id, count):
        state = on.TopicState(TOPIC, topic_id, count)
        return bench.give(on.TopicsObserved(on.TopicState(PROGRESS, "pid", SLOTS), (state,)))

    def recreate(self, log, topic, count):
        log.broker.delete_topic(topic)
        log.broker.create_topic(topic, count)

    def test_a_topic_that_grew_stops_it(self, opened):
        assert self.see(opened, "tid", 1) == []
        self.see(opened, "tid", 2)
        assert isinstance(opened.error, TopicsChangedError)
        assert f"topic {TOPIC} had 1 topic partitions, it has 2" in str(opened.error)

    @pytest.mark.parametrize("token", ["a", "b"])
    def test_a_slot_that_has_not_written_goes_by_the_others_of_its_worker(self, bench, log, token):
        """A topic that was re-created takes no commit."""
        assert slot_of("a", SLOTS) != slot_of("b", SLOTS)
        bench.open_stream("a", "b")
        for at_us in (10, 20):
            bench.returns("a", bench.change(START_US + at_us))
            bench.later()
        committed = bench.worker.counters.counts["committed"]
        self.recreate(log, TOPIC, 1)
        bench.returns(token, bench.change(START_US + 30))
        bench.later()
        assert isinstance(bench.stopped[0].error, TopicsChangedError)
        assert bench.worker.counters.counts["committed"] == committed
        log.broker.settle()
        assert not log.data

    def test_a_progress_topic_that_was_re_created_takes_no_commit(self, opened, log):
        opened.later()
        committed = opened.worker.counters.counts["committed"]
        self.recreate(log, PROGRESS, SLOTS)
        opened.returns("a", opened.change(START_US + 10))
        opened.now_us += 1_000_000
        opened.give(on.Ticked())
        assert isinstance(opened.stopped[0].error, ProgressLost)
        assert opened.worker.counters.counts["committed"] == committed
        assert not log.data

    def test_a_missing_right_ends_it_and_names_the_resource(self, opened):
        assert opened.give(on.ReadInterrupted("topic bank-progress", "timed out")) == []
        opened.give(on.AccessDenied("group bank-fleet", "not authorized"))
        assert isinstance(opened.error, ConfigError)
        assert "access to group bank-fleet: not authorized" in str(opened.error)
        assert opened.error.exit_code == 2
