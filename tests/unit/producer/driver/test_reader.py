"""Readers: what is delivered and when, the bytes that hold them back, and their thread."""

import asyncio
import gc
import threading
import weakref
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from tidegate.producer.core import events as on
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.reader import PartitionReader, size_bytes
from tidegate.producer.driver.runtime import TaskThread
from tidegate.producer.driver.schema_lookups import SchemaLookups
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.memory.change_stream import MemoryResponse
from tidegate.producer.messages import ChangeMessage, ParkedChange, PublishableRecord
from tidegate.producer.records import ChildPartitionsRecord, DataChangeRecord, HeartbeatRecord
from tidegate.schemas.errors import (
    InvariantViolation,
    SchemaError,
    SchemaNotFound,
    UnreachableError,
)

WAIT_S = 30
BEAT = HeartbeatRecord(5)
CHILDREN = ChildPartitionsRecord(9, "0", ())


def data(sequence, tag=""):
    return DataChangeRecord(
        1_000, sequence, "tx", True, "t", (), (), "INSERT", "NEW_ROW", 1, 1, tag, False
    )


class Translator:
    def translate(self, record, *, token):
        if record.transaction_tag == "poison":
            raise SchemaError("poison")
        if record.transaction_tag == "bug":
            raise ZeroDivisionError
        message = ChangeMessage("p.t", token.encode(), b"v" * 100, b"o", b"I", bytes(8))
        return PublishableRecord(1, "tx", record.record_sequence, (message,))

    def translate_now(self, record, *, token):
        return None if record.transaction_tag == "wait" else self.translate(record, token=token)


class Stream:
    """A change stream that returns what a test scripts; `...` blocks until it is cancelled."""

    def __init__(self, *script, size_bytes=1_000):
        self.script = script
        self.size_bytes = size_bytes
        self.cancelled = threading.Event()
        self.asked = None
        self.steps = None
        self.received = 0

    def query(self, **arguments):
        self.asked = arguments
        return self

    async def next_size(self):
        self.next = await self.following()
        return None if self.next is None else self.next.size_bytes

    async def receive(self):
        self.received += 1
        return self.next

    async def following(self):
        if self.steps is None:
            self.steps = iter(self.script)
        step = next(self.steps, None)
        if step is ...:
            await asyncio.to_thread(self.cancelled.wait, WAIT_S)
            raise QueryInterrupted("cancelled", code="CANCELLED")
        if isinstance(step, Exception):
            raise step
        if step is None or isinstance(step, MemoryResponse):
            return step
        return MemoryResponse(step, size_bytes=self.size_bytes)

    def cancel(self):
        self.cancelled.set()


@pytest.fixture
def inbox():
    return SimpleQueue()


@pytest.fixture
def budget(tasks):
    return ByteBudget(10_000, tasks=tasks)


@pytest.fixture
def read(inbox, budget, tasks):
    readers = []

    def start(stream, *, translator=None, starts=True, **changes):
        reader = PartitionReader(
            stream,
            translator or Translator(),
            **{
                "token": "k", "query_id": 3, "start_ns": 1, "heartbeat_ms": 300,
                "deliver": inbox.put, "budget": budget, "tasks": tasks, **changes,
            },
        )  # fmt: skip
        readers.append(reader)
        if starts:
            reader.start()
        return reader

    yield start
    for reader in readers:
        reader.stop()
    until(lambda: not running(tasks))


def running(tasks):
    return [task for task in list(tasks._tasks) if task.get_name().startswith("reader-")]


def take(inbox, count):
    return [inbox.get(timeout=WAIT_S) for _ in range(count)]


def read_only(inbox):
    """Return the next output that is no word about waiting."""
    while isinstance(output := inbox.get(timeout=WAIT_S), on.QueryPaused | on.QueryResumed):
        pass
    return output


def until(condition):
    for _ in range(WAIT_S * 1_000):
        if condition():
            return
        threading.Event().wait(0.001)
    pytest.fail("what is waited for does not happen")


def take_all(budget, tasks, size):
    """Let somebody else hold bytes of the budget."""
    assert tasks.run(lambda: budget.take("k", size, is_cancelled=lambda: False))


def is_paused(inbox, query_id=3):
    return take(inbox, 1) == [on.QueryPaused("k", query_id)]


