"""The frontier against a small model of a fleet that keeps the protocol.

The model writes transactions: data, announcements, markers, snapshots with vectors.  A reader
consumes every topic partition to some offset of its own, in steps that cut transactions anywhere;
its watermark must never be at or above a change that it has not read, must never fall, and must
reach the end when all is read.  Compaction, a late begin and thinning may hold it back meanwhile,
and nothing else.
"""

import json
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.lineage import slot_view, snapshot_queue
from tidegate.lineage.errors import MixedEpochs, ProtocolError
from tidegate.lineage.frontier import Frontier, ProgressRow, Watermark
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TableAdded,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.schemas.progress_codec import encode_key
from tidegate.schemas.topics import TopicNames

SUBSCRIPTION = Subscription(TopicNames("bank"))
PROGRESS = "bank-progress"
DATA = "bank.accounts"
SLOTS = 2
TOPIC_PARTITIONS = 2
SNAPSHOTS_A_MINUTE = 4


@dataclass
class Token:
    name: str
    slot: int
    start_us: int
    parents: tuple
    watermark_us: int
    heard: set = field(default_factory=set)

    @property
    def is_running(self):
        return self.heard == set(self.parents)


class Fleet:
    """Writes what a fleet would write, one transaction per step."""

    def __init__(self, end_us=None):
        self.logs = {(DATA, p): [] for p in range(TOPIC_PARTITIONS)}
        self.logs |= {(PROGRESS, s): [] for s in range(SLOTS)}
        self.next_offset = dict.fromkeys(self.logs, 0)
        self.tokens, self.children = {}, 0
        self.consumed = dict.fromkeys(range(SLOTS), -1)
        self.vectors = {s: {} for s in range(SLOTS)}
        self.revisions = dict.fromkeys(range(SLOTS), 0)
        self.end_us = end_us
        root = ChildPartition("root-child", ("",), 1000 * 1000)
        touched = set()
        self._append(PROGRESS, 0, self._started(root), touched)
        self._announce(0, root, "", touched)
        self._snapshot(0, touched)
        self._end_transaction(touched)
        for slot in range(1, SLOTS):
            self.beat(slot)

    def _started(self, root):
        end_ns = None if self.end_us is None else self.end_us * 1000
        topics = (DataTopic(DATA, "id", TOPIC_PARTITIONS, 7),)
        return StreamStarted("s", "g", 0, end_ns, "bank-fleet", SLOTS, "id", topics, (root,))

    def _append(self, topic, topic_partition, entry, touched):
        where = (topic, topic_partition)
        touched.add(where)
        offset = self.next_offset[where]
        self.next_offset[where] += 1
        self.logs[where].append((offset, entry))
        return offset

    def _end_transaction(self, touched):
        for where in touched:
            self.next_offset[where] += 1  # the control record

    def _wrote(self, slot, topic, topic_partition, offset):
        self.vectors[slot][topic, topic_partition] = offset

    def _announce(self, slot, child, parent, touched):
        child_slot = len(child.token) % SLOTS
        offset = self._append(PROGRESS, child_slot, PartitionAnnounced(child, parent), touched)
        self._wrote(slot, PROGRESS, child_slot, offset)

    def _snapshot(self, slot, touched):
        self.revisions[slot] += 1
        tokens = [t for t in self.tokens.values() if t.slot == slot]
        body = SlotProgress(
            slot=slot,
            revision=self.revisions[slot],
            minute=self.revisions[slot] // SNAPSHOTS_A_MINUTE,
            includes=self.consumed[slot],
            vector=tuple(TopicOffset(t, p, o) for (t, p), o in self.vectors[slot].items()),
            tokens=tuple(
                TokenSnapshot(t.name, 0, t.parents, tuple(t.heard), t.watermark_us) for t in tokens
            ),
        )
        self._append(PROGRESS, slot, body, touched)

    def consume(self, slot):
        """The owner reads its slot to the end: announcements enter."""
        for offset, body in self.logs[PROGRESS, slot]:
            if offset > self.consumed[slot] and isinstance(body, PartitionAnnounced):
                child = body.child
                start_us = child.start_ns // 1000
                fresh = Token(child.token, slot, start_us, child.parents, start_us - 1)
                self.tokens.setdefault(child.token, fresh).heard.add(body.parent)
        self.consumed[slot] = self.next_offset[PROGRESS, slot] - 1

    def beat(self, slot):
        touched = set()
        self._snapshot(slot, touched)
        self._end_transaction(touched)

    def running(self, index):
        names = sorted(t.name for t in self.tokens.values() if t.is_running)
        return self.tokens[names[index % len(names)]] if names else None

    def write(self, index, ahead_us, topic_partition):
        token = self.running(index)
        if token is None:
            return
        touched = set()
        commit_us = token.watermark_us + 1 + ahead_us
        offset = self._append(DATA, topic_partition, commit_us, touched)
        self._wrote(token.slot, DATA, topic_partition, offset)
        token.watermark_us = commit_us - 1
        self._snapshot(token.slot, touched)
        self._end_transaction(touched)

    def finish(self, indexes, children):
        """One or two stream partitions end at the same time, each in its own transaction."""
        parents = {t.name: t for i in indexes if (t := self.running(i)) is not None}
        if not parents:
            return
        end_us = max(t.watermark_us for t in parents.values()) + 1
        self.children += children
        kids = [
            ChildPartition(
                "c" * (k % 5 + 1) + str(self.children + k), tuple(parents), end_us * 1000
            )
            for k in range(children)
        ]
        for parent in parents.values():
            touched = set()
            for kid in kids:
                self._announce(parent.slot, kid, parent.name, touched)
            marker = PartitionFinished(parent.name, parent.parents, 0, end_us * 1000, (), ())
            offset = self._append(PROGRESS, parent.slot, marker, touched)
            self._wrote(parent.slot, PROGRESS, parent.slot, offset)
            del self.tokens[parent.name]
            self._snapshot(parent.slot, touched)
            self._end_transaction(touched)


