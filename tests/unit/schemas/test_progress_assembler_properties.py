"""Whatever of which sets of chunks is read, in whatever order: only what was written comes out."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)
from tidegate.schemas.progress_chunks import ProgressAssembler, split
from tidegate.schemas.progress_codec import encode_key

# Few different values, so that the sets of one example meet.
FEW = st.integers(0, 1)
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
ITEMS = st.lists(NAMES, min_size=1, max_size=5).map(tuple)


def children(names):
    return tuple(ChildPartition(name, (), number) for number, name in enumerate(names))


def snapshot(slot, revision, minute, includes, names):
    vector = (TopicOffset("t", 0, len(names)),)
    tokens = tuple(TokenSnapshot(name, number, (), (), 0) for number, name in enumerate(names))
    return SlotProgress(slot, revision, minute, includes, vector, tokens)


def finish(token, start_ns, end_ns, names):
    totals = (TopicTotals("t", len(names), 0, 0, 0),)
    return PartitionFinished(token, (), start_ns, end_ns, children(names), totals)


def start(stream, start_ns, slots, names):
    return StreamStarted(stream, "d", start_ns, None, "g", slots, "id", (), children(names))


BODIES = st.one_of(
    st.builds(snapshot, FEW, FEW, FEW, FEW, ITEMS),
    st.builds(finish, NAMES, FEW, FEW, ITEMS),
    st.builds(start, NAMES, FEW, FEW, ITEMS),
    st.builds(PartitionAnnounced, st.builds(ChildPartition, NAMES, st.just(()), FEW), NAMES),
)


def head(body):
    """What is the writer's to keep unique: everything but the items."""
    match body:
        case SlotProgress():
            return replace(body, tokens=(), vector=())
        case PartitionFinished():
            return replace(body, children=(), totals=())
        case StreamStarted():
            return replace(body, children=())
        case _:
            return body


RECORDS = st.lists(BODIES, min_size=1, max_size=5, unique_by=head)


def written(bodies, items_max):
    return [chunk for body in bodies for chunk in split(body, items_max=items_max)]


def read(chunks, assembler=None):
    assembler = assembler or ProgressAssembler()
    results = [assembler.add(chunk, offset=offset) for offset, chunk in chunks]
    return [result for result in results if result is not None]


@given(RECORDS, st.integers(1, 3), st.data())
def test_any_choice_of_chunks_in_any_order_gives_only_what_was_written(bodies, items_max, data):
    chunks = written(bodies, items_max)
    chosen = data.draw(st.lists(st.sampled_from(chunks), max_size=2 * len(chunks)))
    assert all(body in bodies for body, _ in read(enumerate(chosen)))


@given(BODIES, st.data())
def test_one_set_in_another_order_is_no_set(body, data):
    chunks = split(body, items_max=1)
    shuffled = data.draw(st.permutations(chunks))
    repeated = data.draw(st.lists(st.sampled_from(chunks), min_size=len(chunks), max_size=8))
    assert all(found == body for found, _ in read(enumerate([*shuffled, *repeated])))


@given(RECORDS, st.integers(1, 3), st.sets(st.integers(0, 24)))
@example([snapshot(0, 1, 0, 0, "aaa"), snapshot(0, 1, 1, 0, "bb")], 1, {1, 2, 3})
@example([finish("a", 0, 1, "aa"), finish("a", 1, 1, "bbb")], 1, {1, 2})
@example([start("a", 0, 1, "ab"), start("a", 0, 0, "abc")], 1, {1, 2})
def test_without_any_chunks_a_set_is_whole_or_not_there(bodies, items_max, removed):
    chunks = written(bodies, items_max)
    left = [(offset, chunk) for offset, chunk in enumerate(chunks) if offset not in removed]
    whole, offset = [], 0
    for body in bodies:
        size = len(split(body, items_max=items_max))
        if removed.isdisjoint(range(offset, offset + size)):
            whole.append((body, offset))
        offset += size
    assert read(left) == whole


@given(RECORDS, st.integers(1, 3))
def test_after_compaction_what_is_left_was_written(bodies, items_max):
    """Compaction keeps the last record of each key; keys know no revision."""
    chunks = written(bodies, items_max)
    last = {encode_key(chunk): (offset, chunk) for offset, chunk in enumerate(chunks)}
    results = read(sorted(last.values(), key=lambda entry: entry[0]))
    assert all(body in bodies for body, _ in results)
    # The last set of its keys loses nothing to others.
    assert bodies[-1] in [body for body, _ in results]


@given(RECORDS, st.integers(1, 3), st.data())
def test_sets_that_are_interleaved_in_their_own_order_are_all_there(bodies, items_max, data):
    queues = [split(body, items_max=items_max) for body in bodies]
    mixed = []
    while queues:
        queue = data.draw(st.sampled_from(queues))
        mixed.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    results = read(enumerate(mixed))
    assert len(results) == len(bodies)
    assert all(body in bodies for body, _ in results)


@given(RECORDS, st.integers(1, 3))
def test_reading_twice_gives_twice(bodies, items_max):
    chunks = written(bodies, items_max)
    assembler = ProgressAssembler()
    for _ in range(2):
        assert [body for body, _ in read(enumerate(chunks), assembler)] == bodies
        assert not assembler._open, "a complete set is kept"


def test_sets_that_are_begun_and_never_completed_do_not_pile_up():
    assembler = ProgressAssembler()
    for revision in range(10_000):
        chunks = split(snapshot(0, revision, 0, 0, "ab"), items_max=1)
        assert assembler.add(chunks[0], offset=revision) is None
    assert len(assembler._open) <= 64
    assert assembler.add(chunks[1], offset=10_000) == (snapshot(0, 9_999, 0, 0, "ab"), 9_999)
