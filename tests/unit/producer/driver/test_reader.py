"""Readers: what is delivered and when, and the budget that holds them back."""

import asyncio
import threading
from queue import Empty, SimpleQueue

import pytest

from tidegate.producer.core.events import (
    QueryEnded,
    QueryFailed,
    QueryPaused,
    QueryResumed,
    RecordsRead,
)
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.reader import PartitionReader, size_bytes
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.memory.change_stream import MemoryResponse
from tidegate.producer.messages import ChangeMessage, ParkedChange, PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
)
from tidegate.schemas.errors import InvariantViolation, SchemaError

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

    def start(stream, **changes):
        reader = PartitionReader(
            stream,
            Translator(),
            **{
                "token": "k", "query_id": 3, "start_ns": 1, "heartbeat_ms": 300,
                "deliver": inbox.put, "budget": budget, "tasks": tasks, **changes,
            },
        )  # fmt: skip
        readers.append(reader)
        reader.start()
        return reader

    yield start
    for reader in readers:
        reader.stop()
    for _ in range(WAIT_S * 100):
        if not running(tasks):
            return
        threading.Event().wait(0.01)
    pytest.fail("a reader does not end")


def running(tasks):
    """The tasks of readers that have not ended."""
    return [task for task in list(tasks._tasks) if task.get_name().startswith("reader-")]


def take(inbox, count):
    return [inbox.get(timeout=WAIT_S) for _ in range(count)]


def test_records_in_order_then_the_end(read, inbox, budget):
    stream = Stream([BEAT, data("00000001")], [CHILDREN])
    read(stream)
    first, second, end = take(inbox, 3)
    assert [type(item) for item in first.items] == [HeartbeatRecord, PublishableRecord]
    assert first.items[1].messages[0].key == b"k"
    assert second == RecordsRead("k", 3, [CHILDREN], size_bytes(CHILDREN))
    assert end == QueryEnded("k", 3)
    assert stream.asked == {"token": "k", "start_ns": 1, "end_ns": None, "heartbeat_ms": 300}
    assert budget.taken == first.size_bytes + second.size_bytes


def test_a_failed_query_is_reported(read, inbox):
    error = QueryInterrupted("gone", code="UNAVAILABLE")
    read(Stream([BEAT], error))
    _, failed = take(inbox, 2)
    assert failed == QueryFailed("k", 3, error)


def test_poison_is_reported_after_the_records_before_it(read, inbox):
    stream = Stream([BEAT, data("1"), data("2", "poison"), data("3")], [BEAT])
    read(stream)
    before, failed = take(inbox, 2)
    assert len(before.items) == 2
    assert isinstance(failed.error, SchemaError)
    assert stream.cancelled.wait(WAIT_S)
    with pytest.raises(Empty):
        inbox.get_nowait()


def test_an_unknown_error_is_a_violated_invariant_and_not_silence(read, inbox):
    read(Stream([data("1", "bug")]))
    (failed,) = take(inbox, 1)
    assert isinstance(failed.error, InvariantViolation)
    assert isinstance(failed.error.__cause__, ZeroDivisionError)


def test_after_stop_nothing_is_reported(read, inbox):
    reader = read(Stream([BEAT], ...))
    take(inbox, 1)
    reader.stop()
    with pytest.raises(Empty):
        inbox.get_nowait()


def read_only(inbox):
    """Return the next output that is no word about waiting."""
    while isinstance(output := inbox.get(timeout=WAIT_S), QueryPaused | QueryResumed):
        pass
    return output


def test_a_reader_waits_for_the_budget_and_goes_on_when_bytes_are_given_back(read, inbox, tasks):
    budget = ByteBudget(1_000, tasks=tasks)
    read(Stream([BEAT], [BEAT], [BEAT]), budget=budget)
    for _ in range(3):
        output = read_only(inbox)
        assert budget.taken == output.size_bytes
        budget.release([("k", output.size_bytes)])
    assert read_only(inbox) == QueryEnded("k", 3)
    assert budget.taken == 0


def test_a_reader_says_when_it_waits_and_when_no_longer(read, inbox, tasks):
    budget = ByteBudget(1_000, tasks=tasks)
    read(Stream([BEAT], [BEAT], size_bytes=1_000), budget=budget)
    first, paused = take(inbox, 2)
    assert paused == QueryPaused("k", 3)
    budget.release([("k", first.size_bytes)])
    assert take(inbox, 1) == [QueryResumed("k", 3)]


