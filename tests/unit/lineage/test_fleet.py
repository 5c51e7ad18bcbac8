"""All slots of an epoch: status, lineage, what is published, and why something stopped."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.lineage.errors import ProtocolError, is_expired, read_stop, stop_text
from tidegate.lineage.fleet_status import PartitionCondition, fleet_status
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.lineage.lineage_graph import PartitionHistory, lineage_graph
from tidegate.producer.errors import PositionExpired, SourceFileError
from tidegate.schemas.errors import InvariantViolation, SchemaError
from tidegate.schemas.progress import (
    MOVE_OUTS,
    STARTS,
    ChildPartition,
    ControlState,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressRecord,
    SlotChanges,
    SlotPaused,
    SlotProgress,
    SlowestToken,
    StreamControl,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)
from tidegate.schemas.topics import slot_of

PROGRESS, SLOTS = "p-progress", 2
DIALECT = "GOOGLE_STANDARD_SQL"
STARTED = StreamStarted("s", DIALECT, 0, None, "g", SLOTS, "id", topics=(), children=())


def token(name, watermark_us, *, boundary=(), parents=(), **fields):
    entries = tuple((one, "a-1") for one in boundary)
    fields = {"number": 0, **fields}
    return TokenSnapshot(name, 0, parents, ("",), watermark_us, boundary=entries, **fields)


def announced(name, start_us):
    return PartitionAnnounced(ChildPartition(name, ("a",), start_us * 1_000), "a")


class Fleet:
    """A view of two slots, and the next offset of each."""

    def __init__(self, **options):
        self.view = FleetView(epoch="e", progress_topic=PROGRESS, slots=SLOTS, **options)
        self.next = [0] * SLOTS
        self.rows = []

    def add(self, slot, body, *, epoch="e", worker="w", version=2):
        record = ProgressRecord(epoch, worker, body, version)
        self.rows.append(ProgressRow(slot, self.next[slot], record))
        self.next[slot] += 1
        self.fold(self.rows[-1:])

    def fold(self, rows):
        self.view.fold(rows, reached=dict(enumerate(self.next)))

    def beat(self, slot, *tokens, revision=None, minute=0, vector=(), **record):
        revision = self.next[slot] + 1 if revision is None else revision
        entries = tuple(TopicOffset(*entry) for entry in vector)
        self.add(slot, SlotProgress(slot, revision, minute, -1, entries, tokens), **record)

    @property
    def lowest(self):
        return [self.view.lowest_us(slot) for slot in range(SLOTS)]

    def status(self, end_ns=None):
        return fleet_status(self.view, replace(STARTED, end_ns=end_ns), epoch="e")


@pytest.fixture
def fleet():
    return Fleet()


def test_each_slot_has_its_lowest(fleet):
    # Data need not be read.
    fleet.beat(0, token("a", 30), token("b", 20), vector=[("p.items", 0, 10**6)])
    assert (fleet.lowest, fleet.view.is_complete) == ([20, None], False)
    fleet.beat(1)
    assert (fleet.lowest, fleet.view.is_complete) == ([20, None], True)


def test_what_is_stopped_holds_nothing(fleet):
    fleet.beat(0, token("a", 30), token("b", 20, stopped="refused"))
    assert fleet.lowest[0] == 30
    assert fleet.view.has_stopped
    fleet.beat(0, token("a", 30), token("b", 20))
    assert not fleet.view.has_stopped


def test_a_parent_leaves_only_after_its_child_has_entered(fleet):
    fleet.beat(0, token("a", 30))
    gone = SlotChanges(0, 2, 1, 0, -1, (TopicOffset(PROGRESS, 1, 0),), None, 0, removed=(0,))
    fleet.add(0, gone)
    assert fleet.lowest[0] == 30
    fleet.add(1, announced("c", 50))
    assert fleet.lowest == [None, 49]


def test_records_of_another_epoch_and_those_taken_before_change_nothing(fleet):
    fleet.beat(0, token("old", 1), revision=5, epoch="former")
    fleet.beat(0, token("a", 30), revision=1)
    assert fleet.lowest[0] == 30
    added = (token("b", 40, number=1),)
    fleet.add(0, SlotChanges(0, 2, 1, 0, -1, (), SlowestToken("b", 40), 1, added, removed=(0,)))
    fleet.fold(fleet.rows)
    assert fleet.lowest[0] == 40


def test_a_slot_of_version_1_holds_nothing_since_it_does_not_say_what_is_stopped(fleet):
    fleet.beat(0, token("a", 30), version=1)
    assert fleet.lowest[0] is None
    fleet.beat(0, token("a", 40))
    assert fleet.lowest[0] == 40


def test_two_writers_of_one_slot_are_refused(fleet):
    fleet.beat(0, token("a", 30), revision=2)
    with pytest.raises(ProtocolError, match="two workers"):
        fleet.beat(0, token("a", 40), revision=2)


def test_every_open_stream_partition_is_named_with_what_holds_it(fleet):
    stopped = token("stopped", 20, number=1, stopped="QueryError: refused")
    waiting = token("waiting", 40, number=2, parents=("", "q"))
    fleet.beat(0, token("open", 30), stopped, waiting)
    fleet.beat(1, token("other", 25), worker="v")

    status = fleet.status()
    names = [
        (partition.token, partition.slot, partition.worker, partition.condition.name)
        for partition in status.partitions
    ]
    assert names == [
        ("stopped", 0, "w", "STOPPED"),
        ("other", 1, "v", "OPEN"),
        ("open", 0, "w", "OPEN"),
        ("waiting", 0, "w", "WAITING"),
    ]
    reasons = [(partition.error, partition.reason) for partition in status.partitions[:2]]
    assert reasons == [("QueryError", "refused"), (None, None)]
    assert [(slot.open, slot.watermark_us) for slot in status.slots] == [(3, 20), (1, 25)]
    assert (status.watermark_us, status.has_ended) == (20, False)


def test_accepted_gaps_are_listed_and_a_stop_has_the_minute_in_which_it_was_first_said(fleet):
    """One that is read again has none."""
    stopped = token("b", 20, number=1, stopped="why not")
    fleet.beat(0, token("a", 20, stopped="why"), minute=7)
    fleet.beat(1, minute=7)
    fleet.add(0, SlotChanges(0, 2, 1, 9, -1, (), SlowestToken("a", 20), 2, (stopped,)))

    def since():
        return {
            partition.token: partition.stopped_since_us for partition in fleet.status().partitions
        }

    assert since() == {"a": 7 * 60_000_000, "b": 9 * 60_000_000}
    gap = PartitionGap("a", 21, 40, "ops", 8)
    fleet.add(0, gap)
    fleet.beat(0, token("a", 39), stopped, revision=3, minute=11)
    assert since() == {"a": None, "b": 9 * 60_000_000}
    assert fleet.status().gaps == (gap,)


def test_a_slot_is_paused_once_an_owner_has_said_so_of_the_last_control(fleet):
    pause = StreamControl(1, ControlState.PAUSED, "me", 7)
    fleet.beat(0)
    fleet.beat(1)
    fleet.add(1, SlotPaused(1, 1))
    for body, expected in (
        (pause, ([False, True], True, False)),
        (SlotPaused(0, 1), ([True, True], True, True)),
        (replace(pause, number=2, state=ControlState.RUNNING), ([False, False], False, False)),
        # Another pause is not the one that was obeyed.
        (replace(pause, number=3), ([False, False], True, False)),
    ):
        fleet.add(0, body)
        status = fleet.status()
        paused = [slot.is_paused for slot in status.slots]
        assert (paused, status.is_to_pause, status.is_paused) == expected


def test_the_watermark_is_unknown_before_each_slot_has_a_heartbeat(fleet):
    fleet.beat(0, token("a", 9))
    status = fleet.status()
    assert (status.watermark_us, status.slots[1].version) == (None, 0)


@pytest.mark.parametrize(("end_ns", "expected"), [(70_000, (70, True)), (None, (None, False))])
def test_without_a_stream_partition_a_bounded_stream_has_ended(fleet, end_ns, expected):
    fleet.beat(0)
    fleet.beat(1)
    status = fleet.status(end_ns)
    assert (status.watermark_us, status.has_ended) == expected
    # What was announced since the heartbeat counts.
    fleet.add(1, announced("c", 50))
    assert fleet.status(end_ns).watermark_us == 49


MOVED_US = 30
HERE, THERE = (
    next(f"t{n}" for n in itertools.count() if slot_of(f"t{n}", SLOTS) == slot) for slot in (0, 1)
)


class MovingFleet(Fleet):
    """Answers what a stream partition has published before `MOVED_US`."""

    def __init__(self):
        super().__init__(with_moves=True)
        self.add(0, STARTED)

    def finish(self, slot, name, *, end_us):
        self.add(slot, PartitionFinished(name, (), 0, end_us * 1000, (), ()))

    def has_published(self, name):
        return self.view.has_published(name, MOVED_US)


@pytest.fixture
def moving():
    return MovingFleet()


@pytest.mark.parametrize(
    ("watermark_us", "boundary", "has_published"),
    [
        (MOVED_US - 2, (), False),
        (MOVED_US - 1, (), False),
        (MOVED_US - 1, ("a transaction", STARTS), False),
        (MOVED_US - 1, ("a transaction", MOVE_OUTS), True),
        (MOVED_US - 2, (MOVE_OUTS,), False),
        (MOVED_US, (), True),
    ],
)
def test_one_that_is_open_is_judged_by_its_own_position(
    moving, watermark_us, boundary, has_published
):
    moving.beat(0, token(HERE, watermark_us, boundary=boundary))
    assert moving.has_published(HERE) is has_published


def test_one_that_is_stopped_is_as_far_as_it_has_published(moving):
    moving.beat(0, token(HERE, MOVED_US - 5, stopped="refused"))
    moving.beat(1, token(THERE, MOVED_US + 5))
    assert not moving.has_published(HERE)


def test_a_marker_proves_it_even_before_its_slot_lets_it_go(moving):
    moving.beat(0, token(HERE, MOVED_US - 5))
    moving.finish(0, HERE, end_us=MOVED_US + 5)
    assert moving.has_published(HERE)
    moving.beat(0)
    assert moving.has_published(HERE)


def test_one_that_no_slot_holds_may_come_until_all_are_past_it(moving):
    moving.beat(0, token(HERE, MOVED_US - 2))
    moving.beat(1)
    assert not moving.has_published(THERE)
    moving.beat(0, token(HERE, MOVED_US - 1))
    # The worker that has named it had to read on for that: it would be known.
    assert moving.has_published(THERE)


def test_one_that_was_announced_and_is_not_read_yet_holds_it_up(moving):
    moving.beat(0, token(HERE, MOVED_US + 5))
    moving.beat(1)
    moving.add(1, announced(THERE, MOVED_US - 5))
    assert not moving.has_published(THERE)


def test_a_finish_is_forgotten_where_the_watermark_proves_it(moving):
    moving.beat(1)
    moving.finish(0, HERE, end_us=MOVED_US)
    moving.beat(0, token("other", MOVED_US - 5))
    assert moving.has_published(HERE)
    moving.beat(0, token("other", MOVED_US))
    assert not moving.view._published.has_marker(HERE)
    assert moving.has_published(HERE)


def test_a_view_without_moves_does_not_answer(fleet):
    with pytest.raises(InvariantViolation, match="not followed"):
        fleet.view.has_published(HERE, MOVED_US)


CHAIN = [("a", ()), ("b", ("a",)), ("c", ("b",)), ("x", ()), ("d", ("c", "x"))]


def graph(generations, *, open_tokens=("d",), **fields):
    """a, b, c one after the other, and d from c and x; all but d have finished."""
    bodies = []
    for place, (name, parents) in enumerate(CHAIN):
        start_ns, end_ns = place * 1_000_000, (place + 1) * 1_000_000
        bodies.append(PartitionAnnounced(ChildPartition(name, parents, start_ns), ""))
        if name != "d":
            bodies.append(PartitionFinished(name, parents, start_ns, end_ns, (), ()))
    fleet, snapshot = Fleet(), TokenSnapshot("d", 4_000_000, ("c", "x"), ("c", "x"), 4_500)
    for slot in range(SLOTS):
        names = [name for name in open_tokens if slot_of(name, SLOTS) == slot]
        fleet.beat(slot, *(replace(snapshot, token=name, number=0, **fields) for name in names))
    return lineage_graph(fleet.view, history_of(bodies), stream="s", generations=generations)


def history_of(bodies, *, epoch="e"):
    history = PartitionHistory(epoch="e")
    for body in bodies:
        history.add(ProgressRecord(epoch, "w", body))
    return history


@pytest.mark.parametrize(
    ("generations", "names", "left_out"),
    [(0, "d", 4), (1, "cxd", 2), (2, "bcxd", 1), (3, "abcxd", 0), (9, "abcxd", 0)],
)
def test_as_many_generations_are_shown_as_asked_for(generations, names, left_out):
    found = graph(generations)
    assert "".join(partition.token for partition in found.partitions) == names
    assert found.left_out == left_out


def test_all_of_them_have_what_the_records_say():
    (a, *_, d) = graph(None).partitions
    shown = [(one.condition.name, one.start_us, one.end_us, one.watermark_us) for one in (a, d)]
    assert shown == [("FINISHED", 0, 1_000, None), ("OPEN", 4_000, None, 4_500)]
    assert (d.parents, d.slot) == (("c", "x"), slot_of("d", SLOTS))


def test_a_stopped_one_says_so_and_one_without_a_heartbeat_waits():
    assert graph(0, stopped="damaged").partitions[0].condition is PartitionCondition.STOPPED
    (waiting,) = graph(0, open_tokens=()).partitions
    assert (waiting.condition, waiting.watermark_us) == (PartitionCondition.WAITING, None)


def test_children_stand_below_each_parent_that_is_shown():
    children = graph(1).children()
    shown = {name: [one.token for one in found] for name, found in children.items()}
    assert shown == {"": ["c", "x"], "c": ["d"], "x": ["d"]}


A, B = ChildPartition("a", (), 10), ChildPartition("b", (), 10)
C = ChildPartition("c", ("a", "b"), 20)
RECORDS = (
    replace(STARTED, children=(A, B)),
    PartitionAnnounced(A, ""),
    PartitionFinished("a", (), 10, 20, (C,), (TopicTotals("t", 1, 5, 50, 0),)),
    PartitionAnnounced(C, "a"),
    PartitionFinished(
        "b", (), 10, 20, (C,), (TopicTotals("t", 1, 2, 20, 0), TopicTotals("u", 1, 1, 10, 0))
    ),
)


def test_parents_starts_and_ends_are_known_in_any_order():
    for order in itertools.permutations(RECORDS):
        history = history_of(order)
        known = {
            one.token: (one.parents, one.start_ns, one.end_ns)
            for one in history.partitions.values()
        }
        assert known == {"a": ((), 10, 20), "b": ((), 10, 20), "c": (("a", "b"), 20, None)}
        assert history.finished_changes == 8
    assert not history_of(RECORDS, epoch="other").partitions


@given(st.text(max_size=40), st.text(max_size=40))
def test_kind_and_text_of_a_stop_come_back(message, hint):
    error = SchemaError(message, hint=hint, token="t: u")
    assert read_stop(stop_text(error)) == ("SchemaError", str(error))


@pytest.mark.parametrize(
    "text", ["", "expired (lost_from='x'). Accept: it", "a value: is it?", "Two words: x"]
)
def test_a_text_without_a_kind_is_kept_whole(text):
    assert read_stop(text) == (None, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (stop_text(PositionExpired("too old", lost_from="x", lost_until="y")), True),
        ("too old (lost_from='x', lost_until='y')", True),
        (None, False),
        ("no such token", False),
        # The path of the file that an error names may be any.
        (stop_text(SourceFileError("no Avro", file="a/lost_from=1/rows.avro")), False),
    ],
)
def test_only_an_expired_position_is_one(text, expected):
    assert is_expired(text) is expected
