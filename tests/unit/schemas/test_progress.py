"""Progress records: bytes, versions, chunks, chains of changes, and the schemas of their ids."""

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
from tidegate.schemas.progress_chunks import (
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
    assembler = assembler or ProgressAssembler()
    results = [assembler.add(body, offset=offset) for offset, body in enumerate(bodies)]
    return [result for result in results if result is not None]


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


def subject_of(body):
    match body:
        case StreamStarted():
            return ("started", body.stream, body.chunk)
        case PartitionAnnounced():
            return ("announced", body.child.token, body.parent)
        case PartitionFinished():
            return ("finished", body.token, body.chunk)
        case SlotProgress():
            return ("slot", body.slot, body.chunk)
        case SlotChanges():
            return ("changes", body.slot, body.position, body.chunk)
        case SlotWatermark():
            return ("watermark", body.slot, body.minute, body.chunk)
        case TableAdded():
            return ("table", body)
        case PartitionGap():
            return ("gap", body.token, body.from_us)
        case StreamControl():
            return ("control",)
        case WorkerDrain():
            return ("drain", body.worker)
        case SlotPaused():
            return ("paused", body.slot)


@given(BODIES, BODIES)
def test_equal_keys_are_of_one_subject(left, right):
    assert (encode_key(left) == encode_key(right)) == (subject_of(left) == subject_of(right))


def test_a_tombstone_has_the_key_of_what_it_removes_and_no_value():
    watermark = SlotWatermark(3, 9, 77, 4, (), None, 0)
    expired = SlotWatermarkExpired(3, 77)
    assert encode_key(expired) == encode_key(watermark)
    assert encode_record(ProgressRecord("e", "w", expired)) is None


GAP = PartitionGap("t", 5, 9, "ops@host", 7)
STARTED = StreamStarted("s", "d", 1, None, "g", 16, "id", (), ())
CHANGES = SlotChanges(3, 2, 1, 77, 4, (), None, 0)
SINCE = [
    (2, CHANGES, "does not match its schema"),
    (2, TableAdded(DataTopic("t", "id", 3, 7)), "does not match its schema"),
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


@pytest.mark.parametrize(
    "body",
    [
        PartitionAnnounced(child("c"), "p", (7,)),
        slot_progress(tokens=(token("a"), token("b", parked_keys=(-1,)))),
    ],
)
def test_version_1_cannot_hold_parked_keys(body):
    with pytest.raises(SchemaError, match="parked keys"):
        bytes_of(body, 1)


def test_version_1_cannot_hold_that_timestamps_are_text():
    assert bytes_of(STARTED, 1)
    with pytest.raises(SchemaError, match="form of timestamps"):
        bytes_of(replace(STARTED, timestamps="STRING"), 1)
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


def test_a_gap_covers_its_begin_and_not_its_end():
    assert [GAP.covers(us) for us in (4, 5, 8, 9)] == [False, True, True, False]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_keys_of_every_version_tell_announcements(version):
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


def test_a_record_of_an_earlier_version_that_lacks_a_field_is_refused():
    earlier = schema_with(lambda branches, _: branches["PartitionAnnounced"]["fields"].pop(1))
    without = (ANNOUNCED_BODY[0], {"child": ANNOUNCED_DATUM["child"]})
    data = avro_bytes(earlier, {"epoch": "e", "worker": "w", "body": without})
    with pytest.raises(SchemaError):
        decode_record(data, earlier)


@pytest.mark.parametrize(
    "body",
    [
        PartitionAnnounced(ChildPartition("c", (), 2**63), "p"),
        PartitionAnnounced(child("\ud800"), "p"),
        PartitionFinished("t", (), 1, 2, (), (TopicTotals("t", 0, 0, 0, 2**64),)),
        SlotProgress(0, 0, 0, 0, (TopicOffset("t", 0, None),), ()),
    ],
)
def test_what_does_not_fit_the_schema_is_refused(body):
    with pytest.raises(SchemaError) as caught:
        bytes_of(body)
    assert len(str(caught.value)) < 400
    if "\ud800" in repr(body) or r"\ud800" in repr(body):
        with pytest.raises(SchemaError):
            encode_key(body)


@given(BODIES, st.binary(min_size=1, max_size=4))
def test_bytes_beyond_the_record_are_refused(body, rest):
    with pytest.raises(SchemaError, match="beyond the end"):
        decode_record(bytes_of(body) + rest)


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


@given(st.binary(max_size=80))
def test_other_bytes_are_refused_or_a_record(data):
    try:
        record = decode_record(data)
    except SchemaError:
        return
    assert isinstance(record, ProgressRecord)


def test_a_truncated_record_is_refused():
    data = bytes_of(slot_progress("ab"))
    for end in range(len(data)):
        with pytest.raises(SchemaError):
            decode_record(data[:end])


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (replace(STARTED, chunk=2, chunks=3), ("STREAM_STARTED", "s", "", 2)),
        (PartitionAnnounced(child("c"), "p"), ("PARTITION_ANNOUNCED", "c", "p", 0)),
        (
            PartitionFinished("t", (), 1, 2, (), (), chunk=1, chunks=2),
            ("PARTITION_FINISHED", "t", "", 1),
        ),
        (slot_progress("a"), ("SLOT_PROGRESS", "3", "", 0)),
        (replace(CHANGES, position=5, chunk=1, chunks=2), ("SLOT_CHANGES", "3", "5", 1)),
        (SlotWatermark(3, 2, 77, 4, (), None, 0), ("SLOT_WATERMARK", "3", "77", 0)),
        (GAP, ("PARTITION_GAP", "t", "5", 0)),
        (StreamControl(7, ControlState.PAUSED, "ops@host", 9), ("STREAM_CONTROL", "", "", 0)),
        (WorkerDrain("w1", "ops@host", 9), ("WORKER_DRAIN", "w1", "", 0)),
        (SlotPaused(3, 7), ("SLOT_PAUSED", "3", "", 0)),
    ],
)
def test_keys_are_those_of_the_protocol(body, key):
    assert read_key(body, PROGRESS_VERSION) == key


