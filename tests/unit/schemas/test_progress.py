"""Progress records: bytes, versions, and what is refused."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import tracemalloc
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.schemas.progress_building import (
    BODIES,
    TEXT,
    assembled,
    avro,
    avro_bytes,
    bytes_of,
    child,
    plain,
    slot_progress,
    token,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import (
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
    StreamControl,
    StreamStarted,
    TableAdded,
    TimestampForm,
    TopicOffset,
    TopicTotals,
    WorkerDrain,
)
from tidegate.schemas.progress_chunks import (
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
