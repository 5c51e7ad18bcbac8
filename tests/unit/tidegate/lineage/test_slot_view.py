"""One slot: what a snapshot in effect and the announcements after it amount to."""

import json

import pytest

from tidegate.lineage import slot_view
from tidegate.lineage.errors import ProtocolError
from tidegate.lineage.slot_view import SlotView
from tidegate.lineage.snapshot_queue import SNAPSHOTS_WAITING_MAX, Slowest
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    SlowestToken,
    TokenSnapshot,
    TopicOffset,
)

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


def items(view):
    return json.loads(json.dumps(list(view.items_since(None))))


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


def test_an_announcement_counts_as_soon_as_it_is_read(view):
    view.fold(announced("a", start_us=100), offset=0)
    assert view.slowest() == Slowest(99, "a")
    assert view.current is None


def test_a_start_between_microseconds_counts_from_the_microsecond_before(view):
    view.fold(PartitionAnnounced(ChildPartition("a", (), 100_999), ""), offset=0)
    assert view.slowest() == Slowest(99, "a")


def test_a_snapshot_takes_in_the_announcements_up_to_includes_and_no_later_one(view):
    view.fold(announced("a", start_us=100), offset=0)
    view.fold(announced("b", start_us=50), offset=1)
    view.fold(snapshot(1, ("a", 200), includes=0), offset=2)
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(49, "b")
    view.fold(snapshot(2, ("a", 300), ("b", 290), includes=1), offset=3)
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(290, "b")


def test_an_announcement_that_a_newer_snapshot_contains_counts_until_that_is_in_effect(view):
    view.fold(announced("a", start_us=100), offset=0)
    view.fold(snapshot(1, ("a", 200), includes=0, vector=[("t", 0, 9)]), offset=1)
    view.settle(NEVER)
    assert view.current is None
    assert view.slowest() == Slowest(99, "a")


def test_a_finished_token_is_simply_not_in_the_snapshot(view):
    view.fold(announced("a"), offset=0)
    view.fold(PartitionFinished("a", (), 0, 5, (), ()), offset=1)
    view.fold(snapshot(1, includes=0), offset=2)
    view.settle(ALWAYS)
    assert view.slowest() is None
    assert view.finished_tokens == 1


def test_of_several_in_effect_the_highest_revision_holds_and_the_others_go(view):
    for revision in range(1, 6):
        view.fold(
            snapshot(revision, ("a", revision * 10), vector=[("t", 0, revision)]), offset=revision
        )
    view.settle(lambda topic, topic_partition, offset: offset <= 3)
    assert view.slowest() == Slowest(30, "a")
    assert view.snapshots_waiting == 2


@pytest.mark.parametrize("unreached", [("t", 0), ("t", 1), ("progress", 5)])
def test_every_entry_of_the_vector_must_be_reached(view, unreached):
    vector = [("t", 0, 7), ("t", 1, 8), ("progress", 5, 9)]
    view.fold(snapshot(1, ("a", 10), vector=vector), offset=0)
    view.settle(lambda topic, topic_partition, offset: (topic, topic_partition) != unreached)
    assert view.current is None
    view.settle(ALWAYS)
    assert view.current is not None


def test_a_chunked_snapshot_exists_when_its_last_chunk_is_read(view):
    view.fold(snapshot(1, ("a", 10), vector=[("t", 0, 4)], chunks=3), offset=0)
    view.fold(snapshot(1, ("b", 5), chunk=1, chunks=3), offset=1)
    view.settle(ALWAYS)
    assert view.current is None
    view.fold(snapshot(1, ("c", 7), chunk=2, chunks=3), offset=2)
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(5, "b")
    assert view.current.tokens == 3
    assert view.vector_in_effect == {("t", 0): 4}


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
    "chunks",
    [
        [snapshot(1, ("a", 1), chunk=1, chunks=2)],
        [snapshot(1, ("a", 1), chunks=3), snapshot(1, ("a", 1), chunk=2, chunks=3)],
        [snapshot(1, ("a", 1), chunks=2), snapshot(2, ("a", 1), chunk=1, chunks=2)],
    ],
    ids=["no beginning", "a hole", "two revisions"],
)
def test_an_incomplete_or_mixed_set_does_not_exist(view, chunks):
    for offset, chunk in enumerate(chunks):
        view.fold(chunk, offset=offset)
    view.fold(snapshot(9, ("z", 77)), offset=10)
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(77, "z")
    assert view.snapshots_waiting == 0


def test_a_set_may_be_cut_by_the_end_of_a_batch(view):
    view.fold(snapshot(1, ("a", 10), chunks=2), offset=0)
    view = restored(view)
    view.fold(snapshot(1, ("b", 5), chunk=1, chunks=2), offset=1)
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(5, "b")