def test_a_reader_says_when_a_record_waits_for_its_tables_schema(read, inbox, tasks):
    read(Stream([data("1", "wait")], [BEAT]))
    assert take(inbox, 2) == [QueryPaused("k", 3), QueryResumed("k", 3)]
    assert read_only(inbox).items[0].record_sequence == "1"


def test_what_fits_never_is_let_in_alone(read, inbox, tasks):
    budget = ByteBudget(1, tasks=tasks)
    read(Stream([data("1")], [BEAT]), budget=budget)
    large = read_only(inbox)
    assert large.size_bytes > 1
    budget.release([("k", large.size_bytes)])
    assert read_only(inbox).items == [BEAT]


def test_nothing_is_received_before_its_bytes_are_taken(read, inbox, tasks):
    """Of a message that is not received its query has little, whatever its size."""
    budget = ByteBudget(1_000, tasks=tasks)
    assert tasks.run(lambda: budget.take("k", 1_000, is_cancelled=lambda: False))
    stream = Stream([BEAT], size_bytes=500)
    read(stream, budget=budget)
    assert take(inbox, 1) == [QueryPaused("k", 3)]
    assert stream.received == 0

    budget.release([("k", 1_000)])
    assert read_only(inbox).items == [BEAT]
    assert stream.received == 1


def test_what_decoding_took_is_given_back_before_the_records_are_delivered(read, inbox, tasks):
    """So only as many messages are decoded at once as fit, and what is left of them is held."""
    budget = ByteBudget(1_000, tasks=tasks)
    taken = []
    stream = Stream([data("1")], size_bytes=900)
    read(stream, budget=budget, deliver=lambda output: taken.append((output, budget.taken)))
    while len(taken) < 2:
        threading.Event().wait(0.001)

    (output, held), _ = taken
    assert held == output.size_bytes == size_bytes(output.items[0]) < 900


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
    assert take(inbox, 3) == [QueryResumed("k", 3)] * 3
    assert isinstance(read_only(inbox), RecordsRead)
    assert taken[:3] == [5_000] * 3
    assert taken[3] == size_bytes(BEAT)


class Part(MemoryResponse):
    """A response that begins a value and completes none."""

    def decode(self):
        return [], 400


def test_part_of_a_value_is_held_until_its_rest_came(read, inbox, budget):
    taken = []

    class Rest(MemoryResponse):
        def decode(self):
            taken.append(budget.taken)
            return super().decode()

    read(Stream(Part([], size_bytes=500), Rest([BEAT], size_bytes=100)))

    assert take(inbox, 1) == [QueryResumed("k", 3)]
    assert take(inbox, 1) == [RecordsRead("k", 3, [BEAT], size_bytes(BEAT))]
    assert taken == [400 + 100]
    assert budget.taken == size_bytes(BEAT)


def test_more_is_held_for_what_becomes_larger_than_it_came(read, inbox, budget):
    read(Stream([data("1")], size_bytes=10))
    (output,) = take(inbox, 1)

    assert output.size_bytes == size_bytes(output.items[0]) > 10
    assert budget.taken == output.size_bytes


def test_what_becomes_larger_than_it_came_waits_until_it_fits(read, inbox, tasks):
    """Two readers, each of whose responses fits, hold no more than fits when both are decoded."""
    size = size_bytes(Translator().translate(data("1"), token="k"))
    budget = ByteBudget(size + 20, tasks=tasks)
    read(Stream([data("1")], ..., size_bytes=10), budget=budget)
    read(Stream([data("2")], ..., size_bytes=10), budget=budget, query_id=4)
    first = read_only(inbox)

    assert take(inbox, 1) == [QueryPaused("k", 7 - first.query_id)]
    assert budget.taken <= size + 20
    budget.release([("k", first.size_bytes)])
    assert take(inbox, 1) == [QueryResumed("k", 7 - first.query_id)]
    assert read_only(inbox).size_bytes == budget.taken == size