def test_records_in_order_then_the_end(read, inbox, budget):
    stream = Stream([BEAT, data("00000001")], [CHILDREN])
    read(stream)
    first, second, end = take(inbox, 3)
    assert [type(item) for item in first.items] == [HeartbeatRecord, PublishableRecord]
    assert first.items[1].messages[0].key == b"k"
    assert second == on.RecordsRead("k", 3, [CHILDREN], size_bytes(CHILDREN))
    assert end == on.QueryEnded("k", 3)
    assert stream.asked == {"token": "k", "start_ns": 1, "end_ns": None, "heartbeat_ms": 300}
    assert budget.taken == first.size_bytes + second.size_bytes


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([[BEAT], QueryInterrupted("gone", code="UNAVAILABLE")], QueryInterrupted),
        ([[BEAT, data("2", "poison"), data("3")], [BEAT]], SchemaError),
        ([[BEAT, data("1", "bug")]], InvariantViolation),
    ],
    ids=["failed", "poison", "bug"],
)
def test_an_error_is_reported_after_the_records_before_it(read, inbox, budget, script, kind):
    stream = Stream(*script)
    read(stream)
    before, failed = take(inbox, 2)
    assert before.items == [BEAT]
    assert (failed.token, failed.query_id, type(failed.error)) == ("k", 3, kind)
    if kind is InvariantViolation:
        assert isinstance(failed.error.__cause__, ZeroDivisionError)
    assert budget.taken == before.size_bytes, "a failed query holds nothing"
    if kind is SchemaError:
        assert stream.cancelled.wait(WAIT_S)
    assert inbox.empty()


@pytest.mark.parametrize(
    ("records", "then"),
    [([BEAT], [QueryInterrupted("gone")]), ([data("1", "poison")], [])],
    ids=["failed", "poison"],
)
def test_an_error_that_is_kept_holds_no_response(read, inbox, records, then):
    """A worker keeps errors for its reports; the byte budget does not count what they hold."""
    response = MemoryResponse(records)
    held = weakref.ref(response)
    stream = Stream(response, *then)
    del response, records
    reader = read(stream)
    while not isinstance(failed := inbox.get(timeout=WAIT_S), on.QueryFailed):
        pass
    until(lambda: not running(reader._tasks))
    stream.script = stream.steps = stream.next = None
    gc.collect()
    assert failed.error is not None
    assert held() is None


def test_an_error_that_is_its_own_cause_is_reported(read, inbox):
    """gRPC's error is raised from that of Google's library, which has it as its cause."""
    error, cause = QueryInterrupted("gone"), ValueError("reset")
    error.__cause__, cause.__cause__ = cause, error
    read(Stream(error))
    failed = inbox.get(timeout=WAIT_S)
    assert failed.error is error
    assert error.__traceback__ is cause.__traceback__ is None


def test_after_stop_nothing_is_reported(read, inbox):
    reader = read(Stream([BEAT], ...))
    take(inbox, 1)
    reader.stop()
    assert inbox.empty()
    read(Stream([BEAT]), starts=False).stop()
    assert inbox.empty()


