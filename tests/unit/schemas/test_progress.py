"""Progress records: bytes, versions, chunks, chains of changes, and the schemas of their ids."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate.schemas.errors import SchemaError, UnreachableError, UnreadableProgress
from tidegate.schemas.progress import (
    PROGRESS_VERSION,
    ChecksumKind,
    ChildPartition,
    ControlState,
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressRecord,
    SlotChanges,
    SlotPaused,
    SlotProgress,
    SlotWatermark,
    SlotWatermarkExpired,
    SlowestToken,
    StreamControl,
    StreamStarted,
    TableAdded,
    TimestampForm,
    TokenMove,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
    WorkerDrain,
)
from tidegate.schemas.progress_chain import SlotChain
from tidegate.schemas.progress_chunks import (
    CHUNK_BYTES_MAX,
    CHUNK_ITEMS_MAX,
    ProgressAssembler,
    split,
)
from tidegate.schemas.progress_codec import (
    KEY_SCHEMAS,
    RECORD_SCHEMA,
    RECORD_SCHEMAS,
    decode_record,
    encode_key,
    encode_record,
    is_announcement_key,
    is_root_key,
    schema_text,
)
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.wire_format import frame

INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)


def tuples(of):
    return st.lists(of, max_size=3).map(tuple)


CHILD = st.builds(ChildPartition, TEXT, TEXTS, INT64)
TOTALS = st.builds(TopicTotals, TEXT, INT64, INT64, INT64, st.integers(0, 2**64 - 1))
BOUNDARY = tuples(st.tuples(TEXT, TEXT))
KINDS = st.sampled_from(ChecksumKind)
TOKEN = st.builds(
    TokenSnapshot, TEXT, INT64, TEXTS, TEXTS, INT64, BOUNDARY, tuples(TOTALS), SMALL, SMALL,
    SMALL, KINDS, st.none() | TEXT, tuples(INT64),
)  # fmt: skip
TOKENS = st.lists(TOKEN, max_size=3, unique_by=lambda token: token.token).map(tuple)
MOVES = st.lists(
    st.builds(TokenMove, SMALL, INT64, BOUNDARY, tuples(TOTALS), SMALL, SMALL),
    max_size=3, unique_by=lambda move: move.number,
).map(tuple)  # fmt: skip
VECTOR = tuples(st.builds(TopicOffset, TEXT, SMALL, INT64))
SLOWEST = st.none() | st.builds(SlowestToken, TEXT, INT64)
BODIES = st.one_of(
    st.builds(
        StreamStarted, TEXT, TEXT, INT64, st.none() | INT64, TEXT, SMALL, TEXT,
        tuples(st.builds(DataTopic, TEXT, TEXT, SMALL, SMALL)), tuples(CHILD), TEXTS,
        timestamps=st.sampled_from(TimestampForm),
    ),
    st.builds(PartitionAnnounced, CHILD, TEXT, tuples(INT64)),
    st.builds(
        PartitionFinished, TEXT, TEXTS, INT64, INT64, tuples(CHILD), tuples(TOTALS), SMALL, SMALL,
        checksums=KINDS,
    ),
    st.builds(SlotProgress, SMALL, INT64, INT64, INT64, VECTOR, TOKENS),
    st.builds(
        SlotChanges, SMALL, INT64, SMALL, INT64, INT64, VECTOR, SLOWEST, SMALL, TOKENS, MOVES,
        tuples(SMALL),
    ),
    st.builds(SlotWatermark, SMALL, INT64, INT64, INT64, VECTOR, SLOWEST, SMALL),
    st.builds(TableAdded, st.builds(DataTopic, TEXT, st.text("ab-", max_size=3), SMALL, SMALL)),
    st.builds(PartitionGap, TEXT, INT64, INT64, TEXT, INT64),
    st.builds(StreamControl, INT64, st.sampled_from(ControlState), TEXT, INT64),
    st.builds(WorkerDrain, TEXT, TEXT, INT64),
    st.builds(SlotPaused, SMALL, INT64),
)  # fmt: skip


def child(name):
    return ChildPartition(name, ("p",), 1)


def token(name, **changes):
    return replace(TokenSnapshot(name, 1, (), (), 0), **changes)


def slot_progress(names="", *, revision=1, **changes):
    vector = (TopicOffset("bank.accounts", 0, 5),)
    body = SlotProgress(3, revision, 77, 4, vector, tuple(token(name) for name in names))
    return replace(body, **changes)


def bytes_of(body, version=PROGRESS_VERSION):
    return encode_record(ProgressRecord("e", "w", body, version))


def avro(schema=RECORD_SCHEMA):
    return fastavro.parse_schema(copy.deepcopy(schema))


def avro_bytes(schema, datum):
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, datum)
    return buffer.getvalue()


def plain(data):
    """Return a record of the newest version as its schema alone describes it."""
    return fastavro.schemaless_reader(io.BytesIO(data), avro(), None, return_record_name=True)


def assembled(bodies, assembler=None):
    """What comes out, with the offset of each record's first chunk."""
    return read(enumerate(bodies), assembler)


