"""What a command does with a worker of its own: put back, accept a gap, write records."""

import asyncio

import pytest

from tidegate.producer.cli.command_sender import send_commands
from tidegate.producer.cli.sole_runs import GapAcceptor, Redriver, find_gap, put_back_parked
from tidegate.producer.core import events as on
from tidegate.producer.errors import (
    CommandNotWritten,
    EndedInGap,
    GapNotAccepted,
    PositionExpired,
    QueryInterrupted,
    RedriveFailed,
    TokenRefused,
)
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.messages import (
    FORM_MESSAGE,
    FORM_REDRIVEN,
    ChangeMessage,
    DeadLetter,
    ParkedChange,
    PublishableRecord,
)
from tidegate.schemas.errors import ConfigError, SchemaError, UnreachableError
from tidegate.schemas.instants import US_PER_SECOND, format_rfc3339
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import PartitionGap, ProgressRecord, TokenSnapshot, WorkerDrain

SECOND = 1_000_000

KEYS = frozenset({1, 2})
BATCH = (PublishableRecord(1, "", "", ()),)


class Stage:
    """Stands for the worker and its core; `plan` has what happens in a step, by its number."""

    def __init__(self, clock, *, ready_after=2, plan=()):
        self.clock, self.plan, self.ready_after = clock, dict(plan), ready_after
        self.calls = []
        self.steps = 0
        self.error = None
        self.is_stopped = False
        self.is_ready = False

    def start(self):
        self.calls.append("start")

    def close(self, **_options):
        self.calls.append("close")

    def request_drain(self):
        self.calls.append("drain")
        self.plan[self.steps + 1] = lambda: self.stop(None)

    def process(self, event):
        self.calls.append(event)

    def stop(self, error):
        self.is_stopped, self.error = True, error

    def step(self):
        self.steps += 1
        self.clock.advance(US_PER_SECOND)
        self.is_ready = self.steps >= self.ready_after
        self.plan.get(self.steps, lambda: None)()
        return not self.is_stopped


def joined(stage, kind=Redriver):
    run = kind(stage, stage, patience_s=10, clock=stage.clock)
    run.join()
    return run


@pytest.fixture
def stage():
    return Stage(ManualClock())


@pytest.mark.parametrize(
    ("kind", "error"), [(Redriver, RedriveFailed), (GapAcceptor, GapNotAccepted)]
)
class TestSoleRun:
    def test_it_waits_for_all_slots_and_leaves_in_the_end(self, stage, kind, error):
        run = joined(stage, kind)
        run.keep_alive()
        stage.ready_after = 99
        with pytest.raises(error, match="taken away"):
            run.keep_alive()
        run.close()
        assert stage.calls == ["start", "close"]

    def test_it_gives_up_where_others_have_slots_and_where_it_is_stopped(self, stage, kind, error):
        stage.ready_after = 99
        with pytest.raises(error, match="other members"):
            joined(stage, kind)
        for cause, raised, text in (
            (None, error, "asked to stop"), (ConfigError("no stream"), ConfigError, "no stream"),
        ):  # fmt: skip
            stage.is_stopped = False
            stage.plan[stage.steps + 2] = lambda cause=cause: stage.stop(cause)
            with pytest.raises(raised, match=text):
                joined(stage, kind)


class TestRedriver:
    def test_all_batches_come_in_one_transaction(self, stage):
        stage.plan[6] = lambda: stage.stop(None)
        redriver = joined(stage)
        redriver.put_back(KEYS, iter([BATCH, ()]))
        assert stage.calls == [
            "start", on.RedriveBegan(KEYS), on.RedriveRead(BATCH), on.RedriveEnded(),
        ]  # fmt: skip

    @pytest.mark.parametrize("step", [3, 4], ids=["while the batches are read", "after that"])
    def test_a_transaction_that_fails_is_the_error(self, stage, step):
        stage.plan[step] = lambda: stage.stop(RedriveFailed("aborted"))
        redriver = joined(stage)
        with pytest.raises(RedriveFailed, match="aborted"):
            redriver.put_back(KEYS, [BATCH])

    @pytest.mark.parametrize(
        "error", [UnreachableError("no registry"), RedriveFailed("changed"), KeyboardInterrupt()]
    )
    def test_batches_that_cannot_be_read_abort_the_transaction(self, stage, error):
        def broken():
            yield BATCH
            raise error

        redriver = joined(stage)
        with pytest.raises(type(error)):
            redriver.put_back(KEYS, broken())
        assert stage.calls[-1] == "drain"
        assert stage.is_stopped
        assert on.RedriveEnded() not in stage.calls


