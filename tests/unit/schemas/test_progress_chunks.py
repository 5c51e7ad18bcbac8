"""Progress records as chunks: cut within limits, and whole again or not there."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.schemas.progress_building import assembled, child, read, slot_progress, token
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    StreamStarted,
    TokenMove,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)
from tidegate.schemas.progress_chunks import (
    CHUNK_BYTES_MAX,
    CHUNK_ITEMS_MAX,
    ProgressAssembler,
    split,
)
from tidegate.schemas.progress_codec import (
    encode_key,
    encode_record,
)


def encoded_sizes(chunks):
    return [len(encode_record(ProgressRecord("e", "w", chunk))) for chunk in chunks]


def fitting_chunks(body):
    """Return the chunks of a body, which fit a message each and are the body together."""
    chunks = split(body)
    assert max(encoded_sizes(chunks)) < 512 * 1024
    assert assembled(chunks) == [(body, 0)]
    return chunks


def test_the_first_chunk_alone_carries_vector_and_totals():
    assert split(slot_progress()) == [slot_progress()]
    first, second = split(slot_progress("ab"), items_max=1)
    assert first.vector
    assert second.vector == ()
    totals = (TopicTotals("t", 1, 1, 1, 1),)
    finished = PartitionFinished("t", (), 1, 2, (child("a"), child("b")), totals)
    first, second = split(finished, items_max=1)
    assert (first.totals, second.totals) == (totals, ())


def test_chunks_are_bounded_in_number_of_items():
    chunks = split(slot_progress([str(n) for n in range(2 * CHUNK_ITEMS_MAX + 1)]))
    assert [len(chunk.tokens) for chunk in chunks] == [CHUNK_ITEMS_MAX, CHUNK_ITEMS_MAX, 1]


HUGE_KEYS = tuple(range(-(1 << 63), -(1 << 63) + 100_000))
"""Each takes all ten bytes of its varint."""
CHILDREN = tuple(ChildPartition("c" * 900, ("p" * 100,), n) for n in range(399))


def heavy_bodies():
    name = "t" * 218
    many = tuple(TopicTotals(f"bank.a_rather_long_table_name_{n}", 1, 1, 1, 1) for n in range(50))
    tokens = tuple(token(f"{name}{n}", parents=(name,) * 5, totals=many) for n in range(450))
    yield "400 tokens with many parents and totals", slot_progress(tokens=tokens)
    vector = tuple(TopicOffset(f"bank.table_{n % 90}", n, n) for n in range(12_000))
    tokens = tuple(token(f"{n:05d}" + "t" * 900) for n in range(399))
    yield "a vector beside tokens", SlotProgress(3, 1, 77, 4, vector, tokens)
    topics = tuple(DataTopic(f"bank.table_{n}", "i" * 22, 6, n) for n in range(4_500))
    yield "topics", StreamStarted("s", "d", 1, None, "g", 16, "id", topics, CHILDREN)
    totals = tuple(TopicTotals("t" * 100, n, n, n, n) for n in range(2_000))
    yield "totals", PartitionFinished("t", ("p" * 100,) * 500, 1, 2, CHILDREN, totals)
    # Parked keys that many parents have announced.
    wide = (token("a", parked_keys=HUGE_KEYS, boundary=(("tx", "1"),)),)
    yield "parked keys", slot_progress(tokens=wide)
    yield "parked keys that changed", SlotChanges(3, 2, 1, 77, 4, (), None, 1, wide)
    moved = tuple(TokenMove(n, n, (("tx", "1"),), many) for n in range(450))
    numbers = tuple(range(450, 950))
    yield "changes", SlotChanges(3, 2, 1, 77, 4, vector, None, 1, tokens, moved, numbers)
    # 100 tables with 600 topic partitions each: no message would take them.
    vector = tuple(TopicOffset(f"bank.table_{n % 100}", n // 100, 2**40) for n in range(60_000))
    yield "a vector", slot_progress("abc", vector=vector)


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in heavy_bodies()])
def test_a_body_of_any_size_is_cut_into_chunks_that_fit_a_message(body):
    assert len(fitting_chunks(body)) > 1


def test_a_token_with_as_many_parked_keys_as_it_may_have_is_one_item():
    keys = HUGE_KEYS[:1_000]
    body = slot_progress(tokens=tuple(token(f"{n}", parked_keys=keys) for n in range(100)))
    chunks = fitting_chunks(body)
    assert len(chunks) > 1
    assert all(len(one.parked_keys) == len(keys) for chunk in chunks for one in chunk.tokens)


SIZED = st.integers(0, 60).map(lambda size: "t" * size * 1024)


PARENTS = st.lists(SIZED, max_size=3).map(tuple)
WIDE = st.builds(lambda text, parents: token(text, parents=parents), SIZED, PARENTS)


@settings(max_examples=25)
@given(st.lists(WIDE, max_size=40, unique_by=lambda one: one.token))
def test_tokens_of_any_size_make_no_more_chunks_than_needed(tokens):
    """Two neighbours would not fit one message."""
    chunks = fitting_chunks(slot_progress(tokens=tuple(tokens)))
    least = CHUNK_BYTES_MAX - 64 * 1024 - 3 * 61 * 1024
    assert all(sum(pair) > least for pair in pairwise(encoded_sizes(chunks)))


def test_one_item_larger_than_a_chunk_stands_alone():
    huge = token("h", parents=("p" * CHUNK_BYTES_MAX,))
    chunks = split(slot_progress(tokens=(token("a"), huge, token("b"))))
    assert [[item.token for item in chunk.tokens] for chunk in chunks] == [["a"], ["h"], ["b"]]


def test_a_vector_that_fills_a_chunk_leaves_the_tokens_to_the_next():
    vector = tuple(TopicOffset("t" * 100, n, n) for n in range(2_978))
    wide = token("w", parents=("p" * 300_000,))
    chunks = split(SlotProgress(3, 1, 77, 4, vector, (wide,)))
    assert [(len(c.vector), len(c.tokens)) for c in chunks] == [(2_978, 0), (0, 1)]


def test_a_token_of_any_size_is_cut():
    """30,000 transactions of one instant, and totals over thousands of tables."""
    boundary = tuple((f"{n:024d}", "00000000") for n in range(30_000))
    totals = tuple(TopicTotals(f"bank.{n:0100d}", n, n, n, n) for n in range(5_000))
    short = token("w", parents=("p", "q"))
    wide = replace(short, boundary=boundary, totals=totals)
    chunks = fitting_chunks(slot_progress(tokens=(token("a"), wide, token("z"))))
    parts = [item for chunk in chunks for item in chunk.tokens if item.token == "w"]
    assert len(parts) > 2
    assert {replace(part, boundary=(), totals=()) for part in parts} == {short}


def test_a_set_exists_once_it_is_complete_in_order_and_of_one_revision():
    a, b, c = chunks = split(slot_progress("abc"), items_max=1)
    for incomplete in ([a, b], [b, c], [a, c], [b, a, c]):
        assert assembled(incomplete) == []
    # A set that begins again replaces what was begun.
    assert assembled([a, b, *chunks]) == [(slot_progress("abc"), 2)]
    older, newer = (split(slot_progress("ab", revision=n), items_max=1) for n in (1, 2))
    assert assembled([older[0], newer[1]]) == []
    results = assembled([older[0], *newer, older[1]])
    assert [body.revision for body, _ in results] == [2, 1]
    # Other records pass between chunks.
    announced = PartitionAnnounced(child("c"), "p")
    found = assembled([older[0], announced, older[1]])
    assert found == [(announced, 1), (slot_progress("ab"), 0)]


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


FEW_BODIES = st.one_of(
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


RECORDS = st.lists(FEW_BODIES, min_size=1, max_size=5, unique_by=head)


def written(bodies, items_max):
    return [chunk for body in bodies for chunk in split(body, items_max=items_max)]


@given(RECORDS, st.integers(1, 3), st.data())
def test_any_choice_of_chunks_in_any_order_gives_only_what_was_written(bodies, items_max, data):
    chunks = written(bodies, items_max)
    chosen = data.draw(st.lists(st.sampled_from(chunks), max_size=2 * len(chunks)))
    shuffled = data.draw(st.permutations(chunks))
    assert all(body in bodies for body, _ in read(enumerate([*shuffled, *chosen])))


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


def test_sets_that_are_begun_and_never_completed_do_not_pile_up():
    assembler = ProgressAssembler()
    for revision in range(10_000):
        chunks = split(snapshot(0, revision, 0, 0, "ab"), items_max=1)
        assert assembler.add(chunks[0], offset=revision) is None
    assert len(assembler._open) <= 64
    assert assembler.add(chunks[1], offset=10_000) == (snapshot(0, 9_999, 0, 0, "ab"), 9_999)
