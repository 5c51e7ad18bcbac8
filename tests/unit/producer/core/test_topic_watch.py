"""Topics that changed under a running worker are named, with what they were and are."""

from __future__ import annotations

import pytest

from tidegate.producer.core import events as on
from tidegate.producer.core import topic_watch
from tidegate.producer.core.events import TopicsObserved, TopicState
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.topic_watch import TopicWatch
from tidegate.producer.errors import ProgressLost, TopicsChangedError
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import DataTopic
from tidegate.schemas.topics import slot_of

PATIENCE_US = topic_watch._PATIENCE_US
SLOTS = 4
START_US = 1_700_000_000_000_000
TOPIC, BENCH_PROGRESS = "bank.accounts", "bank-progress"
PROGRESS = TopicState("bank-progress", "id-0", 16)
ACCOUNTS = TopicState("bank.accounts", "id-1", 6)
AUDIT = TopicState("bank.audit", "id-2", 6)
IDENTITY = StreamIdentity(
    "db/changeStreams/s", "GOOGLE_STANDARD_SQL", "bank-fleet", 16, "id-0",
    (DataTopic("bank.accounts", "id-1", 6, 7), DataTopic("bank.audit", "id-2", 6, 8)),
)  # fmt: skip


@pytest.fixture
def watch():
    return TopicWatch(IDENTITY)


def test_topics_as_they_were_are_no_error(watch):
    assert watch.handle(TopicsObserved(PROGRESS, (ACCOUNTS, AUDIT)), now_us=0) is None


@pytest.mark.parametrize(
    ("observed", "error_text"),
    [
        (
            TopicsObserved(PROGRESS, (TopicState("bank.accounts", "id-1", 8), AUDIT)),
            "topic bank.accounts had 6 topic partitions, it has 8",
        ),
        (
            TopicsObserved(PROGRESS, (ACCOUNTS, TopicState("bank.audit", "id-9", 6))),
            "topic bank.audit was re-created: its id was id-2, it is id-9",
        ),
        (
            TopicsObserved(TopicState("bank-progress", "id-0", 17), (ACCOUNTS, AUDIT)),
            "topic bank-progress had 16 topic partitions, it has 17",
        ),
        (
            TopicsObserved(TopicState("bank-progress", "id-9", 16), (ACCOUNTS, AUDIT)),
            "topic bank-progress was re-created: its id was id-0, it is id-9",
        ),
    ],
    ids=["grown", "re-created", "more slots", "other progress topic"],
)
def test_a_change_is_certain_at_once(watch, observed, error_text):
    error = watch.handle(observed, now_us=0)

    assert error_text in str(error)
    assert "docs/how-to/reset.md" in error.hint
    assert error.exit_code == 2


def test_a_topic_that_stays_away_was_deleted(watch):
    gone = TopicsObserved(PROGRESS, (ACCOUNTS, TopicState("bank.audit", None, 0)))
    assert watch.handle(gone, now_us=5) is None
    assert watch.handle(gone, now_us=4 + PATIENCE_US) is None

    error = watch.handle(gone, now_us=5 + PATIENCE_US)
    assert "topic bank.audit was deleted (its id was id-2)" in str(error)


def test_a_topic_that_a_young_broker_does_not_know_yet_is_not_gone(watch):
    gone = TopicsObserved(PROGRESS, (ACCOUNTS, TopicState("bank.audit", None, 0)))
    watch.handle(gone, now_us=0)
    watch.handle(TopicsObserved(PROGRESS, (ACCOUNTS, AUDIT)), now_us=1)

    assert watch.handle(gone, now_us=PATIENCE_US) is None


def test_all_changes_are_named_together(watch):
    grown = TopicState("bank.accounts", "id-1", 8)
    other = TopicState("bank.audit", "id-9", 6)
    error = watch.handle(TopicsObserved(PROGRESS, (grown, other)), now_us=0)

    assert "bank.accounts" in str(error)
    assert "bank.audit" in str(error)