class TestPutBackParked:
    POISON, KEY = b"poison", b"k"

    def letters(self):
        yield DeadLetter(0, 0, self.change(b"a", order=1))
        yield None
        yield DeadLetter(0, 1, self.change(b"b", order=2))
        yield DeadLetter(0, 2, self.change(b"b", order=3, content=self.POISON))

    def change(self, key, *, order, content=b"value"):
        order_key = OrderKey(order, "t", (0, 0), 0).encode()
        return ParkedChange("p.t", key, order_key, b"U", content, FORM_MESSAGE, "r", "", "token")

    def translate(self, change):
        if change.content == self.POISON:
            raise SchemaError("still poison")
        return ChangeMessage(change.topic, change.key, change.content, change.order_key, b"U", b"")

    def test_a_key_that_is_still_poison_stays(self, stage):
        redriver = joined(stage)
        stage.plan[stage.steps + 20] = lambda: stage.stop(None)
        selection = put_back_parked(self.letters, self.translate, redriver)
        assert [name.key for name in selection.chosen] == [b"a"]
        assert [(key.name.key, key.changes) for key in selection.left] == [(b"b", 2)]
        began, *_ = [call for call in stage.calls if isinstance(call, on.RedriveBegan)]
        assert began.keys == selection.numbers
        records = [r for c in stage.calls if isinstance(c, on.RedriveRead) for r in c.records]
        assert [message.key for record in records for message in record.messages] == [b"a"]
        assert [change.form for record in records for change in record.parked] == [FORM_REDRIVEN]

    def test_the_group_is_polled_while_nothing_comes(self, stage):
        redriver = joined(stage)
        stage.ready_after = 99
        with pytest.raises(RedriveFailed, match="joined"):
            put_back_parked(lambda: iter([None]), self.translate, redriver)

    def test_without_a_redriver_it_only_looks(self):
        done = []
        selection = put_back_parked(
            self.letters, self.translate, None, progress=lambda what, number: done.append(what)
        )
        assert (len(selection.chosen), len(selection.left)) == (1, 1)
        assert len(done) == 8


START_US, POSITION_US, EARLIEST_NS = 1_000, 5_000, 9_000_500


def expired(lost_until):
    return PositionExpired("too old", code="OUT_OF_RANGE", lost_from="x", lost_until=lost_until)


class Stream:
    """Keeps records from a time on, of a stream partition that may have ended."""

    def __init__(self, *, earliest_ns=EARLIEST_NS, ended_ns=None, error=None):
        self.earliest_ns, self.ended_ns, self.error = earliest_ns, ended_ns, error
        self.asked, self.cancelled = [], 0

    def query(self, *, token, start_ns, end_ns, heartbeat_ms):
        assert (token, end_ns, heartbeat_ms) == ("t", None, 1_000)
        self.asked.append(start_ns)
        self._start_ns = start_ns
        return self

    async def next_size(self):
        if self.error is not None:
            raise self.error
        if self._start_ns < self.earliest_ns:
            raise expired(format_rfc3339(self.earliest_ns))
        if self.ended_ns is not None and self._start_ns > self.ended_ns:
            raise expired("unknown")
        return 100

    def cancel(self):
        self.cancelled += 1


def snapshot(**changes):
    fields = {"stopped": "it (lost_from='x')", "watermark_us": POSITION_US, **changes}
    return TokenSnapshot("t", START_US * 1_000 + 7, (), (), **fields)


def found(stream, *, margin_us=0, end_ns=None, **changes):
    gap = asyncio.run(
        find_gap(
            stream, snapshot(**changes), margin_us=margin_us, end_ns=end_ns, accepted_by="ops",
            now_us=77,
        )
    )  # fmt: skip
    assert stream.cancelled == len(stream.asked)
    return gap