@given(TEXT, TEXT, BODIES)
def test_a_record_comes_back_with_the_registrys_schema_too(epoch, worker, body):
    record = ProgressRecord(epoch, worker, body)
    assert decode_record(encode_record(record)) == record
    assert decode_record(encode_record(record), avro()) == record


@given(BODIES)
def test_a_key_tells_the_chunk_what_all_read_and_an_announcement(body):
    """Compaction needs the first: chunks of one set never meet under a key."""
    chunks = split(body, items_max=1)
    assert len({encode_key(chunk) for chunk in chunks}) == len(chunks)
    is_for_all = isinstance(body, TableAdded | StreamControl | WorkerDrain)
    assert is_root_key(encode_key(body)) == is_for_all
    assert is_announcement_key(encode_key(body)) == isinstance(body, PartitionAnnounced)


def test_a_tombstone_has_the_key_of_what_it_removes_and_no_value():
    watermark = SlotWatermark(3, 9, 77, 4, (), None, 0)
    expired = SlotWatermarkExpired(3, 77)
    assert encode_key(expired) == encode_key(watermark)
    assert encode_record(ProgressRecord("e", "w", expired)) is None


GAP = PartitionGap("t", 5, 9, "ops@host", 7)
STARTED = StreamStarted("s", "d", 1, None, "g", 16, "id", (), ())
CHANGES = SlotChanges(3, 2, 1, 77, 4, (), None, 0)
FINISHED = PartitionFinished("t", (), 1, 2, (), (), chunk=1, chunks=2)
TABLE_ADDED = TableAdded(DataTopic("t", "id", 3, 7))
SINCE = [
    (2, CHANGES, "does not match its schema"),
    (2, TABLE_ADDED, "does not match its schema"),
    (3, GAP, "cannot hold an accepted gap"),
    (4, StreamControl(1, ControlState.PAUSED, "me", 2), "cannot hold a pause"),
    (4, WorkerDrain("w", "me", 2), "cannot hold the drain"),
    (4, SlotPaused(3, 1), "cannot hold a pause"),
]


@pytest.mark.parametrize(
    ("body", "version", "text"),
    [(body, version, text) for since, body, text in SINCE for version in range(1, since)],
)
def test_earlier_versions_cannot_write_a_later_body_and_their_readers_refuse_it(
    body, version, text
):
    """A reader of version 1 would treat changes as a whole snapshot, if they had that name."""
    for write in (encode_key, bytes_of):
        with pytest.raises(SchemaError, match=text if version > 1 or write is bytes_of else ""):
            write(body, version)
    reader = avro(RECORD_SCHEMAS[version])
    with pytest.raises(fastavro.read.SchemaResolutionError):
        fastavro.schemaless_reader(io.BytesIO(bytes_of(body)), avro(), reader)
    # The bodies that it knows, it reads from the newest version too.
    others = io.BytesIO(bytes_of(PartitionAnnounced(child("c"), "p")))
    assert fastavro.schemaless_reader(others, avro(), reader)["body"]["parent"] == "p"


def test_version_1_cannot_hold_parked_keys_nor_that_timestamps_are_text():
    assert bytes_of(STARTED, 1)
    for body, text in (
        (PartitionAnnounced(child("c"), "p", (7,)), "parked keys"),
        (slot_progress(tokens=(token("a"), token("b", parked_keys=(-1,)))), "parked keys"),
        (replace(STARTED, timestamps="STRING"), "form of timestamps"),
    ):
        with pytest.raises(SchemaError, match=text):
            bytes_of(body, 1)
    # Every chunk of a set holds it.
    text = replace(STARTED, children=(child("a"), child("b")), timestamps=TimestampForm.STRING)
    assert {one.timestamps for one in split(text, items_max=1)} == {TimestampForm.STRING}


