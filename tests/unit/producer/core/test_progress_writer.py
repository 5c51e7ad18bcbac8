"""The records that a slot writes of itself, and which slot each progress record goes to."""

from dataclasses import replace

import pytest

from tidegate.producer.core.position import Position
from tidegate.producer.core.progress_writer import (
    HeartbeatLimits,
    HeartbeatWriter,
    ProgressWriter,
    SlotState,
)
from tidegate.producer.core.publication import ParkedKeys, Publication
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.records import HeartbeatRecord
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import (
    ChildPartition,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    TokenSnapshot,
    TopicTotals,
)
from tidegate.schemas.progress_chain import SlotChain
from tidegate.schemas.progress_codec import encode_record
from tidegate.schemas.topics import slot_of

BEGIN_US = 1_000_000
TOKEN_BYTES = 200  # about what Spanner's tokens have


class Bench:
    """One slot's tokens, its writer, and a reader of everything that was committed."""

    def __init__(self, limits=None):
        self.writer = HeartbeatWriter(3, limits or HeartbeatLimits())
        self.tokens = {}
        self.chain = None
        self.state = SlotState(0, -1, -1, {})
        self.minute = 100
        self.now_us = BEGIN_US

    def announce(self, token):
        partition = StreamPartition(ChildPartition(token, (), BEGIN_US * 1000))
        self.tokens[token] = partition
        self.writer.add(token, partition)
        partition.announce("")
        self.writer.change(token, partition)

    def read(self, token, *items):
        partition = self.tokens[token]
        if partition.query_id is None:
            partition.start_query(1)
        partition.add_items(list(items), 1)

    def heartbeat(self, token):
        self.now_us += 10
        self.read(token, HeartbeatRecord(self.now_us * 1000))

    def change(self, token):
        self.now_us += 10
        key = OrderKey(self.now_us, "tx", (0, 1), 0).encode()
        message = ChangeMessage("t", b"k", b"v", key, b"I", bytes(8))
        self.read(token, PublishableRecord(self.now_us, "tx", "00000001", (message,)))

    def draft(self, written=None):
        publications = {t: p.publication() for t, p in self.tokens.items() if p.has_news}
        after = SlotState(self.state.revision + 1, self.minute, 9, written or {})
        heartbeat = self.writer.draft(self.tokens, publications, self.state, after)
        return heartbeat, publications

    def commit(self, written=None):
        """Commit everything; return the heartbeat, which the reader has compared."""
        heartbeat, publications = self.draft(written)
        for token, publication in publications.items():
            self.tokens[token].confirm(publication)
        self.writer.confirm(heartbeat, self.tokens, publications)
        vector = {**self.state.vector, **heartbeat.after.vector}
        self.state = replace(heartbeat.after, vector=vector)
        self.compare(heartbeat)
        return heartbeat

    def compare(self, heartbeat):
        body = heartbeat.body
        if isinstance(body, SlotProgress):
            self.chain = SlotChain(body, offset=0)
        else:
            self.chain.add(body)
        snapshots = {t: p.snapshot(version=self.writer.version) for t, p in self.tokens.items()}
        assert self.chain.tokens == snapshots
        assert self.chain.vector == self.state.vector
        marks = [(p.published.watermark_us, t) for t, p in self.tokens.items()]
        for record in (body, heartbeat.watermark):
            if record is not None and not isinstance(record, SlotProgress):
                slowest = record.slowest and (record.slowest.watermark_us, record.slowest.token)
                assert slowest == min(marks, default=None)
                assert record.open == len(marks)
        self.writer.check_invariants(self.tokens)


@pytest.mark.parametrize(("count", "moving"), [(10, 3), (1_000, 10), (3_000, 100)])
def test_a_heartbeat_costs_in_proportion_to_what_moved(count, moving):
    """The formula of `docs/reference/topics.md`: k of n tokens take at most 200 k + 4,096 bytes."""
    limits = HeartbeatLimits(chain_length_max=10_000, chain_entries_min=100_000)
    bench, tokens = Bench(limits), [str(at).zfill(TOKEN_BYTES) for at in range(count)]
    for token in tokens:
        bench.announce(token)
    bench.commit()
    for token in tokens[:moving]:
        bench.change(token)
    body = bench.commit({("t", 0): 1}).body
    assert isinstance(body, SlotChanges)
    assert len(body.moved) == moving
    data = encode_record(ProgressRecord("e", "w", body))
    assert len(data) <= 200 * moving + 4_096 - TOKEN_BYTES


