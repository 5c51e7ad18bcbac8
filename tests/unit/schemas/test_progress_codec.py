"""Progress records: to bytes and back, into chunks and together again."""

import io
import json
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import fastavro
import pytest
from hypothesis import given, settings
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


@given(BODIES)
def test_keys_tell_records_apart_as_compaction_needs_it(body):
    """Chunks of one set never meet under a key, nor do records of different kinds or tokens."""
    chunks = split(body, items_max=1)
    assert len({encode_key(chunk) for chunk in chunks}) == len(chunks)


@given(BODIES, BODIES)
def test_equal_keys_are_of_one_subject(left, right):
    def subject(body):
        match body:
            case StreamStarted():
                return ("started", body.stream, body.chunk)
            case PartitionAnnounced():
                return ("announced", body.child.token, body.parent)
            case PartitionFinished():
                return ("finished", body.token, body.chunk)
            case SlotProgress():
                return ("slot", body.slot, body.minute, body.chunk)

    assert (encode_key(left) == encode_key(right)) == (subject(left) == subject(right))


def schema_with(change):
    """This version's schema as another version might have had it."""
    schema = json.loads(RECORD_SCHEMA_TEXT)
    change({branch["name"]: branch for branch in schema["fields"][2]["type"]}, schema)
    return fastavro.parse_schema(schema)


@given(BODIES)
def test_a_record_of_a_later_version_is_read_without_what_is_new(body):
    def grow(branches, schema):
        schema["fields"].append({"name": "region", "type": "string"})
        for branch in branches.values():
            branch["fields"].insert(0, {"name": "brand_new", "type": ["null", "long"]})

    later = schema_with(grow)
    own = fastavro.parse_schema(json.loads(RECORD_SCHEMA_TEXT))
    record = ProgressRecord("e", "w", body)
    read = fastavro.schemaless_reader(
        io.BytesIO(encode_record(record)), own, None, return_record_name=True
    )
    name, fields = read["body"]
    written = {**read, "region": "eu", "body": (name, {**fields, "brand_new": 7})}
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, later, written)
    assert decode_record(buffer.getvalue(), later) == record


def test_a_record_of_an_earlier_version_that_lacks_a_field_is_refused():
    def shrink(branches, _schema):
        branches["PartitionAnnounced"]["fields"].pop()

    earlier = schema_with(shrink)
    buffer = io.BytesIO()
    announced = {"child": {"token": "c", "parents": [], "start_ns": 1}}
    body = ("tidegate.progress.PartitionAnnounced", announced)
    fastavro.schemaless_writer(buffer, earlier, {"epoch": "e", "worker": "w", "body": body})
    with pytest.raises(SchemaError):
        decode_record(buffer.getvalue(), earlier)


@pytest.mark.parametrize(
    "body",
    [
        PartitionAnnounced(ChildPartition("c", (), 2**63), "p"),
        PartitionAnnounced(ChildPartition("\ud800", (), 0), "p"),
        PartitionFinished("t", (), 1, 2, (), (TopicTotals("t", 0, 0, 0, 2**64),)),
        SlotProgress(0, 0, 0, 0, (TopicOffset("t", 0, None),), ()),
    ],
)
def test_what_does_not_fit_the_schema_is_refused(body):
    with pytest.raises(SchemaError) as caught:
        encode_record(ProgressRecord("e", "w", body))
    assert len(str(caught.value)) < 400


def test_a_key_that_does_not_fit_its_schema_is_refused():
    with pytest.raises(SchemaError):
        encode_key(PartitionAnnounced(child("\ud800"), "p"))


@given(BODIES, st.binary(min_size=1, max_size=4))
def test_bytes_beyond_the_record_are_refused(body, rest):
    with pytest.raises(SchemaError, match="beyond the end"):
        decode_record(encode_record(ProgressRecord("e", "w", body)) + rest)


@pytest.mark.parametrize(("chunk", "chunks"), [(1, 1), (-1, 1), (0, 0), (0, -1), (3, 2)])
def test_a_chunk_that_its_set_cannot_have_is_refused(chunk, chunks):
    for body in (
        StreamStarted("s", "d", 1, None, "g", 16, "id", (), ()),
        PartitionFinished("t", (), 1, 2, (), ()),
        slot_progress("a"),
    ):
        data = encode_record(ProgressRecord("e", "w", replace(body, chunk=chunk, chunks=chunks)))
        with pytest.raises(SchemaError, match="chunk"):
            decode_record(data)


def varint(number):
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*encoded, rest])


@pytest.mark.parametrize("length", [2**31, 2**40, 2**62, -1, -(2**40)])
def test_a_length_that_no_bytes_follow_is_refused_and_takes_no_memory(length):
    epoch_worker_announced_token = b"\0\0" + varint(1) + varint(1) + b"c"
    tracemalloc.start()
    try:
        for data in (
            varint(length) + b"abc",
            epoch_worker_announced_token + varint(length) + b"\2p" * 3,
            epoch_worker_announced_token + varint(1) + varint(length) + b"p",
        ):
            with pytest.raises(SchemaError):
                decode_record(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


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


SIZED = st.integers(0, 60).map(lambda size: "t" * size * 1024)


@settings(max_examples=25)
@given(st.lists(st.builds(lambda text, parents: token(text, parents=parents), SIZED,
                          st.lists(SIZED, max_size=3).map(tuple)), max_size=40))  # fmt: skip
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