def test_a_stream_that_began_before_the_form_was_recorded_has_microseconds():
    schema = json.loads(schema_text("progress_record", 2))
    assert schema["fields"][2]["type"][0]["fields"].pop()["name"] == "timestamps"
    writer = fastavro.parse_schema(schema)
    assert decode_record(avro_bytes(writer, plain(bytes_of(STARTED))), writer).body == STARTED


def test_a_record_of_version_1_is_read_with_what_it_could_not_say():
    newer = token("a", number=4, checksums=ChecksumKind.XXHASH_64, stopped="why")
    record = ProgressRecord("e", "w", SlotProgress(3, 1, 77, 4, (), (newer,)), 1)
    read = decode_record(encode_record(record), version=1)
    assert read == replace(record, body=replace(record.body, tokens=(token("a"),)))
    assert read.body.tokens[0].number == -1
    assert read.body.tokens[0].checksums is ChecksumKind.BLAKE2B_64


def test_keys_of_every_version_tell_announcements():
    for version in (1, 2, 3):
        assert is_announcement_key(encode_key(PartitionAnnounced(child("t"), "p"), version))
        assert not is_announcement_key(encode_key(slot_progress(), version))


def schema_with(change):
    """This version's schema as another version might have had it."""
    schema = copy.deepcopy(RECORD_SCHEMA)
    change({branch["name"]: branch for branch in schema["fields"][2]["type"]}, schema)
    return fastavro.parse_schema(schema)


@given(BODIES)
def test_a_record_of_a_later_version_is_read_without_what_is_new(body):
    def grow(branches, schema):
        schema["fields"].append({"name": "region", "type": "string"})
        for branch in branches.values():
            branch["fields"].insert(0, {"name": "brand_new", "type": ["null", "long"]})

    later = schema_with(grow)
    read = plain(bytes_of(body))
    name, fields = read["body"]
    datum = {**read, "region": "eu", "body": (name, {**fields, "brand_new": 7})}
    assert decode_record(avro_bytes(later, datum), later) == ProgressRecord("e", "w", body)


ANNOUNCED_DATUM = {"child": {"token": "a", "parents": ["p"], "start_ns": 5}, "parent": "p"}
ANNOUNCED_BODY = ("tidegate.progress.PartitionAnnounced", ANNOUNCED_DATUM)


def test_what_does_not_fit_the_schema_is_refused():
    not_text = PartitionAnnounced(child("\ud800"), "p")
    for body in (
        PartitionAnnounced(ChildPartition("c", (), 2**63), "p"),
        not_text,
        PartitionFinished("t", (), 1, 2, (), (TopicTotals("t", 0, 0, 0, 2**64),)),
        SlotProgress(0, 0, 0, 0, (TopicOffset("t", 0, None),), ()),
    ):
        with pytest.raises(SchemaError) as caught:
            bytes_of(body)
        assert len(str(caught.value)) < 400
    with pytest.raises(SchemaError):
        encode_key(not_text)


@pytest.mark.parametrize(("chunk", "chunks"), [(1, 1), (-1, 1), (0, 0), (0, -1), (3, 2)])
def test_a_chunk_that_its_set_cannot_have_is_refused(chunk, chunks):
    for body in (STARTED, PartitionFinished("t", (), 1, 2, (), ()), slot_progress("a")):
        with pytest.raises(SchemaError, match="chunk"):
            decode_record(bytes_of(replace(body, chunk=chunk, chunks=chunks)))


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


def test_a_record_with_bytes_too_few_or_too_many_is_refused():
    data = bytes_of(slot_progress("ab"))
    for end in range(len(data)):
        with pytest.raises(SchemaError):
            decode_record(data[:end])
    with pytest.raises(SchemaError, match="beyond the end"):
        decode_record(data + b"\0")