def test_a_record_that_was_folded_changes_nothing(view):
    view.fold(announced("a"), offset=0)
    view.fold(PartitionFinished("x", (), 0, 5, (), ()), offset=1)
    before = items(view)
    view.fold(announced("b"), offset=0)
    view.fold(PartitionFinished("y", (), 0, 5, (), ()), offset=1)
    assert items(view) == before


def test_the_chunks_of_one_marker_count_once(view):
    for chunk in range(3):
        marker = PartitionFinished("a", (), 0, 5, (), (), chunk=chunk, chunks=3)
        view.fold(marker, offset=chunk)
    assert view.finished_tokens == 1


@pytest.mark.parametrize("second", [snapshot(4, slot=2), snapshot(3), snapshot(2)])
def test_a_snapshot_that_no_fleet_may_write_is_refused(second):
    view = SlotView(3)
    view.fold(snapshot(3), offset=0)
    with pytest.raises(ProtocolError):
        view.fold(second, offset=1)


def test_what_waits_is_thinned_but_keeps_its_first_and_last(view):
    count = SNAPSHOTS_WAITING_MAX * 2 + 7
    for revision in range(1, count + 1):
        entry = snapshot(revision, ("a", revision), vector=[("t", 0, revision)])
        view.fold(entry, offset=revision)
        view.settle(NEVER)
    assert view.snapshots_waiting <= SNAPSHOTS_WAITING_MAX
    view.settle(lambda topic, topic_partition, offset: offset <= 1)
    assert view.slowest() == Slowest(1, "a")
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(count, "a")


@pytest.mark.parametrize("count", [256, 257, 513, 514, 1_025, 5_000])
def test_many_snapshots_in_one_fold_are_thinned_as_far_as_many_folds(view, count):
    for revision in range(1, count + 1):
        view.fold(snapshot(revision, ("a", revision), vector=[("t", 0, revision)]), offset=revision)
    view.settle(NEVER)
    assert view.snapshots_waiting <= SNAPSHOTS_WAITING_MAX
    once = items(view)
    view.settle(NEVER)
    assert items(view) == once
    view.settle(lambda topic, topic_partition, offset: offset <= 1)
    assert view.slowest() == Slowest(1, "a")
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(count, "a")


def changes(revision, *, slowest=("a", 200), vector=(), includes=-1, kind=SlotChanges):
    entries = tuple(TopicOffset(*entry) for entry in vector)
    mark = None if slowest is None else SlowestToken(*slowest)
    if kind is SlotWatermark:
        return SlotWatermark(3, revision, 0, includes, entries, mark, 1)
    return SlotChanges(3, revision, 1, 0, includes, entries, mark, 1)


def test_changes_replace_entries_of_the_vector_before_them(view):
    view.fold(snapshot(1, ("a", 100), vector=[("t", 0, 5), ("t", 1, 6)]), offset=0)
    view.fold(changes(2, slowest=("b", 150), vector=[("t", 0, 9)]), offset=1)
    view.settle(lambda topic, number, offset: offset <= {0: 9, 1: 6}[number])

    assert view.slowest() == Slowest(150, "b")
    assert view.vector_in_effect == {("t", 0): 9, ("t", 1): 6}


def test_changes_that_do_not_continue_the_slots_newest_revision_are_passed_over(view):
    view.fold(changes(4, slowest=("a", 900)), offset=0)
    view.settle(ALWAYS)
    assert view.current is None

    view.fold(snapshot(5, ("a", 100)), offset=1)
    view.fold(changes(7, slowest=("a", 900)), offset=2)
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(100, "a")


def test_a_watermark_makes_up_for_changes_that_compaction_removed(view):
    view.fold(snapshot(1, ("a", 100), vector=[("t", 0, 5)]), offset=0)
    view.fold(changes(9, slowest=("a", 300), vector=[("t", 0, 7)], kind=SlotWatermark), offset=1)
    view.fold(changes(10, slowest=("a", 400)), offset=2)
    view.settle(lambda topic, number, offset: offset <= 7)

    assert view.slowest() == Slowest(400, "a")
    assert view.vector_in_effect == {("t", 0): 7}


def test_a_watermark_that_repeats_the_newest_revision_says_nothing_new(view):
    view.fold(snapshot(1, ("a", 100)), offset=0)
    view.fold(changes(1, slowest=("a", 100), kind=SlotWatermark), offset=1)
    assert view.snapshots_waiting == 1


def test_changes_whose_revision_does_not_grow_show_two_writers(view):
    view.fold(snapshot(2, ("a", 100)), offset=0)
    with pytest.raises(ProtocolError, match="two workers"):
        view.fold(changes(2), offset=1)