def items(frontier, mark=None):
    return json.loads(json.dumps(list(frontier.items_since(mark))))


def restored(stored):
    frontier = Frontier(SUBSCRIPTION)
    frontier.apply(stored)
    return frontier


def without_announced(frontier):
    return [item for item in items(frontier) if "announced" not in item]


def announced_in(frontier, slot):
    view = frontier.view(slot)
    return None if view is None or view.current is None else view.slowest_announced()


class Reader:
    """Consumes the fleet's log in steps and keeps a frontier, stored and loaded between steps."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.marks = []
        self.reached = dict.fromkeys(fleet.logs, 0)
        self.frontier = Frontier(SUBSCRIPTION)
        self.watermark_us = -1

    def step(self, advances, shuffle, removed=frozenset()):
        """Read on, without the removed records; fold what was read twice, in two orders."""
        fresh = []
        for where, log in self.fleet.logs.items():
            before = self.reached[where]
            advance = advances[where] if advances else 10**9
            self.reached[where] = min(self.fleet.next_offset[where], before + advance)
            if where[0] == PROGRESS:
                fresh += [
                    ProgressRow(where[1], offset, ProgressRecord("e", "w", body))
                    for offset, body in log
                    if before <= offset < self.reached[where] and (where[1], offset) not in removed
                ]
        shuffle(fresh)
        reached = as_ends(self.reached)
        again = restored(items(self.frontier))
        again.fold(sorted(fresh, key=lambda row: (-row.slot, row.offset)), reached=reached)
        self.frontier.fold(fresh, reached=reached)
        assert items(again) == items(self.frontier)
        self.frontier.fold(fresh, reached=reached)
        assert items(again) == items(self.frontier)
        self.frontier.check_invariants()
        self.check_what_is_stored()
        return self.check()

    def check_what_is_stored(self):
        """What has changed since any earlier moment, after what there was then, is all."""
        self.marks.append((self.frontier.mark(), items(self.frontier)))
        for mark, before in self.marks[-4:]:
            found = restored(before)
            found.apply(items(self.frontier, mark))
            found.check_invariants()
            assert found.watermark() == self.frontier.watermark()
            # What stands for several announcements may have joined others since.
            assert without_announced(found) == without_announced(self.frontier)
            slots = range(SLOTS)
            assert [announced_in(found, n) for n in slots] == [
                announced_in(self.frontier, n) for n in slots
            ]

    def check(self):
        watermark = self.frontier.watermark()
        if watermark is None:
            assert self.watermark_us == -1
            return None
        assert watermark.us >= self.watermark_us
        self.watermark_us = watermark.us
        for where, log in self.fleet.logs.items():
            if where[0] == DATA:
                unread = [us for offset, us in log if offset >= self.reached[where]]
                assert all(us > watermark.us for us in unread)
        return watermark


advances = st.fixed_dictionaries(
    {(DATA, p): st.integers(0, 6) for p in range(TOPIC_PARTITIONS)}
    | {(PROGRESS, s): st.integers(0, 12) for s in range(SLOTS)}
)
actions = st.one_of(
    st.tuples(st.just("consume"), st.integers(0, SLOTS - 1)),
    st.tuples(st.just("beat"), st.integers(0, SLOTS - 1)),
    st.tuples(st.just("write"), st.integers(0, 9), st.integers(0, 50), st.integers(0, 1)),
    st.tuples(
        st.just("finish"), st.lists(st.integers(0, 9), min_size=1, max_size=2), st.integers(1, 2)
    ),
    st.tuples(st.just("read"), advances),
)


def played(script, fleet, on_read, after_each=lambda: None):
    """Let the fleet act, its slots consumed once before and once at the end."""
    for slot in range(SLOTS):
        fleet.consume(slot)
    for action, *arguments in script:
        if action == "read":
            on_read(arguments[0])
        else:
            getattr(fleet, action)(*arguments)
            after_each()
    for slot in range(SLOTS):
        fleet.consume(slot)
        fleet.beat(slot)


@pytest.mark.rule("spanner-order-across-partitions", "spanner-watermark", "P4")
@settings(max_examples=300, deadline=None)
@given(script=st.lists(actions, min_size=15, max_size=60), rng=st.randoms(use_true_random=False))
def test_the_watermark_is_never_early_never_falls_and_arrives(script, rng):
    fleet = Fleet()
    reader = Reader(fleet)
    played(script, fleet, lambda advances: reader.step(advances, rng.shuffle), reader.check)
    watermark = reader.step(None, rng.shuffle)
    slowest = min(fleet.tokens.values(), key=lambda t: (t.watermark_us, t.name))
    assert watermark == Watermark(slowest.watermark_us, slowest.name)


def compacted(fleet, removed, history, rng):
    """Add what compaction may take away now, and what tombstones may: any part of it, or all."""
    for slot in range(SLOTS):
        gone = removed | history
        log = [entry for entry in fleet.logs[PROGRESS, slot] if (slot, entry[0]) not in gone]
        newest = {encode_key(body): offset for offset, body in log}
        superseded = [offset for offset, body in log if newest[encode_key(body)] > offset]
        removed |= {(slot, o) for o in superseded if rng.random() < 0.8}
        history |= {(slot, o) for o in expired(log, rng)}


def expired(log, rng):
    """Return offsets of tombstoned history: snapshots, then announcements that all others hold."""
    snapshots = [(o, body) for o, body in log if isinstance(body, SlotProgress)]
    if not snapshots or rng.random() < 0.5:
        return []
    kept = snapshots[rng.randrange(len(snapshots)) :]
    first, least = kept[0][0], min(body.includes for _, body in kept)
    return [
        offset
        for offset, body in log
        if (isinstance(body, SlotProgress | PartitionFinished) and offset < first)
        or (isinstance(body, PartitionAnnounced) and offset <= least)
    ]


def is_at_most(held_back, full):
    return held_back is None or held_back.us <= full.us


@settings(max_examples=200, deadline=None)
@given(script=st.lists(actions, min_size=15, max_size=60), rng=st.randoms(use_true_random=False))
def test_whatever_compaction_takes_the_watermark_is_held_back_at_most_until_the_end(script, rng):
    """Compaction may overtake any reader; tombstones only those who have yet to begin.

    A reader that holds an old snapshot needs the announcements after it, so history may go when
    every reader is past it: min.compaction.lag.ms has to be longer than anybody is behind.
    """
    fleet = Fleet()
    full, held_back, removed, history = Reader(fleet), Reader(fleet), set(), set()

    def read(advances):
        compacted(fleet, removed, history, rng)
        watermark = full.step(advances, rng.shuffle)
        assert is_at_most(held_back.step(advances, rng.shuffle, removed), watermark)
        late = Reader(fleet)
        assert is_at_most(late.step(full.reached, rng.shuffle, removed | history), watermark)
        assert late.reached == full.reached

    played(script, fleet, read)
    compacted(fleet, removed, history, rng)
    watermark = full.step(None, rng.shuffle)
    assert watermark is not None
    assert held_back.step(None, rng.shuffle, removed) == watermark
    assert Reader(fleet).step(None, rng.shuffle, removed | history) == watermark


@settings(max_examples=100, deadline=None)
@given(
    script=st.lists(actions, min_size=15, max_size=60),
    waiting_max=st.integers(2, 4),
    rng=st.randoms(use_true_random=False),
)
def test_thinning_holds_the_watermark_back_at_most_until_the_end(script, waiting_max, rng):
    fleet = Fleet()
    full, thinned = Reader(fleet), Reader(fleet)

    def read(advances):
        watermark = full.step(advances, rng.shuffle)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slot_view, "ANNOUNCEMENTS_MAX", waiting_max)
            patch.setattr(snapshot_queue, "SNAPSHOTS_WAITING_MAX", waiting_max)
            held_back = thinned.step(advances, rng.shuffle)
        assert is_at_most(held_back, watermark)
        # Every slot's view exists as early as without thinning: its first snapshot is kept.
        assert (held_back is None) == (watermark is None)
        assert thinned.frontier.snapshots_waiting <= waiting_max * SLOTS

    played(script, fleet, read)
    read(None)
    assert thinned.frontier.watermark() == full.frontier.watermark()


@settings(max_examples=100, deadline=None)
@given(script=st.lists(actions, min_size=10, max_size=40), rng=st.randoms(use_true_random=False))
def test_slots_read_in_any_interleaving_and_in_any_portions_give_the_same_frontier(script, rng):
    fleet = Fleet()
    played(script, fleet, lambda _: None)
    ends = {where: rng.randrange(end + 1) for where, end in fleet.next_offset.items()}
    rows = [row for row in rows_of(fleet) if row.offset < ends[PROGRESS, row.slot]]
    at_once = Frontier(SUBSCRIPTION)
    at_once.fold(rows, reached=as_ends(ends))

    reached, pieces = dict.fromkeys(ends, 0), Frontier(SUBSCRIPTION)
    while reached != ends:
        where = rng.choice([one for one in sorted(ends) if reached[one] < ends[one]])
        before = reached[where]
        reached[where] = rng.randint(before + 1, ends[where])
        portion = [
            row
            for row in rows
            if (PROGRESS, row.slot) == where and before <= row.offset < reached[where]
        ]
        pieces.fold(portion, reached=as_ends(reached))
        pieces = restored(items(pieces))
        pieces.check_invariants()
    pieces.fold([], reached=as_ends(ends))
    assert items(pieces) == items(at_once)
    pieces.fold(rows, reached=as_ends(ends))
    assert items(pieces) == items(at_once)


def as_ends(offsets):
    ends = {}
    for (topic, topic_partition), offset in offsets.items():
        ends.setdefault(topic, {})[topic_partition] = offset
    return ends


def end_of(fleet):
    return as_ends(fleet.next_offset)


def rows_of(fleet, *, epoch="e"):
    return [
        ProgressRow(slot, offset, ProgressRecord(epoch, "w", body))
        for (topic, slot), log in fleet.logs.items()
        if topic == PROGRESS
        for offset, body in log
    ]


@pytest.fixture
def fleet():
    fleet = Fleet()
    fleet.consume(1)
    fleet.consume(0)
    return fleet


def folded(rows, reached, subscription=SUBSCRIPTION):
    frontier = Frontier(subscription)
    frontier.fold(rows, reached=reached)
    return frontier


@pytest.mark.rule("spanner-watermark")
def test_there_is_no_watermark_before_every_slot_has_a_snapshot(fleet):
    rows = [row for row in rows_of(fleet) if row.slot == 0]
    frontier = folded(rows, end_of(fleet))
    assert frontier.watermark() is None
    frontier.fold(rows_of(fleet), reached=end_of(fleet))
    assert frontier.watermark() == Watermark(999, "root-child")


def test_a_topic_that_is_not_discovered_yet_is_not_reached_and_a_foreign_one_is(fleet):
    fleet.vectors[0]["bank-dead-letter", 0] = fleet.vectors[1]["bank-dead-letter", 0] = 99
    fleet.write(0, 5, 0)
    ends = end_of(fleet)
    without = {topic: offsets for topic, offsets in ends.items() if topic != DATA}
    frontier = folded(rows_of(fleet), without)
    assert frontier.watermark() == Watermark(999, "root-child")
    frontier.fold([], reached=ends)
    assert frontier.watermark() == Watermark(1004, "root-child")


def test_a_stream_whose_data_topics_have_other_names_is_refused_as_soon_as_it_is_known(fleet):
    """Its topics would be foreign ones, which count as reached: the watermark would pass all."""
    rows = rows_of(fleet)
    other = Frontier(Subscription(TopicNames("bank", "{prefix}-{table}")))
    with pytest.raises(ConfigError, match="topic_template: the stream was begun with"):
        other.fold(rows[:1], reached=end_of(fleet))
    assert other.watermark() is None


def test_two_epochs_two_streams_and_another_number_of_slots_are_refused(fleet):
    rows = rows_of(fleet)
    other = replace(rows[-1], offset=999, record=replace(rows[-1].record, epoch="f"))
    with pytest.raises(MixedEpochs):
        folded([*rows, other], end_of(fleet))
    started = rows[0].record
    stream = replace(started, body=replace(started.body, stream="another"))
    with pytest.raises(ProtocolError, match="two streams"):
        folded([*rows, replace(rows[0], offset=999, record=stream)], end_of(fleet))
    ends = end_of(fleet)
    ends[PROGRESS][SLOTS] = 0
    with pytest.raises(ProtocolError, match="slots"):
        folded(rows, ends)


@pytest.mark.parametrize("end_us", [5000, None])
def test_a_stream_without_stream_partitions_ends_at_its_end_or_is_an_error(end_us):
    fleet = Fleet(end_us)
    played([("finish", [0], 0)], fleet, None)
    frontier = folded(rows_of(fleet), end_of(fleet))
    assert frontier.finished_tokens == 1
    if end_us is None:
        with pytest.raises(ProtocolError, match="unbounded"):
            frontier.watermark()
    else:
        assert frontier.watermark() == Watermark(5000, None)


def test_the_topics_of_every_chunk_of_the_streams_start_count(fleet):
    first, *rest = rows_of(fleet)
    more = replace(first.record.body, topics=(DataTopic("bank.b", "b", 1, 9),), chunk=1, chunks=2)
    other = replace(more, topics=(DataTopic(DATA, "other", 1, 8),))
    end = fleet.next_offset[PROGRESS, 0]
    rows = [first, *rest] + [
        replace(first, offset=end + number, record=replace(first.record, body=body))
        for number, body in enumerate((more, other))
    ]
    frontier = Frontier(SUBSCRIPTION)
    assert frontier.key_schema_id(DATA) is None
    frontier.fold(rows[:-2], reached=end_of(fleet))
    mark, before = frontier.mark(), folded(rows[:-2], end_of(fleet))
    frontier.fold(rows, reached=end_of(fleet))
    before.apply(items(frontier, mark))
    for one in (frontier, restored(items(frontier)), before):
        assert [one.key_schema_id(topic) for topic in (DATA, "bank.b", "bank.x")] == [7, 9, None]
        assert one.topic_ids == {DATA: "id", "bank.b": "b"}


def test_a_later_table_fixes_its_key_schema_by_its_first_record(fleet):
    topics = [("bank.later", 8), ("bank.later", 9), ("bank.loose", 0), (DATA, 9)]
    rows = [row for row in rows_of(fleet) if row.slot == 0]
    offset = rows[-1].offset
    for number, (topic, schema_id) in enumerate(topics, 1):
        body = TableAdded(DataTopic(topic, "id", 3, schema_id))
        rows.append(ProgressRow(0, offset + number, replace(rows[0].record, body=body)))
    frontier = restored(items(folded(rows, end_of(fleet))))
    names = ("bank.later", "bank.loose", DATA)
    assert [frontier.key_schema_id(name) for name in names] == [8, None, 7]


def beat(slot, revision, *tokens, includes=-1, vector=()):
    """A heartbeat with (token, watermark) pairs."""
    snapshots = tuple(TokenSnapshot(name, 0, (), (), us) for name, us in tokens)
    return SlotProgress(slot, revision, 0, includes, vector, snapshots)


def test_accepted_gaps_are_known_before_the_watermark_passes_them_and_are_stored():
    gaps = [PartitionGap("t", 5, 9, "ops", 1), PartitionGap("a", 3, 4, "ops", 2)]
    assert [gaps[0].covers(us) for us in (4, 5, 8, 9)] == [False, True, True, False]
    started = StreamStarted("s", "g", 0, None, "bank-fleet", 1, "id", (), ())
    first, second = (
        beat(0, revision, ("t", us), vector=(TopicOffset(PROGRESS, 0, offset),))
        for revision, us, offset in ((1, 4, 0), (2, 8, 2))
    )
    bodies = [started, first, gaps[0], second, gaps[1], gaps[1]]
    rows = [ProgressRow(0, n, ProgressRecord("e", "w", body)) for n, body in enumerate(bodies)]
    frontier = folded(rows[:2], {PROGRESS: {0: 2}})
    mark, before = frontier.mark(), items(frontier)
    assert (frontier.watermark(), frontier.gaps) == (Watermark(4, "t"), ())
    frontier.fold(rows[2:3], reached={PROGRESS: {0: 3}})
    assert (frontier.watermark(), frontier.gaps) == (Watermark(4, "t"), (gaps[0],))
    frontier.fold(rows[:5], reached={PROGRESS: {0: 5}})
    assert (frontier.watermark(), frontier.gaps) == (Watermark(8, "t"), (gaps[1], gaps[0]))
    for stored in (items(frontier), before + items(frontier, mark)):
        assert restored(stored).gaps == frontier.gaps


def test_slots_are_listed_with_their_slowest_stream_partition_the_one_furthest_behind_first():
    frontier = Frontier(SUBSCRIPTION)
    assert frontier.slowest_of_slots() == []
    child = PartitionAnnounced(ChildPartition("d", ("",), 7_000), "a")
    bodies = [beat(0, 1, ("a", 9)), beat(1, 1), beat(2, 1, ("b", 7), ("c", 5)), child]
    rows = [
        ProgressRow(slot, 0, ProgressRecord("e", "w", body)) for slot, body in enumerate(bodies)
    ]
    frontier.fold(rows, reached={PROGRESS: dict.fromkeys(range(4), 1)})
    found = [(slot, one.token, one.watermark_us) for slot, one in frontier.slowest_of_slots()]
    assert found == [(2, "c", 5), (3, "d", 6), (0, "a", 9)]


def test_the_worker_of_a_slot_wrote_its_newest_heartbeat():
    child = ChildPartition("t", ("",), 0)
    started = StreamStarted("s", "g", 0, None, "bank-fleet", 2, "id", (), (child,))
    announced = PartitionAnnounced(child, "")
    heartbeats = [beat(0, n, ("t", n), includes=1) for n in (1, 2)]
    frontier = Frontier(SUBSCRIPTION)
    for offset, worker, body, workers in (
        (0, "a", started, {}),
        (1, "b", announced, {}),
        (2, "a", heartbeats[0], {0: "a"}),
        (3, "b", announced, {0: "a"}),
        (4, "b", heartbeats[1], {0: "b"}),
        (2, "a", heartbeats[0], {0: "b"}),  # read before
    ):
        rows = [ProgressRow(0, offset, ProgressRecord("e", worker, body))]
        frontier.fold(rows, reached={PROGRESS: {0: offset + 1, 1: offset + 1}})
        assert frontier.workers == workers