class TestWorker:
    """A worker whose topics or rights change while it runs."""

    PROGRESS_NOW = on.TopicState(BENCH_PROGRESS, "pid", SLOTS)

    def test_topics_as_they_were_let_it_go_on(self, bench):
        bench.open_stream("a")
        observed = on.TopicsObserved(self.PROGRESS_NOW, (on.TopicState(TOPIC, "tid", 1),))

        assert bench.give(observed) == []

    def test_a_topic_that_grew_stops_it(self, bench):
        bench.open_stream("a")
        bench.give(on.TopicsObserved(self.PROGRESS_NOW, (on.TopicState(TOPIC, "tid", 2),)))

        assert isinstance(bench.stopped[0].error, TopicsChangedError)
        assert f"topic {TOPIC} had 1 topic partitions, it has 2" in str(bench.stopped[0].error)

    def test_a_topic_that_was_re_created_takes_no_commit(self, bench, log):
        bench.open_stream("a")
        self._publishes_and_meets_a_new_topic(bench, log, token="a")

    def test_a_slot_that_has_not_written_goes_by_what_others_of_the_worker_have(self, bench, log):
        assert slot_of("a", SLOTS) != slot_of("b", SLOTS)
        bench.open_stream("a", "b")
        self._publishes_and_meets_a_new_topic(bench, log, token="b")

    def _publishes_and_meets_a_new_topic(self, bench, log, *, token):
        """Publish for `a`; then the topic is re-created, and a change of `token` comes."""
        for at_us in (10, 20):
            bench.returns("a", bench.change(START_US + at_us))
            bench.later()
        committed = bench.worker.counters.counts["committed"]
        log.broker.delete_topic(TOPIC)
        log.broker.create_topic(TOPIC, 1)
        bench.returns(token, bench.change(START_US + 30))
        bench.later()

        assert isinstance(bench.stopped[0].error, TopicsChangedError)
        assert bench.worker.counters.counts["committed"] == committed
        log.broker.settle()
        assert not log.data

    def test_before_its_first_publication_a_worker_learns_it_from_the_description(self, bench, log):
        """The limit: what is committed until then is in the new topic."""
        bench.open_stream("a")
        log.broker.delete_topic(TOPIC)
        log.broker.create_topic(TOPIC, 1)
        bench.returns("a", bench.change(START_US + 10))
        bench.later()
        assert (len(log.data), bench.stopped) == (1, [])
        bench.give(on.TopicsObserved(self.PROGRESS_NOW, (on.TopicState(TOPIC, "new", 1),)))
        assert isinstance(bench.stopped[0].error, TopicsChangedError)
        bench.returns("a", bench.change(START_US + 20))
        bench.later()

        assert len(log.data) == 1

    def test_a_progress_topic_that_was_re_created_takes_no_commit(self, bench, log):
        bench.open_stream("a")
        bench.later()
        committed = bench.worker.counters.counts["committed"]
        log.broker.delete_topic(BENCH_PROGRESS)
        log.broker.create_topic(BENCH_PROGRESS, SLOTS)
        bench.returns("a", bench.change(START_US + 10))
        bench.now_us += 1_000_000
        bench.give(on.Ticked())

        assert isinstance(bench.stopped[0].error, ProgressLost)
        assert bench.worker.counters.counts["committed"] == committed
        assert not log.data

    def test_a_deleted_topic_takes_no_commit_and_what_was_read_is_kept(self, bench, log):
        bench.open_stream("a")
        log.broker.delete_topic(TOPIC)
        bench.returns("a", bench.change(START_US + 10))
        bench.later()

        assert not bench.stopped
        assert bench.worker.counters.counts["abort"] > 0

    def test_a_missing_right_ends_it_and_names_the_resource(self, bench):
        bench.open_stream("a")
        bench.give(on.AccessDenied("group bank-fleet", "not authorized"))
        (stop,) = bench.stopped

        assert isinstance(stop.error, ConfigError)
        assert "access to group bank-fleet: not authorized" in str(stop.error)
        assert stop.error.exit_code == 2

    def test_a_slot_of_the_fleet_that_lost_records_ends_it(self, bench):
        bench.open_stream("a")
        lost = ProgressLost("the offset that a slot is read from is not in its log", slot=3)
        bench.give(on.ProgressReadLost(lost))

        assert [stop.error for stop in bench.stopped] == [lost]

    def test_an_interruption_changes_nothing(self, bench):
        bench.open_stream("a")

        assert bench.give(on.ReadInterrupted("topic bank-progress", "timed out")) == []
