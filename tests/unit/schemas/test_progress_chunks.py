"""Records to chunks that fit a message, and together again."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    StreamStarted,
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
from tidegate.schemas.progress_codec import encode_record


def child(name):
    return ChildPartition(name, ("p",), 1)


def token(name, **changes):
    return replace(TokenSnapshot(name, 1, (), (), 0), **changes)


def slot_progress(tokens, *, revision=1):
    vector = (TopicOffset("bank.accounts", 0, 5),)
    return SlotProgress(3, revision, 77, 4, vector, tuple(token(name) for name in tokens))


def assembled(bodies, assembler=None):
    """What comes out, with the offset of each record's first chunk."""
    assembler = assembler or ProgressAssembler()
    results = [assembler.add(body, offset=offset) for offset, body in enumerate(bodies)]
    return [result for result in results if result is not None]


def test_the_first_chunk_alone_carries_vector_and_totals():
    first, second = split(slot_progress("ab"), items_max=1)
    assert first.vector
    assert second.vector == ()
    totals = (TopicTotals("t", 1, 1, 1, 1),)
    finished = PartitionFinished("t", (), 1, 2, (child("a"), child("b")), totals)
    first, second = split(finished, items_max=1)
    assert first.totals == totals
    assert second.totals == ()


def test_a_record_without_items_is_one_chunk():
    assert split(slot_progress("")) == [slot_progress("")]


def test_chunks_are_bounded_in_number_of_items():
    chunks = split(slot_progress([str(n) for n in range(2 * CHUNK_ITEMS_MAX + 1)]))
    assert [len(chunk.tokens) for chunk in chunks] == [CHUNK_ITEMS_MAX, CHUNK_ITEMS_MAX, 1]


def test_chunks_are_bounded_in_bytes():
    """Tokens with many parents and totals: 400 of them would not fit a Kafka message."""
    name = "t" * 218
    totals = tuple(TopicTotals(f"bank.a_rather_long_table_name_{n}", 1, 1, 1, 1) for n in range(50))
    heavy = tuple(token(f"{name}{n}", parents=(name,) * 5, totals=totals) for n in range(450))
    body = replace(slot_progress(""), tokens=heavy)
    chunks = split(body)
    sizes = [len(encode_record(ProgressRecord("e", "w", chunk))) for chunk in chunks]
    assert max(sizes) < 512 * 1024
    assert len(chunks) > 2
    assert assembled(chunks) == [(body, 0)]


def encoded_sizes(chunks):
    return [len(encode_record(ProgressRecord("e", "w", chunk))) for chunk in chunks]


def test_what_stands_beside_the_items_counts_too():
    """A vector over thousands of topic partitions, a start over hundreds of tables."""
    tokens = tuple(token(f"{n:05d}" + "t" * 900) for n in range(399))
    vector = tuple(TopicOffset(f"bank.table_{n % 90}", n, n) for n in range(12_000))
    heavy = SlotProgress(3, 1, 77, 4, vector, tokens)
    topics = tuple(DataTopic(f"bank.table_{n}", "i" * 22, 6, n) for n in range(4_500))
    children = tuple(ChildPartition("c" * 900, ("p" * 100,), n) for n in range(399))
    start = StreamStarted("s", "d", 1, None, "g", 16, "id", topics, children)
    totals = tuple(TopicTotals("t" * 100, n, n, n, n) for n in range(2_000))
    finish = PartitionFinished("t", ("p" * 100,) * 500, 1, 2, children, totals)
    for body in (heavy, start, finish):
        chunks = split(body)
        assert max(encoded_sizes(chunks)) < 512 * 1024
        assert assembled(chunks) == [(body, 0)]


def test_a_token_with_as_many_parked_keys_as_it_may_have_is_one_item():
    """Each key takes all ten bytes of its varint."""
    keys = tuple(range(-(1 << 63), -(1 << 63) + 1_000))
    tokens = tuple(token(f"{n}", parked_keys=keys) for n in range(100))
    body = replace(slot_progress(""), tokens=tokens)
    chunks = split(body)
    assert len(chunks) > 1
    assert all(len(one.parked_keys) == len(keys) for chunk in chunks for one in chunk.tokens)
    assert max(encoded_sizes(chunks)) < 512 * 1024
    assert assembled(chunks) == [(body, 0)]


def test_parked_keys_that_many_parents_have_announced_are_cut():
    keys = tuple(range(-(1 << 63), -(1 << 63) + 100_000))
    boundary = (("tx", "1"),)
    body = replace(slot_progress(""), tokens=(token("a", parked_keys=keys, boundary=boundary),))
    for whole in (body, SlotChanges(3, 2, 1, 77, 4, (), None, 1, body.tokens)):
        chunks = split(whole)
        assert max(encoded_sizes(chunks)) < 512 * 1024
        assert assembled(chunks) == [(whole, 0)]


SIZED = st.integers(0, 60).map(lambda size: "t" * size * 1024)