def test_a_reader_that_is_stopped_while_it_waits_to_deliver_delivers_nothing(read, inbox, tasks):
    budget = ByteBudget(1_000, tasks=tasks)
    assert tasks.run(lambda: budget.take("k", 990, is_cancelled=lambda: False))
    reader = read(Stream([data("1")], size_bytes=10), budget=budget)
    assert take(inbox, 1) == [QueryPaused("k", 3)]
    reader.stop()
    while running(tasks):
        threading.Event().wait(0.001)

    assert budget.taken == 990
    assert inbox.empty()


def test_a_failed_query_holds_nothing(read, inbox, budget):
    read(Stream([data("1", "poison")]))
    (failed,) = take(inbox, 1)

    assert isinstance(failed.error, SchemaError)
    assert budget.taken == 0


def test_stopping_frees_a_reader_that_waits_for_the_budget(read, inbox, tasks):
    budget = ByteBudget(1, tasks=tasks)
    first = read(Stream([BEAT], ...), budget=budget)
    held = read_only(inbox)
    second = read(Stream([BEAT], [BEAT]), budget=budget, token="other", query_id=4)
    second.stop()
    assert budget.taken == held.size_bytes
    first.stop()


def test_a_query_that_is_stopped_before_it_starts(inbox, budget, tasks):
    reader = PartitionReader(
        Stream([BEAT]), Translator(), token="k", query_id=1, start_ns=0,
        heartbeat_ms=1, deliver=inbox.put, budget=budget, tasks=tasks,
    )  # fmt: skip
    reader.stop()
    assert inbox.empty()


def test_nothing_comes_after_stop_returned_however_the_two_meet(budget, tasks):
    for _ in range(50):
        stopped, late = threading.Event(), []

        def deliver(output, stopped=stopped, late=late):
            if stopped.is_set():
                late.append(output)
            if isinstance(output, RecordsRead):
                budget.release([("k", output.size_bytes)])

        reader = PartitionReader(
            Stream(*[[BEAT]] * 200), Translator(), token="k", query_id=1, start_ns=0,
            heartbeat_ms=1, deliver=deliver, budget=budget, tasks=tasks,
        )  # fmt: skip
        reader.start()
        reader.stop()
        stopped.set()
        assert late == []


def test_a_translation_that_waits_holds_up_no_other_query(inbox, budget, tasks, read):
    going_on = threading.Event()

    class Waiting(Translator):
        def translate(self, record, *, token):
            if record.transaction_tag == "wait":
                assert going_on.wait(WAIT_S)
            return super().translate(record, token=token)

    waiting = PartitionReader(
        Stream([data("1", "wait"), data("2")]), Waiting(), token="slow", query_id=8, start_ns=0,
        heartbeat_ms=1, deliver=inbox.put, budget=budget, tasks=tasks,
    )  # fmt: skip
    waiting.start()
    assert take(inbox, 1) == [QueryPaused("slow", 8)]
    read(Stream([BEAT]))
    assert [output.token for output in take(inbox, 2)] == ["k", "k"]

    going_on.set()
    resumed, first, end = take(inbox, 3)
    assert resumed == QueryResumed("slow", 8)
    assert [item.record_sequence for item in first.items] == ["1", "2"]
    assert end == QueryEnded("slow", 8)


def test_a_reader_that_is_stopped_while_it_waits_gives_its_bytes_back(inbox, budget, tasks):
    going_on = threading.Event()

    class Waiting(Translator):
        def translate(self, record, *, token):
            assert going_on.wait(WAIT_S)
            return super().translate(record, token=token)

    reader = PartitionReader(
        Stream([data("1", "wait")]), Waiting(), token="k", query_id=8, start_ns=0,
        heartbeat_ms=1, deliver=inbox.put, budget=budget, tasks=tasks,
    )  # fmt: skip
    reader.start()
    assert take(inbox, 1) == [QueryPaused("k", 8)]
    reader.stop()
    going_on.set()
    while running(tasks):
        threading.Event().wait(0.001)

    assert budget.taken == 0
    assert inbox.empty()


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


def test_what_was_taken_for_a_part_of_a_value_is_given_back_on_stop(read, inbox, budget, tasks):
    """Its rest never comes; nothing was delivered, so no commit would release it."""
    reader = read(Stream(Part([], size_bytes=500), ...))
    while not budget.taken:
        threading.Event().wait(0.001)
    reader.stop()
    while running(tasks):
        threading.Event().wait(0.001)

    assert budget.taken == 0