class TestBytes:
    def test_a_reader_goes_on_when_bytes_are_given_back(self, read, inbox, tasks):
        budget = ByteBudget(1_000, tasks=tasks)
        read(Stream([BEAT], [BEAT], [BEAT]), budget=budget)
        for _ in range(3):
            output = read_only(inbox)
            assert budget.taken == output.size_bytes
            budget.release([("k", output.size_bytes)])
        assert read_only(inbox) == on.QueryEnded("k", 3)
        assert budget.taken == 0

    def test_nothing_is_received_before_its_bytes_are_taken(self, read, inbox, tasks):
        """A query holds little of a message that is not received, whatever its size."""
        budget = ByteBudget(1_000, tasks=tasks)
        take_all(budget, tasks, 1_000)
        stream = Stream([BEAT], size_bytes=500)
        read(stream, budget=budget)
        assert is_paused(inbox)
        assert stream.received == 0
        budget.release([("k", 1_000)])
        assert take(inbox, 1) == [on.QueryResumed("k", 3)]
        assert read_only(inbox).items == [BEAT]
        assert stream.received == 1

    @pytest.mark.parametrize("received", [900, 10])
    def test_what_is_held_is_what_decoding_left(self, read, tasks, received):
        """So only as many messages are decoded at once as fit."""
        budget, taken = ByteBudget(1_000, tasks=tasks), []
        stream = Stream([data("1")], size_bytes=received)
        read(stream, budget=budget, deliver=lambda output: taken.append((output, budget.taken)))
        until(lambda: len(taken) == 2)
        output, held = taken[0]
        assert held == output.size_bytes == size_bytes(output.items[0])
        assert 10 < held < 900

    def test_what_becomes_larger_than_it_came_waits_until_it_fits(self, read, inbox, tasks):
        """Two readers whose responses fit hold no more than fits when both are decoded."""
        size = size_bytes(Translator().translate(data("1"), token="k"))
        budget = ByteBudget(size + 20, tasks=tasks)
        read(Stream([data("1")], ..., size_bytes=10), budget=budget)
        read(Stream([data("2")], ..., size_bytes=10), budget=budget, query_id=4)
        first = read_only(inbox)
        assert take(inbox, 1) == [on.QueryPaused("k", 7 - first.query_id)]
        assert budget.taken <= size + 20
        budget.release([("k", first.size_bytes)])
        assert take(inbox, 1) == [on.QueryResumed("k", 7 - first.query_id)]
        assert read_only(inbox).size_bytes == budget.taken == size


def test_parts_of_a_message_are_no_silence_and_hold_what_was_taken(read, inbox, budget):
    class PartOfMessage(MemoryResponse):
        def decode(self):
            return [], 5_000

    taken = []
    begin, part = PartOfMessage([], size_bytes=5_000), PartOfMessage([], size_bytes=0)
    read(
        Stream(begin, part, part, MemoryResponse([BEAT], size_bytes=0)),
        deliver=lambda output: taken.append(budget.taken) or inbox.put(output),
    )
    assert take(inbox, 3) == [on.QueryResumed("k", 3)] * 3
    assert isinstance(read_only(inbox), on.RecordsRead)
    assert taken[:3] == [5_000] * 3
    assert taken[3] == size_bytes(BEAT)


class Part(MemoryResponse):
    """A response that begins a value and completes none."""

    def decode(self):
        return [], 400


@pytest.mark.parametrize("waits", ["to receive", "to deliver", "for the rest of a value"])
def test_a_reader_that_is_stopped_while_it_waits_holds_nothing(read, inbox, tasks, waits):
    budget = ByteBudget(1_000, tasks=tasks)
    if waits == "for the rest of a value":
        reader, held = read(Stream(Part([], size_bytes=500), ...), budget=budget), 0
        until(lambda: budget.taken)
        take(inbox, 1)
    else:
        held = 1_000 if waits == "to receive" else 990
        take_all(budget, tasks, held)
        reader = read(Stream([data("1")], size_bytes=10), budget=budget)
        assert is_paused(inbox)
    reader.stop()
    until(lambda: not running(tasks))
    assert budget.taken == held
    assert inbox.empty()


def test_nothing_comes_after_stop_returned_however_the_two_meet(read, budget):
    for _ in range(50):
        stopped, late = threading.Event(), []

        def deliver(output, stopped=stopped, late=late):
            if stopped.is_set():
                late.append(output)
            if isinstance(output, on.RecordsRead):
                budget.release([("k", output.size_bytes)])

        read(Stream(*[[BEAT]] * 200), deliver=deliver).stop()
        stopped.set()
        assert late == []


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_translation_that_waits_holds_up_no_other_query(inbox, budget, tasks, read, is_stopped):
    going_on = threading.Event()

    class Waiting(Translator):
        def translate(self, record, *, token):
            if record.transaction_tag == "wait":
                assert going_on.wait(WAIT_S)
            return super().translate(record, token=token)

    stream = Stream([data("1", "wait"), data("2")])
    waiting = read(stream, translator=Waiting(), token="slow", query_id=8)
    assert take(inbox, 1) == [on.QueryPaused("slow", 8)]
    if is_stopped:
        waiting.stop()
        going_on.set()
        until(lambda: not running(tasks))
        assert budget.taken == 0, "it gives its bytes back"
        assert inbox.empty()
        return
    read(Stream([BEAT]))
    assert [output.token for output in take(inbox, 2)] == ["k", "k"]
    going_on.set()
    resumed, first, end = take(inbox, 3)
    assert resumed == on.QueryResumed("slow", 8)
    assert [item.record_sequence for item in first.items] == ["1", "2"]
    assert end == on.QueryEnded("slow", 8)


