"""Snapshots that wait: what is reached, what is dropped, and what has changed since a moment."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.lineage import snapshot_queue
from tidegate.lineage.snapshot_queue import Slowest, Snapshot, SnapshotQueue
from tidegate.schemas.errors import InvariantViolation

PLACES = [("t", 0), ("t", 1), ("u", 0)]


def snapshot(revision):
    return Snapshot(revision, 0, 1, Slowest(revision * 10, "a"))


def items(queue, mark=None):
    return json.loads(json.dumps(list(queue.items_since(mark))))


def restored(stored):
    queue = SnapshotQueue()
    for item in stored:
        queue.apply(item)
    return queue


@pytest.fixture(autouse=True)
def few_wait(monkeypatch):
    monkeypatch.setattr(snapshot_queue, "SNAPSHOTS_WAITING_MAX", 4)


growth = st.dictionaries(st.sampled_from(PLACES), st.integers(-1, 4), max_size=3)
steps = st.lists(
    st.tuples(growth, st.booleans(), st.integers(0, 12), st.integers(1, 12)), max_size=25
)


@settings(max_examples=300, deadline=None)
@given(steps=steps)
def test_what_is_in_effect_is_reached_and_what_is_stored_in_parts_is_all(steps):
    """Each vector is compared with the whole one, which the model keeps for every snapshot."""
    queue, vector, vectors, reached_to = SnapshotQueue(), {}, {}, 0
    kept = SnapshotQueue()
    mark = None
    for revision, (grown, is_changes, reached, entries_max) in enumerate(steps, 1):
        changes = {place: max(0, vector.get(place, 0) + by) for place, by in grown.items()}
        vector = {**vector, **changes}
        vectors[revision] = vector
        if is_changes:
            queue.add_changes(snapshot(revision), changes)
        else:
            queue.add(snapshot(revision), vector)
        reached_to = max(reached_to, reached)
        queue.settle(lambda _topic, _number, offset, to=reached_to: offset <= to)
        queue.thin(entries_max)
        queue.check_invariants(0)
        assert queue.waiting <= 4
        if queue.current is not None:
            found = vectors[queue.current.revision]
            assert queue.vector_in_effect == found
            assert all(offset <= reached_to for offset in found.values())
        assert queue.newest == snapshot(revision)
        for item in items(queue, mark):
            kept.apply(item)
        mark = queue.mark()
        assert items(kept) == items(queue)
        assert items(restored(items(queue))) == items(queue)
    queue.settle(lambda *_: True)
    if steps:
        assert queue.current == snapshot(len(steps))
        assert queue.vector_in_effect == vector


def test_of_too_many_those_close_to_each_other_go_first():
    queue = SnapshotQueue()
    for revision in (1, 100, 200, 201, 202):
        queue.add(snapshot(revision), {("t", 0): revision})
    queue.thin(100)
    left = [item[1] for item in items(queue) if item[0] == "snapshot"]
    assert left == [1, 100, 200, 202]


def test_a_part_that_no_program_has_written_is_refused():
    with pytest.raises(InvariantViolation, match="unknown part"):
        SnapshotQueue().apply(["something", 1])