class TestFindGap:
    def test_a_gap_begins_after_the_position_and_ends_where_a_query_can_start(self):
        stream = Stream()
        assert found(stream) == PartitionGap("t", POSITION_US + 1, 9_002, "ops", 77)
        assert stream.asked == [POSITION_US * 1_000, 9_001_000]
        assert stream.asked[1] >= EARLIEST_NS
        later = found(Stream(), margin_us=600 * SECOND)
        assert later.until_us == 9_002 + 600 * SECOND, "time to start workers"

    def test_one_that_has_published_nothing_is_asked_for_at_its_exact_start(self):
        stream = Stream()
        assert found(stream, watermark_us=START_US - 1).from_us == START_US
        assert stream.asked[0] == START_US * 1_000 + 7

    @pytest.mark.parametrize(
        "text", ["2026-03-01", "2026-03-01T12:00:00", "20260301T1200", "-", "2026-13-01T12:00:00Z"]
    )
    def test_a_time_that_spanner_names_in_another_form_is_no_schema_error(self, text):
        with pytest.raises(ConfigError, match="not a timestamp") as caught:
            found(Stream(error=expired(text)))
        assert caught.value.fields["lost_until"] == text
        assert "new epoch" in caught.value.hint

    @pytest.mark.parametrize(
        ("stream", "end_ns"),
        [(Stream(ended_ns=9_000_999), None), (Stream(error=expired("unknown")), None),
         (Stream(), 9_000_999)],
        ids=["ended inside", "nothing of it is left", "a bounded stream"],
    )  # fmt: skip
    def test_one_that_has_ended_inside_is_not_gone_on_with(self, stream, end_ns):
        with pytest.raises(EndedInGap, match="new epoch") as caught:
            found(stream, end_ns=end_ns)
        assert caught.value.exit_code == 2
        assert found(Stream(), end_ns=9_001_000).until_us == 9_002

    @pytest.mark.parametrize(
        ("stream", "kind"),
        [
            (Stream(earliest_ns=0), ConfigError),
            (Stream(error=TokenRefused("no", code="INVALID_ARGUMENT")), TokenRefused),
            (Stream(error=QueryInterrupted("away", code="UNAVAILABLE")), QueryInterrupted),
        ],
        ids=["it can be read", "refused", "interrupted"],
    )
    def test_what_has_not_expired_is_no_gap(self, stream, kind):
        with pytest.raises(kind):
            found(stream)

    def test_an_acceptance_ends_with_the_workers_error(self, stage):
        gap = PartitionGap("t", 1, 2, "ops", 3)
        stage.plan[3] = lambda: stage.stop(GapNotAccepted("why"))
        acceptor = joined(stage, GapAcceptor)
        with pytest.raises(GapNotAccepted, match="why"):
            acceptor.accept((gap,))
        assert stage.calls == ["start", on.GapsAccepted((gap,))]


RECORDS = [ProgressRecord("e", "_control", WorkerDrain(name, "me", 0)) for name in ("w1", "w2")]
FAILURE = on.DeliveryFailure(on.DeliveryFault.DENIED, "DENIED", 0, "p", "k", 1)


class Publisher(MemoryPublisher):
    """Answers its next commits as the test says."""

    def __init__(self, broker, *answers):
        super().__init__(broker, transactional_id="c", progress_topic="p")
        self.answers = list(answers)
        self.is_closed = False

    def commit(self):
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, on.TransactionAborted):
            super().abort("the test says so")
        return answer or super().commit()

    def close(self):
        self.is_closed = True
        super().close()


@pytest.fixture
def broker():
    return MemoryBroker({"p": 2}, group=Group(2))


def written(broker):
    return [entry.value for entry in broker.logs["p", 0].read()]


@pytest.mark.parametrize(
    "answers",
    [(), (on.TransactionAborted("a"), on.TransactionAborted("b")), (on.CommitUnanswered("c"),) * 2],
    ids=["at once", "aborted before", "asked again"],
)
def test_all_are_committed_together(broker, answers):
    publisher = Publisher(broker, *answers)
    assert send_commands(publisher, lambda: RECORDS) == RECORDS
    assert written(broker) == RECORDS
    assert publisher.is_closed


def test_without_a_command_nothing_follows(broker):
    assert send_commands(Publisher(broker), list) == []
    assert broker.open_transactions == []


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ((on.TransactionAborted("no", FAILURE),), "no"),
        ((on.TransactionAborted("no"),) * 3, "no"),
        ((on.CommitUnanswered("silent"),) * 3, "silent"),
        ((on.CommitOutcomeUnknown("lost"),), "lost"),
        ((on.ProducerFenced(),), "another such command"),
    ],
)
def test_what_is_not_known_to_be_written_is_said(broker, answers, text):
    publisher = Publisher(broker, *answers)
    with pytest.raises(CommandNotWritten, match=text):
        send_commands(publisher, lambda: RECORDS)
    assert publisher.is_closed


def test_what_another_command_has_begun_cannot_be_committed_any_more(broker):
    def prepare():
        send_commands(Publisher(broker), lambda: RECORDS[:1])
        return RECORDS

    with pytest.raises(CommandNotWritten, match="another such command"):
        send_commands(Publisher(broker), prepare)
    assert written(broker) == RECORDS[:1]
