"""Readers: what is reported and when, and the budget that holds them back."""

import threading
from queue import Empty, SimpleQueue

import pytest

from tidegate.producer.core.events import QueryEnded, QueryFailed, RecordsRead
from tidegate.producer.driver.partition_reader import ByteBudget, PartitionReader, size_bytes
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.spanner_records import (
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
        message = ChangeMessage("p.t", token.encode(), b"v" * 100, b"o", b"I")
        return PublishableRecord(1, "tx", record.record_sequence, (message,))


class Stream:
    """A change stream that returns what a test scripts; `...` blocks until it is cancelled."""

    def __init__(self, *script):
        self.script = script
        self.cancelled = threading.Event()
        self.asked = None

    def query(self, **arguments):
        self.asked = arguments
        return self

    def __iter__(self):
        for step in self.script:
            if step is ...:
                assert self.cancelled.wait(WAIT_S)
                raise QueryInterrupted("cancelled", code="CANCELLED")
            if isinstance(step, Exception):
                raise step
            yield step

    def cancel(self):
        self.cancelled.set()


@pytest.fixture
def inbox():
    return SimpleQueue()


@pytest.fixture
def budget():
    return ByteBudget(10_000)


@pytest.fixture
def read(inbox, budget):
    readers = []

    def start(stream, **changes):
        reader = PartitionReader(
            stream,
            Translator(),
            **{
                "token": "k", "query_id": 3, "start_ns": 1, "heartbeat_ms": 300,
                "deliver": inbox.put, "budget": budget, **changes,
            },
        )  # fmt: skip
        readers.append(reader)
        reader.start()
        return reader

    yield start
    for reader in readers:
        reader.stop()
        assert not reader._thread.is_alive()


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


def test_a_failed_query_is_told(read, inbox):
    error = QueryInterrupted("gone", code="UNAVAILABLE")
    read(Stream([BEAT], error))
    _, failed = take(inbox, 2)
    assert failed == QueryFailed("k", 3, error)


def test_poison_is_told_after_the_records_before_it(read, inbox):
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


def test_a_reader_waits_for_the_budget_and_goes_on_when_bytes_are_given_back(read, inbox):
    budget = ByteBudget(size_bytes(BEAT))
    reader = read(Stream([BEAT], [BEAT], [BEAT]), budget=budget)
    for left in (2, 1, 0):
        (output,) = take(inbox, 1)
        assert budget.taken == output.size_bytes
        if left:
            assert inbox.empty()
        reader.release(output.size_bytes)
    assert take(inbox, 1) == [QueryEnded("k", 3)]
    assert budget.taken == 0


def test_what_fits_never_is_let_in_alone(read, inbox):
    budget = ByteBudget(1)
    reader = read(Stream([data("1")], [BEAT]), budget=budget)
    (large,) = take(inbox, 1)
    assert large.size_bytes > 1
    reader.release(large.size_bytes)
    assert take(inbox, 1)[0].items == [BEAT]


def test_stopping_frees_a_reader_that_waits_for_the_budget(read, inbox):
    budget = ByteBudget(1)
    first = read(Stream([BEAT], ...), budget=budget)
    (held,) = take(inbox, 1)
    second = read(Stream([BEAT], [BEAT]), budget=budget, token="other", query_id=4)
    second.stop()
    assert not second._thread.is_alive()
    assert budget.taken == held.size_bytes
    first.stop()


def test_a_query_that_is_stopped_before_it_starts(inbox, budget):
    reader = PartitionReader(
        Stream([BEAT]), Translator(), token="k", query_id=1, start_ns=0,
        heartbeat_ms=1, deliver=inbox.put, budget=budget,
    )  # fmt: skip
    reader.stop()
    assert inbox.empty()


def test_giving_back_more_than_was_taken_is_a_bug(budget):
    with pytest.raises(InvariantViolation):
        budget.release(1)


def test_sizes_grow_with_what_is_held():
    small = PublishableRecord(1, "tx", "0", ())
    message = ChangeMessage("p.t", b"kk", b"vvv", b"o", b"I")
    large = PublishableRecord(1, "tx", "0", (message, message))
    assert size_bytes(large) - size_bytes(small) >= 12
    assert size_bytes(BEAT) > 0