def test_sizes_grow_with_what_is_held():
    small = PublishableRecord(1, "tx", "0", ())
    message = ChangeMessage("p.t", b"kk", b"vvv", b"o", b"I", bytes(8))
    large = PublishableRecord(1, "tx", "0", (message, message))
    assert size_bytes(large) - size_bytes(small) >= 12
    parked = ParkedChange("p.t", b"kk", b"o", b"I", b"v" * 500, b"record", "r", "e" * 70, "k")
    assert size_bytes(large._replace(parked=(parked,))) - size_bytes(large) >= 572
    assert size_bytes(BEAT) > 0


def test_a_tombstone_needs_room_for_its_key():
    message = ChangeMessage("p.t", b"k" * 700, b"vvv", b"o", b"D", bytes(8))
    kept = message._replace(mod=b"U")
    record = PublishableRecord(1, "tx", "0", (message, message, kept))
    assert size_bytes(record, tombstones=True) - size_bytes(record) >= 1_400
    unchanged = record._replace(messages=(kept,))
    assert size_bytes(unchanged, tombstones=True) == size_bytes(unchanged)


def never():
    return False


class Budget(ByteBudget):
    """A budget whose waiting a test's thread does, too."""

    def __init__(self, bytes_max, *, tasks, **options):
        super().__init__(bytes_max, tasks=tasks, **options)
        self._runner = tasks

    def take_now(self, size, *, token="a", **options):
        return self._runner.run(lambda: self.take(token, size, **options))


@pytest.fixture
def new_budget(tasks):
    return lambda bytes_max, **options: Budget(bytes_max, tasks=tasks, **options)


def taking(budget, size, is_cancelled=never):
    answers = []

    def take_now():
        answers.append(budget.take_now(size, is_cancelled=is_cancelled))

    thread = threading.Thread(target=take_now, daemon=True)
    thread.start()
    return thread, answers


def waiting(budget):
    until(lambda: budget._turns)


class TestBudget:
    @pytest.fixture
    def full(self, new_budget):
        budget = new_budget(10)
        for size in (4, 6):
            assert budget.take_now(size, is_cancelled=never)
        assert budget.taken == 10
        return budget

    def test_first_come_first_served_whatever_the_size(self, full):
        large, large_answers = taking(full, 50)
        waiting(full)
        small, small_answers = taking(full, 1)
        small.join(0.05)
        full.release([("a", 5)])
        large.join(0.05)
        assert (large_answers, small_answers) == ([], [])
        full.release([("a", 5)])
        large.join(WAIT_S)
        assert (large_answers, full.taken) == ([True], 50)
        small.join(0.05)
        assert not small_answers
        full.release([("a", 50)])
        small.join(WAIT_S)
        assert (small_answers, full.taken) == ([True], 1)
        with pytest.raises(InvariantViolation):
            full.release([("a", 4)])

    def test_waking_disturbs_only_those_that_are_cancelled(self, full, new_budget):
        cancelled = threading.Event()
        stays, stays_answers = taking(full, 1)
        waiting(full)
        leaves, leaves_answers = taking(full, 1, cancelled.is_set)
        until(lambda: len(full._turns) == 2)
        notified = []
        for number, waiter in enumerate(full._turns.values()):
            changed, waiter.changed = waiter.changed, SimpleNamespace()
            waiter.changed.notify = lambda n=number, c=changed: (notified.append(n), c.notify())
        cancelled.set()
        full.wake()
        leaves.join(WAIT_S)
        assert (notified, leaves_answers, stays_answers, full.taken) == ([1], [False], [], 10)
        full.release([("a", 10)])
        stays.join(WAIT_S)
        assert not new_budget(10).take_now(1, is_cancelled=lambda: True)