PARENTS = st.lists(SIZED, max_size=3).map(tuple)
WIDE = st.builds(lambda text, parents: token(text, parents=parents), SIZED, PARENTS)


@settings(max_examples=25)
@given(st.lists(WIDE, max_size=40, unique_by=lambda one: one.token))
def test_tokens_of_any_size_make_chunks_that_fit_a_message(tokens):
    body = replace(slot_progress(""), tokens=tuple(tokens))
    chunks = split(body)
    assert max(encoded_sizes(chunks)) < 512 * 1024
    assert assembled(chunks) == [(body, 0)]
    # No more chunks than needed: two neighbours would not fit one.
    assert all(
        sum(pair) > CHUNK_BYTES_MAX - 64 * 1024 - 3 * 61 * 1024
        for pair in pairwise(encoded_sizes(chunks))
    )


def test_one_item_larger_than_a_chunk_stands_alone():
    huge = token("h", parents=("p" * CHUNK_BYTES_MAX,))
    chunks = split(replace(slot_progress(""), tokens=(token("a"), huge, token("b"))))
    assert [[item.token for item in chunk.tokens] for chunk in chunks] == [["a"], ["h"], ["b"]]


def test_a_vector_of_any_size_is_cut():
    """60,000 entries: 100 tables with 600 topic partitions each.  No message would take them."""
    vector = tuple(TopicOffset(f"bank.table_{n % 100}", n // 100, 2**40) for n in range(60_000))
    body = replace(slot_progress("abc"), vector=vector)
    chunks = split(body)
    assert max(encoded_sizes(chunks)) < 512 * 1024
    assert assembled(chunks) == [(body, 0)]


def test_a_vector_that_fills_a_chunk_leaves_the_tokens_to_the_next():
    vector = tuple(TopicOffset("t" * 100, n, n) for n in range(2_978))
    wide = token("w", parents=("p" * 300_000,))
    chunks = split(SlotProgress(3, 1, 77, 4, vector, (wide,)))
    assert [(len(c.vector), len(c.tokens)) for c in chunks] == [(2_978, 0), (0, 1)]


def test_a_token_of_any_size_is_cut():
    """30,000 transactions of one instant, and totals over thousands of tables."""
    boundary = tuple((f"{n:024d}", "00000000") for n in range(30_000))
    totals = tuple(TopicTotals(f"bank.{n:0100d}", n, n, n, n) for n in range(5_000))
    wide = token("w", parents=("p", "q"), boundary=boundary, totals=totals)
    body = replace(slot_progress(""), tokens=(token("a"), wide, token("z")))
    chunks = split(body)
    assert max(encoded_sizes(chunks)) < 512 * 1024
    assert assembled(chunks) == [(body, 0)]
    parts = [item for chunk in chunks for item in chunk.tokens if item.token == "w"]
    assert len(parts) > 2
    assert {replace(part, boundary=(), totals=()) for part in parts} == {
        token("w", parents=("p", "q"))
    }


@given(
    st.lists(st.sampled_from("abcde"), unique=True, max_size=5),
    st.lists(st.tuples(st.sampled_from("tu"), st.integers(0, 99)), unique=True, max_size=20),
    st.lists(st.text("xy", max_size=40), unique=True, max_size=9),
    st.integers(1, 3),
    st.integers(1, 900),
)
def test_any_limits_give_chunks_that_are_put_together_again(names, places, ids, items, size):
    vector = tuple(TopicOffset(topic, number, 1) for topic, number in places)
    boundary = tuple((one, "0") for one in ids)
    tokens = tuple(token(name, boundary=boundary) for name in names)
    body = SlotProgress(3, 1, 77, 4, vector, tokens)
    assert assembled(split(body, items_max=items, bytes_max=size)) == [(body, 0)]


def test_an_incomplete_set_does_not_exist():
    chunks = split(slot_progress("abc"), items_max=1)
    assert assembled(chunks[:2]) == []
    assert assembled(chunks[1:]) == []
    assert assembled([chunks[0], chunks[2]]) == []
    assert assembled([chunks[1], chunks[0], chunks[2]]) == []


def test_a_set_that_begins_again_replaces_what_was_begun():
    chunks = split(slot_progress("abc"), items_max=1)
    (result,) = assembled([chunks[0], chunks[1], *chunks])
    assert result == (slot_progress("abc"), 2)


def test_sets_of_two_revisions_are_not_mixed():
    older = split(slot_progress("ab", revision=1), items_max=1)
    newer = split(slot_progress("cd", revision=2), items_max=1)
    assert assembled([older[0], newer[1]]) == []
    results = assembled([older[0], newer[0], newer[1], older[1]])
    assert [body.revision for body, _ in results] == [2, 1]


def test_other_records_pass_between_chunks():
    chunks = split(slot_progress("ab"), items_max=1)
    announced = PartitionAnnounced(child("c"), "p")
    assert assembled([chunks[0], announced, chunks[1]]) == [
        (announced, 1),
        (slot_progress("ab"), 0),
    ]
