"""Progress records: to bytes and back, into chunks and together again."""

import io
import json
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)
from tidegate.schemas.progress_codec import (
    CHUNK_BYTES_MAX,
    CHUNK_ITEMS_MAX,
    KEY_SCHEMA,
    KEY_SCHEMA_TEXT,
    RECORD_SCHEMA,
    RECORD_SCHEMA_TEXT,
    ProgressAssembler,
    decode_record,
    encode_key,
    encode_record,
    split,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)


def tuples(of):
    return st.lists(of, max_size=3).map(tuple)


CHILD = st.builds(ChildPartition, TEXT, TEXTS, INT64)
TOTALS = st.builds(TopicTotals, TEXT, INT64, INT64, INT64, st.integers(0, 2**64 - 1))
TOKEN = st.builds(
    TokenSnapshot, TEXT, INT64, TEXTS, TEXTS, INT64, tuples(st.tuples(TEXT, TEXT)),
    tuples(TOTALS), SMALL, SMALL,
)  # fmt: skip
BODIES = st.one_of(
    st.builds(
        StreamStarted, TEXT, TEXT, INT64, st.none() | INT64, TEXT, SMALL, TEXT,
        tuples(st.builds(DataTopic, TEXT, TEXT, SMALL, SMALL)), tuples(CHILD), TEXTS,
    ),
    st.builds(PartitionAnnounced, CHILD, TEXT),
    st.builds(
        PartitionFinished, TEXT, TEXTS, INT64, INT64, tuples(CHILD), tuples(TOTALS), SMALL, SMALL
    ),
    st.builds(
        SlotProgress, SMALL, INT64, INT64, INT64,
        tuples(st.builds(TopicOffset, TEXT, SMALL, INT64)), tuples(TOKEN),
    ),
)  # fmt: skip


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


@given(TEXT, TEXT, BODIES)
def test_a_record_comes_back(epoch, worker, body):
    record = ProgressRecord(epoch, worker, body)
    assert decode_record(encode_record(record)) == record


@given(BODIES)
def test_a_record_written_with_the_registrys_schema_is_read(body):
    record = ProgressRecord("e", "w", body)
    writer = fastavro.parse_schema(json.loads(RECORD_SCHEMA_TEXT))
    assert decode_record(encode_record(record), writer) == record


@given(st.binary(max_size=80))
def test_other_bytes_are_refused_or_a_record(data):
    try:
        record = decode_record(data)
    except SchemaError:
        return
    assert isinstance(record, ProgressRecord)


def test_a_truncated_record_is_refused():
    data = encode_record(ProgressRecord("e", "w", slot_progress("ab")))
    for end in range(len(data)):
        with pytest.raises(SchemaError):
            decode_record(data[:end])


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (
            StreamStarted("s", "d", 1, None, "g", 16, "id", (), (), chunk=2, chunks=3),
            {"kind": "STREAM_STARTED", "id": "s", "detail": "", "chunk": 2},
        ),
        (
            PartitionAnnounced(child("c"), "p"),
            {"kind": "PARTITION_ANNOUNCED", "id": "c", "detail": "p", "chunk": 0},
        ),
        (
            PartitionFinished("t", (), 1, 2, (), (), chunk=1, chunks=2),
            {"kind": "PARTITION_FINISHED", "id": "t", "detail": "", "chunk": 1},
        ),
        (
            slot_progress("a"),
            {"kind": "SLOT_PROGRESS", "id": "3", "detail": "77", "chunk": 0},
        ),
    ],
)
def test_keys_are_those_of_the_protocol(body, key):
    schema = fastavro.parse_schema(json.loads(KEY_SCHEMA_TEXT))
    assert fastavro.schemaless_reader(io.BytesIO(encode_key(body)), schema, schema) == key


def test_the_schemas_stand_ready_for_a_registry():
    assert json.loads(KEY_SCHEMA_TEXT) == KEY_SCHEMA
    assert json.loads(RECORD_SCHEMA_TEXT) == RECORD_SCHEMA


@given(BODIES, st.integers(1, 4))
def test_chunks_are_put_together_again(body, items_max):
    chunks = split(body, items_max=items_max)
    assert assembled(chunks) == [(body, 0)]
    if not isinstance(body, PartitionAnnounced):
        assert [chunk.chunk for chunk in chunks] == list(range(len(chunks)))
        assert {chunk.chunks for chunk in chunks} == {len(chunks)}


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
    heavy = tuple(token(name, parents=(name,) * 5, totals=totals) for _ in range(450))
    body = replace(slot_progress(""), tokens=heavy)
    chunks = split(body)
    sizes = [len(encode_record(ProgressRecord("e", "w", chunk))) for chunk in chunks]
    assert max(sizes) < 512 * 1024
    assert len(chunks) > 2
    assert assembled(chunks) == [(body, 0)]


def test_one_item_larger_than_a_chunk_stands_alone():
    huge = token("h", parents=("p" * CHUNK_BYTES_MAX,))
    chunks = split(replace(slot_progress(""), tokens=(token("a"), huge, token("b"))))
    assert [[item.token for item in chunk.tokens] for chunk in chunks] == [["a"], ["h"], ["b"]]


def test_an_incomplete_set_does_not_exist():
    chunks = split(slot_progress("abc"), items_max=1)
    assert assembled(chunks[:2]) == []
    assert assembled(chunks[1:]) == []
    assert assembled([chunks[0], chunks[2]]) == []
    assert assembled([chunks[1], chunks[0], chunks[2]]) == []


def test_a_set_that_begins_anew_replaces_what_was_begun():
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