def test_a_chain_ends_when_its_changes_outweigh_the_snapshot():
    limits = HeartbeatLimits(chain_length_max=100, chain_entries_min=3, chain_entries_per_token=1)
    bench = Bench(limits)
    bench.announce("a")
    kinds = []
    for _ in range(8):
        bench.heartbeat("a")
        kinds.append(type(bench.commit().body))
    assert [kind is SlotProgress for kind in kinds] == [True, *[False] * 4, True, False, False]


def test_a_stream_partition_that_stands_still_costs_no_memory_while_others_move():
    bench = Bench()
    for token in ("stopped", "a", "b"):
        bench.announce(token)
    for _ in range(500):
        bench.heartbeat("a")
        bench.heartbeat("b")
        bench.commit()
    assert len(bench.writer._by_watermark) < 100


def test_a_watermark_is_written_once_a_minute_and_removed_in_time():
    bench = Bench(HeartbeatLimits(history_minutes=3))
    assert bench.commit().watermark.minute == 100
    assert bench.commit().watermark is None
    bench.minute = 101
    assert [one.minute for one in bench.commit().expired] == [98]
    bench.minute = 110  # nobody wrote in between, and 3 minutes are kept
    assert [one.minute for one in bench.commit().expired] == [105, 106, 107]
    bench.minute = 50  # a clock that was set back
    assert bench.commit().expired == ()


def test_version_1_writes_whole_snapshots_only():
    bench = Bench(HeartbeatLimits(version=1))
    bench.announce("a")
    for _ in range(3):
        bench.heartbeat("a")
        heartbeat, _ = bench.draft()
        assert isinstance(heartbeat.body, SlotProgress)
        assert heartbeat.watermark is None
        assert [token.number for token in heartbeat.body.tokens] == [-1]
        encode_record(ProgressRecord("e", "w", heartbeat.body, 1))
        bench.commit()


@pytest.mark.parametrize(("found", "wanted"), [(1, 1), (2, 2)])
def test_a_slot_never_goes_back_to_an_earlier_version(found, wanted):
    writer = HeartbeatWriter(3, HeartbeatLimits(version=1))
    writer.restore(SlotChain(SlotProgress(3, 1, 0, -1, (), ()), offset=0), found)
    assert writer.version == wanted


SLOTS = 16
WRITER = ProgressWriter("epoch", "w1", SLOTS, chunk_items_max=2)
PARENT = StreamPartition(ChildPartition("parent", ("older",), 1_000))
TOTALS = {name: TopicTotals(name, 1, 1, 10, 5) for name in ("p.b", "p.a")}


def publication(*tokens, finish=True):
    children = tuple(ChildPartition(token, ("parent",), 9_000) for token in tokens)
    return Publication((), 0, Position(8), TOTALS, (9_000, children) if finish else None)


def test_a_large_record_is_cut_into_chunks():
    tokens = tuple(TokenSnapshot(f"t{number}", 1, (), (), 5) for number in range(5))
    effects = WRITER.record(SlotProgress(3, 1, 0, -1, (), tokens), slot=3)
    assert [effect.record.body.chunk for effect in effects] == [0, 1, 2]
    assert sum((effect.record.body.tokens for effect in effects), ()) == tokens


def test_a_finish_announces_every_child_with_its_keys_before_its_marker():
    finished = replace(publication("x", "y"), parked=ParkedKeys(frozenset({7, -3, 5}), 9))
    *announced, marker = WRITER.finish(PARENT, finished, slot=7, version=2)
    assert [effect.slot for effect in announced] == [slot_of(token, SLOTS) for token in "xy"]
    assert (marker.record.epoch, marker.record.worker) == ("epoch", "w1")
    bodies = [effect.record.body for effect in announced]
    assert [(one.child.token, one.parked_keys) for one in bodies] == [
        ("x", (-3, 5, 7)), ("y", (-3, 5, 7)),
    ]  # fmt: skip
    assert all(effect.author_slot == 7 for effect in (*announced, marker))
    body = marker.record.body
    assert (marker.slot, body.token, body.parents, body.start_ns, body.end_ns, body.parked) == (
        7, "parent", ("older",), 1_000, 9_000, 9,
    )  # fmt: skip
    assert [entry.topic for entry in body.totals] == ["p.a", "p.b"]


@pytest.mark.parametrize("tokens", [(), ("x",)])
def test_without_a_finish_nothing_is_written(tokens):
    assert WRITER.finish(PARENT, publication(*tokens, finish=False), slot=7, version=2) == []