class Registry:
    """Answers what a test says, and not before it may."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.may_answer = threading.Event()

    def __call__(self, schema_id):
        self.asked.append(schema_id)
        assert self.may_answer.wait(60)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def ask(registry, now_s=lambda: 0.0):
    """Return look-ups whose first one is under way, and the pauses that they make."""
    pauses = []
    found = SchemaLookups(registry, clock_s=now_s, sleep=pauses.append)
    assert not found.has_answer(7)
    assert not found.has_answer(7)
    return found, pauses


def finish(found, registry):
    registry.may_answer.set()
    for thread in threading.enumerate():
        if thread.name == "schema-7":
            thread.join(60)
    assert found.has_answer(7)


@pytest.mark.parametrize(
    ("failures", "pauses"), [(0, []), (7, [1, 2, 4, 8, 16, 30, 30])], ids=["at once", "again"]
)
def test_a_schema_is_asked_for_once_and_again_with_growing_pauses(failures, pauses):
    registry = Registry(*[UnreachableError("busy")] * failures, {"type": "record"})
    found, paused = ask(registry)
    finish(found, registry)
    assert found.schema(7) == found.schema(7) == {"type": "record"}
    assert (registry.asked, paused) == ([7] * (failures + 1), pauses)


@pytest.mark.parametrize(
    ("error", "asked"), [(UnreachableError("away"), 5), (SchemaNotFound("none"), 1)]
)
def test_what_does_not_pass_is_raised_once_and_asked_for_again_afterwards(error, asked):
    registry, seconds = Registry(error), iter(range(0, 10_000, 60))
    found, _ = ask(registry, now_s=lambda: next(seconds))
    finish(found, registry)
    with pytest.raises(type(error)):
        found.schema(7)
    assert len(registry.asked) == asked
    registry.answers = [{"type": "record"}]
    assert not found.has_answer(7)
    finish(found, registry)
    assert found.schema(7) == {"type": "record"}


@pytest.fixture
def own():
    running = TaskThread(name="own")
    yield running
    running.close()


class TestTasks:
    def test_a_signal_from_another_thread_ends_the_wait_and_so_does_time(self, own):
        signal, facts, found = own.signal(), [], []

        async def wait():
            found.append(await signal.wait_for(lambda: bool(facts)))

        own.start(wait, name="waits")
        own.start(wait, name="waits too")
        signal.notify()  # nothing has changed
        facts.append(1)
        signal.notify()
        until(lambda: len(found) == 2)
        assert found == [True, True]
        assert own.run(lambda: signal.wait_for(lambda: False, 0.001)) is False
        assert own.run(lambda: signal.wait_for(lambda: True, 0.001)) is True

    def test_an_error_of_what_blocks_is_raised_in_its_task(self, own):
        def fail():
            raise KeyError("no")

        with pytest.raises(KeyError, match="no"):
            own.run(lambda: own.in_thread(fail))

    def test_few_calls_block_at_a_time(self, own):
        running, most, going_on = [], [], threading.Event()
        all_block = threading.Semaphore(0)

        def block():
            running.append(1)
            most.append(len(running))
            all_block.release()
            assert going_on.wait(WAIT_S)
            running.pop()

        async def many():
            await asyncio.gather(*[own.in_thread(block) for _ in range(20)])

        caller = threading.Thread(target=lambda: own.run(many))
        caller.start()
        for _ in range(4):
            assert all_block.acquire(timeout=WAIT_S)
        going_on.set()
        caller.join(WAIT_S)
        assert max(most) == 4

    @pytest.mark.parametrize("blocks", [False, True])
    def test_closing_cancels_what_runs_and_waits_for_no_call_that_blocks(self, blocks):
        tasks, ended, ran = TaskThread(), [], []
        began, going_on = threading.Event(), threading.Event()

        def block():
            began.set()
            return going_on.wait(WAIT_S)

        async def forever():
            if blocks:
                await tasks.in_thread(block)
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        async def run():
            ran.append(True)

        tasks.start(forever, name="forever")
        assert began.wait(WAIT_S)
        thread = tasks._thread
        assert thread.daemon
        tasks.close()
        tasks.close()
        assert not thread.is_alive()
        assert ended == [True] * (not blocks)
        going_on.set()
        never_started = TaskThread()
        never_started.close()
        for one in (tasks, never_started):
            one.start(run, name="late")
            one.signal().notify()
        assert ran == [], "nothing starts after the end"