def test_a_slot_without_an_open_token_has_no_slowest_one(view):
    view.fold(snapshot(1, ("a", 100)), offset=0)
    view.fold(changes(2, slowest=None), offset=1)
    view.settle(ALWAYS)
    assert view.slowest() is None


OF_FORMAT_1 = {
    "slot": 3,
    "folded_through": 4,
    "finished_tokens": 2,
    "current": {
        "revision": 1, "includes": 0, "vector": {"t": {"0": 5, "1": 1}}, "tokens": 1,
        "slowest": [100, "a"],
    },
    "waiting": [
        {
            "revision": 2, "includes": 0, "vector": {"t": {"0": 7, "1": 1}}, "tokens": 1,
            "slowest": [150, "a"],
        }
    ],
    "announced": [["b", "a", 3, 90]],
    "open": {
        "snapshot": {
            "revision": 3, "includes": 3, "vector": {"t": {"0": 8}}, "tokens": 1,
            "slowest": [170, "a"],
        },
        "next_chunk": 1,
        "chunks": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize("newest", [None, OF_FORMAT_1["waiting"][0]], ids=["version 1", "2"])
def test_a_slot_of_an_older_programs_frontier_is_continued(newest):
    stored = OF_FORMAT_1 | ({} if newest is None else {"newest": newest})
    view = restored(SlotView.of_format_1(stored))
    assert (view.slowest(), view.finished_tokens) == (Slowest(90, "b"), 2)

    last = snapshot(3, ("b", 190), includes=3, vector=[("t", 1, 2)], chunk=1, chunks=2)
    view.fold(last, offset=5)
    view.fold(changes(4, slowest=("a", 200), includes=3), offset=6)
    for reached, slowest in ((6, (90, "b")), (7, (90, "b")), (8, (200, "a"))):
        view.settle(lambda topic, number, offset, reached=reached: offset <= reached)
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
    view.fold(snapshot(1, ("a", 1), vector=[("t", 0, 5), ("t", 1, 9)]), offset=0)
    view.fold(snapshot(2, ("a", 2), vector=[("t", 0, 4)]), offset=1)
    view.fold(changes(3, slowest=("a", 3), vector=[("t", 2, 6)]), offset=2)
    view.settle(lambda topic, number, offset: offset <= 4)
    assert view.slowest() == Slowest(2, "a")
    assert view.vector_in_effect == {("t", 0): 4}
    view.fold(changes(4, slowest=("a", 4), vector=[("t", 2, 3)]), offset=3)
    view.settle(lambda topic, number, offset: offset <= 4)
    assert view.slowest() == Slowest(4, "a")
    assert view.vector_in_effect == {("t", 0): 4, ("t", 2): 3}


def test_announcements_that_are_dropped_together_are_kept_as_the_lowest(view, monkeypatch):
    monkeypatch.setattr(slot_view, "ANNOUNCEMENTS_MAX", 3)
    view.fold(snapshot(1, ("a", 10), includes=-1), offset=0)
    for offset, start_us in enumerate((70, 50, 60, 40, 90, 80), 1):
        view.fold(announced(f"k{offset}", start_us=start_us), offset=offset)
    late = [("t", 0, 9)]
    view.fold(snapshot(2, ("a", 65), includes=2, vector=late), offset=10)
    view.fold(snapshot(3, ("a", 66), includes=5, vector=[("t", 0, 20)]), offset=11)
    view.settle(lambda topic, number, offset: offset < 9)
    assert (view.current.revision, view.slowest_announced()) == (1, Slowest(39, "k4"))
    assert len(view._announced) == 3
    view.settle(lambda topic, number, offset: offset <= 9)
    assert view.slowest_announced() == Slowest(39, "k4")
    # Announced again, it takes nobody's place.
    view.fold(announced("k4", start_us=95), offset=12)
    view.settle(lambda topic, number, offset: offset <= 9)
    assert view.slowest_announced() == Slowest(39, "k4")
    view.settle(ALWAYS)
    assert view.slowest() == Slowest(66, "a")
    assert view.slowest_announced() == Slowest(79, "k6")


def test_before_the_first_snapshot_is_in_effect_what_all_contain_is_left_out(view, monkeypatch):
    monkeypatch.setattr(slot_view, "ANNOUNCEMENTS_MAX", 3)
    for offset in range(9):
        view.fold(announced(f"k{offset}", start_us=100 - offset), offset=offset)
    view.fold(snapshot(1, ("a", 10), includes=6, vector=[("t", 0, 9)]), offset=10)
    view.settle(NEVER)
    assert [one.offset for one in view._announced.values()] == [7, 8]
    view.settle(ALWAYS)
    assert view.slowest_announced() == Slowest(91, "k8")
