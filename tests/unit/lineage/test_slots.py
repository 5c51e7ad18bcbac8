"""One slot: what its snapshots, changes and announcements amount to."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.lineage import slot_view, snapshot_queue
from tidegate.lineage.errors import ProtocolError
from tidegate.lineage.keyed_heap import KeyedHeap
from tidegate.lineage.slot_tokens import SlotTokens, can_move
from tidegate.lineage.slot_view import SlotView
from tidegate.lineage.snapshot_queue import SNAPSHOTS_WAITING_MAX, Slowest, Snapshot, SnapshotQueue
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    SlowestToken,
    TokenMove,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.schemas.progress_chunks import split

FINISHED = PartitionFinished("a", (), 0, 5, (), ())
ALWAYS = lambda topic, topic_partition, offset: True  # noqa: E731
NEVER = lambda topic, topic_partition, offset: False  # noqa: E731


def announced(token, parent="p", *, start_us=100):
    return PartitionAnnounced(ChildPartition(token, (parent,), start_us * 1000), parent)


def snapshot(revision, *tokens, includes=-1, vector=(), chunk=0, chunks=1, slot=3):
    return SlotProgress(
        slot=slot,
        revision=revision,
        minute=0,
        includes=includes,
        vector=tuple(TopicOffset(*entry) for entry in vector),
        tokens=tuple(TokenSnapshot(t, 0, (), (), watermark_us) for t, watermark_us in tokens),
        chunk=chunk,
        chunks=chunks,
    )


def items(view, mark=None):
    return json.loads(json.dumps(list(view.items_since(mark))))


def restored(view):
    again = SlotView(3)
    for item in items(view):
        again.apply(item)
    return again


@pytest.fixture
def view():
    view = SlotView(3)
    yield view
    view.check_invariants()
    assert items(restored(view)) == items(view)


def up_to(last):
    return lambda _topic, _topic_partition, offset: offset <= last


def fold(view, *bodies, begin=0):
    for offset, body in enumerate(bodies, begin):
        view.fold(body, offset=offset)


@pytest.mark.parametrize("start_ns", [100_000, 100_999])
def test_an_announcement_counts_as_soon_as_it_is_read(view, start_ns):
    """A start between microseconds counts from the microsecond before."""
    view.fold(PartitionAnnounced(ChildPartition("a", (), start_ns), ""), offset=0)
    assert view.slowest() == Slowest(99, "a")
    assert view.current is None


def test_a_snapshot_takes_in_the_announcements_up_to_includes_and_no_later_one(view):
    fold(view, announced("a"), announced("b", start_us=50), snapshot(1, ("a", 200), includes=0))
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(49, "b")
    view.fold(snapshot(2, ("a", 300), ("b", 290), includes=1), offset=3)
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(290, "b")


def test_an_announcement_that_a_newer_snapshot_contains_counts_until_that_is_in_effect(view):
    fold(view, announced("a"), snapshot(1, ("a", 200), includes=0, vector=[("t", 0, 9)]))
    view.settle(NEVER)
    assert view.current is None
    assert view.slowest() == Slowest(99, "a")


def test_a_finished_token_is_simply_not_in_the_snapshot_and_counts_once(view):
    fold(view, announced("a"), *(replace(FINISHED, chunk=n, chunks=3) for n in range(3)))
    view.fold(snapshot(1, includes=0), offset=4)
    view.settle(ALWAYS)
    assert view.slowest() is None
    assert view.finished_tokens == 1


def test_of_several_in_effect_the_highest_revision_holds_and_the_others_go(view):
    fold(view, *(snapshot(n, ("a", n * 10), vector=[("t", 0, n)]) for n in range(1, 6)))
    view.settle(up_to(3))
    assert view.slowest() == Slowest(30, "a")
    assert view.snapshots_waiting == 2


def test_a_chunked_snapshot_exists_when_its_last_chunk_is_read(view):
    """The end of a batch may cut it."""
    view.fold(snapshot(1, ("a", 10), vector=[("t", 0, 4)], chunks=3), offset=0)
    view = restored(view)
    view.fold(snapshot(1, ("b", 5), chunk=1, chunks=3), offset=1)
    view.settle(ALWAYS)
    assert view.current is None
    view.fold(snapshot(1, ("c", 7), chunk=2, chunks=3), offset=2)
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(5, "b")
    assert view.current.tokens == 3
    assert view.vector_in_effect == {("t", 0): 4}


def test_a_record_that_was_folded_changes_nothing(view):
    fold(view, announced("a"), FINISHED)
    before = items(view)
    fold(view, announced("b"), replace(FINISHED, token="y"))
    assert items(view) == before


def test_a_vector_over_several_chunks_is_waited_for_whole(view):
    view.fold(snapshot(1, vector=[("t", 0, 4), ("t", 1, 2)], chunks=3), offset=0)
    view.fold(snapshot(1, vector=[("t", 2, 9)], chunk=1, chunks=3), offset=1)
    view.fold(snapshot(1, ("a", 5), vector=[("u", 0, 7)], chunk=2, chunks=3), offset=2)
    places = {("t", 0): 4, ("t", 1): 2, ("t", 2): 9, ("u", 0): 7}
    for place, offset in places.items():
        reached = {**places, place: offset - 1}
        view.settle(lambda topic, number, last, reached=reached: reached[topic, number] >= last)
        assert view.current is None
    view.settle(lambda topic, number, last: places[topic, number] >= last)
    assert view.current is not None


@pytest.mark.parametrize(
    "places",
    [[(1, 1, 2)], [(1, 0, 3), (1, 2, 3)], [(1, 0, 2), (2, 1, 2)]],
    ids=["no beginning", "a hole", "two revisions"],
)
def test_an_incomplete_or_mixed_set_does_not_exist(view, places):
    chunks = (snapshot(revision, ("a", 1), chunk=n, chunks=of) for revision, n, of in places)
    fold(view, *chunks)
    view.fold(snapshot(9, ("z", 77)), offset=10)
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(77, "z")
    assert view.snapshots_waiting == 0


def test_a_heartbeat_that_no_fleet_may_write_is_refused():
    for second in (snapshot(4, slot=2), snapshot(3), snapshot(2)):
        with pytest.raises(ProtocolError):
            fold(SlotView(3), snapshot(3), second)
    with pytest.raises(ProtocolError, match="two workers"):
        fold(SlotView(3), snapshot(2, ("a", 100)), changes(2))


@pytest.mark.parametrize("count", [256, 257, 513, 514, 1_025, 5_000])
@pytest.mark.parametrize("is_one_fold", [True, False], ids=["one fold", "many folds"])
def test_what_waits_is_thinned_but_keeps_its_first_and_last(view, count, is_one_fold):
    for revision in range(1, count + 1):
        view.fold(snapshot(revision, ("a", revision), vector=[("t", 0, revision)]), offset=revision)
        if not is_one_fold:
            view.settle(NEVER)
    view.settle(NEVER)
    assert view.snapshots_waiting <= SNAPSHOTS_WAITING_MAX
    once = items(view)
    view.settle(NEVER)
    assert items(view) == once
    view.settle(up_to(1))
    assert view.slowest() == Slowest(1, "a")
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(count, "a")


def changes(revision, us=200, *, slowest="a", vector=(), includes=-1, kind=SlotChanges):
    entries = tuple(TopicOffset(*entry) for entry in vector)
    mark = None if slowest is None else SlowestToken(slowest, us)
    place = () if kind is SlotWatermark else (1,)
    return kind(3, revision, *place, 0, includes, entries, mark, 1)


def test_changes_replace_entries_of_the_vector_before_them(view):
    first = snapshot(1, ("a", 100), vector=[("t", 0, 5), ("t", 1, 6)])
    fold(view, first, changes(2, 150, slowest="b", vector=[("t", 0, 9)]))
    view.settle(lambda topic, number, offset: offset <= {0: 9, 1: 6}[number])
    assert view.slowest() == Slowest(150, "b")
    assert view.vector_in_effect == {("t", 0): 9, ("t", 1): 6}
    # Without an open token there is no slowest one.
    view.fold(changes(3, slowest=None), offset=2)
    view.settle(ALWAYS)
    assert view.slowest() is None


def test_changes_that_do_not_continue_the_slots_newest_revision_are_passed_over(view):
    view.fold(changes(4, 900), offset=0)
    view.settle(ALWAYS)
    assert view.current is None
    fold(view, snapshot(5, ("a", 100)), changes(7, 900), begin=1)
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(100, "a")


def test_a_watermark_makes_up_for_changes_that_compaction_removed(view):
    # One that repeats the newest revision says nothing new.
    repeated = changes(1, 100, kind=SlotWatermark)
    fold(view, snapshot(1, ("a", 100), vector=[("t", 0, 5)]), repeated)
    assert view.snapshots_waiting == 1
    watermark = changes(9, 300, vector=[("t", 0, 7)], kind=SlotWatermark)
    fold(view, watermark, changes(10, 400), begin=2)
    view.settle(up_to(7))
    assert view.slowest() == Slowest(400, "a")
    assert view.vector_in_effect == {("t", 0): 7}


def stored_snapshot(revision, us, includes, **offsets):
    vector = {"t": {place.removeprefix("p"): offset for place, offset in offsets.items()}}
    return {"revision": revision, "includes": includes, "vector": vector, "tokens": 1,
            "slowest": [us, "a"]}  # fmt: skip


OF_FORMAT_1 = {
    "slot": 3, "folded_through": 4, "finished_tokens": 2,
    "current": stored_snapshot(1, 100, 0, p0=5, p1=1),
    "waiting": [stored_snapshot(2, 150, 0, p0=7, p1=1)],
    "announced": [["b", "a", 3, 90]],
    "open": {"snapshot": stored_snapshot(3, 170, 3, p0=8), "next_chunk": 1, "chunks": 2},
}  # fmt: skip


@pytest.mark.parametrize("newest", [None, OF_FORMAT_1["waiting"][0]], ids=["version 1", "2"])
def test_a_slot_of_an_older_programs_frontier_is_continued(newest):
    stored = OF_FORMAT_1 | ({} if newest is None else {"newest": newest})
    view = restored(SlotView.of_format_1(stored))
    assert (view.slowest(), view.finished_tokens) == (Slowest(90, "b"), 2)
    last = snapshot(3, ("b", 190), includes=3, vector=[("t", 1, 2)], chunk=1, chunks=2)
    fold(view, last, changes(4, includes=3), begin=5)
    for reached, slowest in ((6, (90, "b")), (7, (90, "b")), (8, (200, "a"))):
        view.settle(up_to(reached))
        assert view.slowest() == Slowest(*slowest)
    assert view.vector_in_effect == {("t", 0): 8, ("t", 1): 2}


def test_what_waits_is_thinned_by_its_entries_too(view):
    for revision in range(1, 33):
        vector = [("t", number, revision) for number in range(10)]
        view.fold(snapshot(revision, ("a", revision), vector=vector), offset=revision)
    view.settle(NEVER, entries_max=90)
    assert 2 <= view.snapshots_waiting <= 9
    view.settle(lambda topic, topic_partition, offset: offset <= 1, entries_max=90)
    assert view.slowest() == Slowest(1, "a")
    view.settle(NEVER, entries_max=1)
    assert view.snapshots_waiting == 2
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(32, "a")
    assert view.vector_in_effect == {("t", number): 32 for number in range(10)}


def test_a_vector_that_takes_something_back_is_compared_as_a_whole(view):
    first = snapshot(1, ("a", 1), vector=[("t", 0, 5), ("t", 1, 9)])
    second = snapshot(2, ("a", 2), vector=[("t", 0, 4)])
    fold(view, first, second, changes(3, 3, vector=[("t", 2, 6)]))
    view.settle(up_to(4))
    assert view.slowest() == Slowest(2, "a")
    assert view.vector_in_effect == {("t", 0): 4}
    view.fold(changes(4, 4, vector=[("t", 2, 3)]), offset=3)
    view.settle(up_to(4))
    assert view.slowest() == Slowest(4, "a")
    assert view.vector_in_effect == {("t", 0): 4, ("t", 2): 3}


@pytest.fixture
def few_announcements(monkeypatch):
    monkeypatch.setattr(slot_view, "ANNOUNCEMENTS_MAX", 3)


@pytest.mark.usefixtures("few_announcements")
def test_announcements_that_are_dropped_together_are_kept_as_the_lowest(view):
    children = (announced(f"k{n}", start_us=us) for n, us in enumerate((70, 50, 60, 40, 90, 80), 1))
    fold(view, snapshot(1, ("a", 10), includes=-1), *children)
    second = snapshot(2, ("a", 65), includes=2, vector=[("t", 0, 9)])
    fold(view, second, snapshot(3, ("a", 66), includes=5, vector=[("t", 0, 20)]), begin=10)
    view.settle(up_to(8))
    assert (view.current.revision, view.slowest_announced()) == (1, Slowest(39, "k4"))
    assert len(view._announced) == 3
    view.settle(up_to(9))
    assert view.slowest_announced() == Slowest(39, "k4")
    # Announced again, it takes nobody's place.
    view.fold(announced("k4", start_us=95), offset=12)
    view.settle(up_to(9))
    assert view.slowest_announced() == Slowest(39, "k4")
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(66, "a")
    assert view.slowest_announced() == Slowest(79, "k6")


@pytest.mark.usefixtures("few_announcements")
def test_before_the_first_snapshot_is_in_effect_what_all_contain_is_left_out(view):
    fold(view, *(announced(f"k{n}", start_us=100 - n) for n in range(9)))
    view.fold(snapshot(1, ("a", 10), includes=6, vector=[("t", 0, 9)]), offset=10)
    view.settle(NEVER)
    assert [one.offset for one in view._announced.values()] == [7, 8]
    view.settle(ALWAYS)
    assert view.slowest_announced() == Slowest(91, "k8")


PLACES = [("t", 0), ("t", 1), ("u", 0)]


def queued(revision):
    return Snapshot(revision, 0, 1, Slowest(revision * 10, "a"))


def restored_queue(stored):
    queue = SnapshotQueue()
    for item in stored:
        queue.apply(item)
    return queue


@pytest.fixture
def few_wait(monkeypatch):
    monkeypatch.setattr(snapshot_queue, "SNAPSHOTS_WAITING_MAX", 4)


growth = st.dictionaries(st.sampled_from(PLACES), st.integers(-1, 4), max_size=3)
steps = st.lists(
    st.tuples(growth, st.booleans(), st.integers(0, 12), st.integers(1, 12)), max_size=25
)


@pytest.mark.usefixtures("few_wait")
@settings(max_examples=300, deadline=None)
@given(steps=steps)
def test_what_is_in_effect_is_reached_and_what_is_stored_in_parts_is_all(steps):
    """Each vector is compared with the whole one, which the model keeps for every queued."""
    queue, vector, vectors, reached_to = SnapshotQueue(), {}, {}, 0
    kept = SnapshotQueue()
    mark = None
    for revision, (grown, is_changes, reached, entries_max) in enumerate(steps, 1):
        changes = {place: max(0, vector.get(place, 0) + by) for place, by in grown.items()}
        vector = {**vector, **changes}
        vectors[revision] = vector
        if is_changes:
            queue.add_changes(queued(revision), changes)
        else:
            queue.add(queued(revision), vector)
        reached_to = max(reached_to, reached)
        queue.settle(lambda _topic, _number, offset, to=reached_to: offset <= to)
        queue.thin(entries_max)
        queue.check_invariants(0)
        assert queue.waiting <= 4
        if queue.current is not None:
            found = vectors[queue.current.revision]
            assert queue.vector_in_effect == found
            assert all(offset <= reached_to for offset in found.values())
        assert queue.newest == queued(revision)
        for item in items(queue, mark):
            kept.apply(item)
        mark = queue.mark()
        assert items(kept) == items(queue)
        assert items(restored_queue(items(queue))) == items(queue)
    queue.settle(lambda *_: True)
    if steps:
        assert queue.current == queued(len(steps))
        assert queue.vector_in_effect == vector


@pytest.mark.usefixtures("few_wait")
def test_of_too_many_those_close_to_each_other_go_first():
    queue = SnapshotQueue()
    for revision in (1, 100, 200, 201, 202):
        queue.add(queued(revision), {("t", 0): revision})
    queue.thin(100)
    left = [item[1] for item in items(queue) if item[0] == "snapshot"]
    assert left == [1, 100, 200, 202]


@pytest.mark.usefixtures("few_wait")
def test_a_part_that_no_program_has_written_is_refused():
    with pytest.raises(InvariantViolation, match="unknown part"):
        SnapshotQueue().apply(["something", 1])


A = TokenSnapshot("a", 0, ("p",), ("p",), 10, number=0)
B = TokenSnapshot("b", 0, ("p",), ("p",), 20, number=1)
START = SlotProgress(3, 7, 0, 4, (), (A, B))
NEXT = SlotChanges(3, 8, 1, 0, 4, (), SlowestToken("a", 10), 2)


def record(body, *, worker="w", version=2):
    return ProgressRecord("e", worker, body, version)


@pytest.fixture
def slot():
    slot = SlotTokens()
    slot.fold(record(START), offset=5)
    return slot


@pytest.mark.parametrize(
    ("token", "is_movable"),
    [
        (A, True),
        (replace(A, parents=(), parents_heard=("",)), True),
        (replace(A, stopped="refused"), False),
        (replace(A, parents=("p", "q")), False),
        (replace(A, parents=("p", "q"), parents_heard=("p", "q")), True),
    ],
)
def test_what_is_stopped_or_waits_for_a_parent_cannot_move(token, is_movable):
    assert can_move(token) is is_movable


def test_a_snapshot_is_passed_on_without_what_cannot_move():
    slot = SlotTokens()
    stopped = replace(A, stopped="refused")
    found = slot.fold(record(replace(START, tokens=(stopped, B))), offset=5)
    assert found == replace(START, tokens=(B,))
    assert slot.tokens == {"a": stopped, "b": B}


def test_changes_name_the_slowest_of_what_can_move(slot):
    stopped = replace(A, stopped="refused")
    found = slot.fold(record(replace(NEXT, added=(stopped,))), offset=6)
    assert found == replace(NEXT, slowest=SlowestToken("b", 20))
    again = replace(NEXT, revision=9, position=2, added=(A,), moved=(TokenMove(1, 30),))
    assert slot.fold(record(again), offset=7).slowest == SlowestToken("a", 10)
    last = replace(NEXT, revision=10, position=3, removed=(0,), open=1)
    assert slot.fold(record(last), offset=8).slowest == SlowestToken("b", 30)
    assert slot.tokens == {"b": replace(B, watermark_us=30)}
    empty = replace(NEXT, revision=11, position=4, removed=(1,), open=0)
    assert slot.fold(record(empty), offset=9).slowest is None
    assert slot.tokens == {}


def test_what_compaction_has_left_is_passed_on_as_it_is(slot):
    old = replace(NEXT, revision=12, position=6)
    assert slot.fold(record(old), offset=6) == SlotTokens().fold(record(old), offset=6) == old


def test_a_chain_that_contradicts_itself_counts_again_with_its_next_snapshot(slot):
    broken = replace(NEXT, position=2)
    assert slot.fold(record(broken), offset=6) == broken
    assert slot.tokens is None
    slot.fold(record(replace(START, revision=9)), offset=7)
    assert set(slot.tokens) == {"a", "b"}


def child_c(parent, *, parents=("p", "q")):
    return PartitionAnnounced(ChildPartition("c", parents, 1), parent)


def test_a_child_that_waits_for_another_parent_is_not_passed_on(slot):
    assert slot.fold(record(child_c("p")), offset=6) is None
    assert slot.fold(record(child_c("p")), offset=7) is None
    assert slot.fold(record(child_c("q")), offset=8) == child_c("q")
    alone = child_c("p", parents=("p",))
    assert slot.fold(record(alone), offset=9) == alone


def test_parents_that_a_heartbeat_contains_are_heard(slot):
    assert slot.fold(record(child_c("p")), offset=6) is None
    waiting = TokenSnapshot("c", 0, ("p", "q"), ("p",), 0, number=2)
    slot.fold(record(replace(NEXT, includes=6, added=(waiting,), open=3)), offset=7)
    assert not slot._announced
    assert slot.fold(record(child_c("q")), offset=8) == child_c("q")


def test_chunks_are_one_record():
    slot = SlotTokens()
    first, second = split(START, items_max=1)
    assert slot.fold(record(first), offset=5) is None
    assert slot.fold(record(second), offset=6) == START


def test_the_writer_of_the_newest_heartbeat_is_known(slot):
    child = announced("c", "a")
    assert slot.fold(record(child, worker="other"), offset=6) == child
    assert (slot.worker, slot.version) == ("w", 2)
    watermark = SlotWatermark(3, 7, 1, 4, (), SlowestToken("a", 10), 2)
    assert slot.fold(record(watermark, worker="next", version=1), offset=7) == watermark
    assert (slot.worker, slot.version) == ("next", 1)


def minutes_of(slot):
    times = (slot.heard_us, slot.steady_since_us, slot.empty_since_us)
    return tuple(None if us is None else us / 60_000_000 for us in times)


class TestTimes:
    """A heartbeat's minute, and what the slot says after it: heard, steady since, empty since."""

    def check(self, *beats):
        slot = SlotTokens()
        assert minutes_of(slot) == (None, None, None)
        for revision, (minute, tokens, expected) in enumerate(beats):
            slot.fold(record(SlotProgress(3, revision, minute, 4, (), tokens)), offset=revision)
            assert minutes_of(slot) == expected

    def test_a_minute_without_a_heartbeat_begins_it_again(self):
        self.check(
            (7, (A,), (7, 7, None)),
            (8, (A,), (8, 7, None)),
            (8, (A,), (8, 7, None)),
            (10, (A,), (10, 10, None)),
        )

    def test_what_is_stopped_ends_it_until_nothing_is(self):
        stopped = replace(A, stopped="refused")
        self.check(
            (7, (A, B), (7, 7, None)),
            (8, (stopped, B), (8, None, None)),
            (9, (stopped, B), (9, None, None)),
            (10, (A, B), (10, 10, None)),
            (11, (A, B), (11, 10, None)),
        )

    def test_it_is_empty_since_the_last_one_finished(self, slot):
        self.check(
            (7, (A,), (7, 7, None)),
            (8, (), (8, 7, 8)),
            (9, (), (9, 7, 8)),
            (10, (A,), (10, 7, None)),
        )
        # Changes count like whole heartbeats.
        slot.fold(record(replace(NEXT, minute=1, removed=(0, 1), open=0)), offset=6)
        assert minutes_of(slot) == (1, 0, 1)


TOKENS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(TOKENS, st.none() | st.integers(0, 5)), max_size=300)


@given(STEPS)
def test_it_agrees_with_a_dictionary(steps):
    heap, expected = KeyedHeap(), {}
    for token, key in steps:
        if key is None:
            heap.discard(token)
            expected.pop(token, None)
        else:
            heap.set(token, key)
            expected[token] = key
        assert heap.keys == expected
        assert heap.first() == min(((k, t) for t, k in expected.items()), default=None)


@given(STEPS, st.integers(0, 5))
def test_it_gives_up_what_is_at_most_a_number(steps, key_max):
    heap = KeyedHeap()
    for token, key in steps:
        heap.set(token, key or 0)
    expected = sorted((key, token) for token, key in heap.keys.items() if key <= key_max)
    assert heap.pop_through(key_max) == [token for _, token in expected]
    assert all(key > key_max for key in heap.keys.values())


def test_a_token_that_changes_often_does_not_let_it_grow():
    heap = KeyedHeap()
    heap.set("slow", -1)
    for key in range(10_000):
        heap.set("fast", key)
    assert len(heap._heap) < 100
    assert heap.first() == (-1, "slow")