@pytest.mark.parametrize(
    ("body", "key", "version"),
    [
        (replace(STARTED, chunk=2, chunks=3), ("STREAM_STARTED", "s", "", 2), 4),
        (PartitionAnnounced(child("c"), "p"), ("PARTITION_ANNOUNCED", "c", "p", 0), 4),
        (FINISHED, ("PARTITION_FINISHED", "t", "", 1), 4),
        (slot_progress("a"), ("SLOT_PROGRESS", "3", "", 0), 4),
        (slot_progress("a"), ("SLOT_PROGRESS", "3", "77", 0), 1),
        (replace(CHANGES, position=5, chunk=1, chunks=2), ("SLOT_CHANGES", "3", "5", 1), 4),
        (SlotWatermark(3, 2, 77, 4, (), None, 0), ("SLOT_WATERMARK", "3", "77", 0), 4),
        (TABLE_ADDED, ("TABLE_ADDED", "t", "id/3/7", 0), 4),
        (GAP, ("PARTITION_GAP", "t", "5", 0), 4),
        (StreamControl(7, ControlState.PAUSED, "ops", 9), ("STREAM_CONTROL", "", "", 0), 4),
        (WorkerDrain("w1", "ops@host", 9), ("WORKER_DRAIN", "w1", "", 0), 4),
        (SlotPaused(3, 7), ("SLOT_PAUSED", "3", "", 0), 4),
    ],
)
def test_keys_are_those_of_the_protocol(body, key, version):
    assert read_key(body, version) == key


def read_key(body, version):
    schema = avro(KEY_SCHEMAS[version])
    found = fastavro.schemaless_reader(io.BytesIO(encode_key(body, version)), schema, schema)
    return tuple(found[name] for name in ("kind", "id", "detail", "chunk"))


@given(BODIES, st.integers(1, 4), st.integers(1, 900))
def test_chunks_are_put_together_again(body, items_max, bytes_max):
    chunks = split(body, items_max=items_max, bytes_max=bytes_max)
    assert assembled(chunks) == [(body, 0)]
    items = ("children", "tokens")
    assert all(len(getattr(one, name, ())) <= items_max for one in chunks for name in items)
    if hasattr(body, "chunks"):
        assert [chunk.chunk for chunk in chunks] == list(range(len(chunks)))
        assert {chunk.chunks for chunk in chunks} == {len(chunks)}


def test_a_schema_that_topics_hold_never_changes():
    """A change of what is written needs another version, whose readers know both."""
    keys = "bf27f9a0d7387647 069fb266995666dc 045832b04db30e6a 2504a1533b3115eb"
    records = "644683ff7ee05b3b 6a151526d89f084b 910210fbc0551e7c dab438aa7f345384"
    for kind, schemas, known in (("key", KEY_SCHEMAS, keys), ("record", RECORD_SCHEMAS, records)):
        for version, fingerprint in enumerate(known.split(), 1):
            text = schema_text(f"progress_{kind}", version)
            assert hashlib.sha256(text.encode()).hexdigest().startswith(fingerprint)
            assert json.loads(text) == schemas[version]


OWN_ID, LATER_ID, FOREIGN_ID = 7, 9, 11
RECORD = ProgressRecord("e", "w", PartitionAnnounced(ChildPartition("a", ("p",), 5), "p"))
OWN = frame(OWN_ID, encode_record(RECORD))


def later_schema():
    """Return a version with another field before the others, which this version does not know."""
    schema = copy.deepcopy(RECORD_SCHEMA)
    schema["fields"].insert(0, {"name": "cluster", "type": "string", "default": ""})
    return schema


LATER_DATUM = {"cluster": "eu", "epoch": "e", "worker": "w", "body": ANNOUNCED_BODY}
LATER = frame(LATER_ID, avro_bytes(fastavro.parse_schema(later_schema()), LATER_DATUM))


class Registry:
    """Schemas by id; notes what it is asked for."""

    def __init__(self):
        self.asked = []
        self.schemas = {OWN_ID: copy.deepcopy(RECORD_SCHEMA), LATER_ID: later_schema(),
                        FOREIGN_ID: {"type": "string"}, 12: {"type": "nothing"}}  # fmt: skip

    def schema(self, schema_id):
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            raise SchemaError("the registry has no schema with this id", schema_id=schema_id)
        return self.schemas[schema_id]


@pytest.fixture
def registry():
    return Registry()


def test_a_record_is_read_with_the_schema_that_its_id_names(registry):
    decoder = ProgressDecoder(registry.schema)
    assert [decoder.decode(value) for value in (OWN, LATER, OWN, LATER)] == [RECORD] * 4
    assert registry.asked == [OWN_ID, LATER_ID]
    # An own record needs no request.
    assert ProgressDecoder(registry.schema, own_ids=[OWN_ID]).decode(OWN) == RECORD
    assert registry.asked == [OWN_ID, LATER_ID]


def test_an_id_that_could_not_be_asked_for_is_asked_for_again():
    answers = [UnreachableError("the schema registry does not answer"), later_schema()]

    def schema_of(_schema_id):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    decoder = ProgressDecoder(schema_of)
    with pytest.raises(UnreachableError):
        decoder.decode(LATER)
    assert decoder.decode(LATER) == RECORD


