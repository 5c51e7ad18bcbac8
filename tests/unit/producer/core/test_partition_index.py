"""The index holds what a scan of all stream partitions would find, and no event scans them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US
from tidegate.producer.core import events as on
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.errors import QueryInterrupted
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import slot_of

TOKENS = tuple(f"p{number}" for number in range(300))
READ = "p7"


class CountedTokens(dict):
    """The stream partitions of a slot; counts those that somebody looks at."""

    looked_at: Counter[str]

    def __iter__(self):
        for token in super().__iter__():
            self.looked_at[token] += 1
            yield token

    def items(self):
        for token in self:
            yield token, self[token]

    def values(self):
        for token in self:
            yield self[token]


@pytest.fixture
def looked_at(bench):
    """Count the stream partitions that the worker looks at, in a worker with many."""
    bench.open_stream(*TOKENS)
    bench.later(61_000_000)
    bench.later()
    bench.runner._observe = lambda _event, _worker: None  # which looks at all of them, to compare
    found: Counter[str] = Counter()
    for slot in bench.worker.slots.values():
        slot.tokens = CountedTokens(slot.tokens)
        slot.tokens.looked_at = found
    return found


class TestWork:
    """An event costs work in proportion to what it changes."""

    def test_of_records_and_ticks(self, bench, looked_at):
        bench.worker._cycle._due_us = bench.now_us + 10**12
        for number in range(10):
            bench.returns(READ, bench.change(bench.now_us + number))
            bench.give(on.Ticked())

        assert looked_at.total() == 0

    def test_of_a_failed_query_and_its_repetition(self, bench, looked_at):
        bench.worker._cycle._due_us = bench.now_us + 10**12
        error = QueryInterrupted("away")
        bench.give(on.QueryFailed(READ, bench.queries.pop(READ).query_id, error))
        bench.now_us += 10_000_000
        bench.give(on.Ticked(has_read_inbox=False))

        assert READ in bench.queries
        assert looked_at.total() == 0

    def test_of_the_beginning_of_a_transaction(self, bench, looked_at):
        bench.worker._cycle._due_us = due_us = bench.now_us + 10**12
        bench.returns(READ, bench.change(bench.now_us))
        publication = StreamPartition.publication
        taken = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                StreamPartition,
                "publication",
                lambda self: taken.append(self.child.token) or publication(self),
            )
            bench.worker.handle(on.Ticked(has_read_inbox=False), now=bench.at(due_us))

        assert taken == [READ]
        assert looked_at.total() == 0

    def test_of_what_metrics_show(self, bench, looked_at):
        assert bench.worker.watermark_us == START_US - 1
        assert bench.worker.states[PartitionState.RUNNING] == len(TOKENS)
        assert not bench.worker.stopped
        assert looked_at.total() == 0


class TestInvariants:
    """A change that the index has not seen is noticed."""

    @pytest.mark.parametrize(
        ("attribute", "value"),
        [("state", PartitionState.CREATED), ("pending_bytes", 5), ("retry_at_us", 5)],
    )
    def test_of_one_stream_partition(self, bench, attribute, value):
        bench.open_stream("a", "b")
        bench.worker.check_invariants()
        slot = bench.worker.slots[slot_of("a", SLOTS)]
        setattr(slot.tokens["a"], attribute, value)

        with pytest.raises(InvariantViolation, match="index differs"):
            bench.worker._index.check_invariants(bench.worker.slots.values())

    def test_of_a_slot_that_is_gone(self, bench):
        bench.open_stream("a", "b")
        bench.give(on.SlotsLost((slot_of("a", SLOTS),)))
        bench.worker.check_invariants()

        assert bench.worker.states[PartitionState.RUNNING] == 1

    def test_of_keys_that_one_of_several_parents_had_parked(self):
        """The first parent creates the child and the last one starts it; another does neither."""
        index = PartitionIndex(SLOTS)
        parents = ("p1", "p2", "p3")
        child = StreamPartition(ChildPartition("child", parents, START_US * 1_000))
        child.report_changes(index.changed)
        counts = []
        for number, parent in enumerate(parents):
            child.announce(parent, (number, number + 10))
            counts.append(index.parked_keys)

        assert counts == [2, 4, 6]