def test_a_snapshot_of_version_1_has_its_minute_in_the_key():
    assert read_key(slot_progress("a"), 1) == ("SLOT_PROGRESS", "3", "77", 0)


def read_key(body, version):
    schema = avro(KEY_SCHEMAS[version])
    found = fastavro.schemaless_reader(io.BytesIO(encode_key(body, version)), schema, schema)
    return tuple(found[name] for name in ("kind", "id", "detail", "chunk"))


@given(BODIES, st.integers(1, 4))
def test_chunks_are_put_together_again(body, items_max):
    chunks = split(body, items_max=items_max)
    assert assembled(chunks) == [(body, 0)]
    if hasattr(body, "chunks"):
        assert [chunk.chunk for chunk in chunks] == list(range(len(chunks)))
        assert {chunk.chunks for chunk in chunks} == {len(chunks)}


@pytest.mark.parametrize(
    ("kind", "fingerprints"),
    [
        ("key", "bf27f9a0d7387647 069fb266995666dc 045832b04db30e6a 2504a1533b3115eb"),
        ("record", "644683ff7ee05b3b 6a151526d89f084b 910210fbc0551e7c dab438aa7f345384"),
    ],
)
def test_a_schema_that_topics_hold_never_changes(kind, fingerprints):
    """A change of what is written needs another version, whose readers know both."""
    for version, fingerprint in enumerate(fingerprints.split(), 1):
        text = schema_text(f"progress_{kind}", version)
        assert hashlib.sha256(text.encode()).hexdigest().startswith(fingerprint)
        assert json.loads(text) == {"key": KEY_SCHEMAS, "record": RECORD_SCHEMAS}[kind][version]


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


@pytest.mark.parametrize("schema_id", [5, FOREIGN_ID, 12])
def test_an_id_that_is_no_progress_schema_is_named(registry, schema_id):
    decoder = ProgressDecoder(registry.schema, own_ids=[OWN_ID])
    with pytest.raises(SchemaError, match=f"schema_id={schema_id}"):
        decoder.decode(frame(schema_id, encode_record(RECORD)))


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


@pytest.mark.parametrize("value", [b"", b"plain", frame(OWN_ID, b"\xff\xff")])
def test_anything_else_is_a_schema_error(registry, value):
    with pytest.raises(SchemaError):
        ProgressDecoder(registry.schema, own_ids=[OWN_ID]).decode(value)


def test_a_place_is_named_with_what_to_do(registry):
    decoder = ProgressDecoder(registry.schema, own_ids=[OWN_ID])
    assert decoder.decode_at(OWN, slot=3, offset=7) == RECORD
    for value in (b"plain", frame(FOREIGN_ID, b"later"), frame(5, b"")):
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