def test_a_value_that_cannot_be_read_is_named_by_its_id_and_place(registry):
    decoder = ProgressDecoder(registry.schema, own_ids=[OWN_ID])
    assert decoder.decode_at(OWN, slot=3, offset=7) == RECORD
    strange = {f"schema_id={one}": frame(one, encode_record(RECORD)) for one in (5, FOREIGN_ID, 12)}
    for text, value in (*strange.items(), ("", b""), ("", b"plain"), ("", frame(OWN_ID, b"\xff"))):
        with pytest.raises(SchemaError, match=text):
            decoder.decode(value)
        with pytest.raises(UnreadableProgress, match="slot=3, offset=7") as caught:
            decoder.decode_at(value, slot=3, offset=7)
        assert caught.value.hint
        assert caught.value.exit_code == 2


def test_a_record_is_ready_once_its_schema_is_known():
    answers, asked = {}, []

    def has_answer(schema_id):
        asked.append(schema_id)
        return schema_id in answers

    decoder = ProgressDecoder(answers.__getitem__, own_ids=[OWN_ID], has_answer=has_answer)
    assert decoder.is_ready(OWN)
    assert decoder.is_ready(b"no frame")  # decoding raises at once
    assert not decoder.is_ready(LATER)
    answers[LATER_ID] = later_schema()
    assert decoder.is_ready(LATER)
    assert decoder.decode(LATER) == RECORD
    assert decoder.is_ready(LATER)
    assert asked == [LATER_ID, LATER_ID]


# ---------------------------------------------------------------- chunks and chains


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


def read(chunks, assembler=None):
    assembler = assembler or ProgressAssembler()
    results = [assembler.add(chunk, offset=offset) for offset, chunk in chunks]
    return [result for result in results if result is not None]


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


TOTALS_OF_A = TopicTotals("t", 1, 1, 9, 7)
A = TokenSnapshot("a", 1_000, (), ("",), 5, (("tx", "00"),), (TOTALS_OF_A,), number=0)
B = TokenSnapshot("b", 1_000, ("a",), (), 0, number=1)
START = SlotProgress(3, 7, 20, 4, (TopicOffset("t", 0, 8), TopicOffset("t", 1, 3)), (A, B))
NEXT = SlotChanges(3, 8, 1, 21, 6, (), None, 2)


def chain(*changes):
    found = SlotChain(START, offset=40)
    for one in changes:
        found.add(one)
    return found


def test_changes_are_applied_to_what_they_name():
    assert chain().snapshot(3) == START
    assert (chain().offset, chain().position) == (40, 0)
    other = TopicTotals("u", 2, 2, 2, 2)
    heard = replace(B, parents_heard=("a",))
    new = TokenSnapshot("c", 2_000, (), ("",), 1, number=2)
    vector = (TopicOffset("t", 0, 9), TopicOffset("u", 0, 0))
    moves = (TokenMove(0, 50, (), (other,)),)
    found = chain(replace(NEXT, vector=vector, open=3, moved=moves, added=(heard, new)))
    snapshot = found.snapshot(3)
    assert snapshot.vector == (vector[0], TopicOffset("t", 1, 3), vector[1])
    assert (snapshot.revision, snapshot.minute, snapshot.includes) == (8, 21, 6)
    moved = replace(A, watermark_us=50, boundary=(), totals=(TOTALS_OF_A, other))
    assert snapshot.tokens == (moved, heard, new)
    assert found.watermarks() == {"a": 50, "b": 0, "c": 1}
    assert (found.position, found.entries) == (1, 3)


def test_a_number_is_free_again_once_its_token_has_finished():
    new = TokenSnapshot("c", 2_000, (), ("",), 1, number=0)
    changes = replace(NEXT, removed=(0,), added=(new,), moved=(TokenMove(1, 50),))
    found = chain()
    assert found.add(changes) == ["a", "c", "b"]
    assert [one.token for one in found.snapshot(3).tokens] == ["b", "c"]


def test_what_does_not_continue_the_chain_is_refused():
    moved = (TokenMove(5, 9),)
    wrong = ({"revision": 7}, {"revision": 9}, {"position": 2}, {"open": 3}, {"removed": (5,)})
    for changes in (*wrong, {"moved": moved}):
        with pytest.raises(SchemaError, match="slot=3"):
            chain(replace(NEXT, **changes))
