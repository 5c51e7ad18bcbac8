"""Progress records: to bytes and back."""

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

from tidegate.schemas.errors import SchemaError
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


WITHOUT_CHUNKS = (
    PartitionAnnounced | TableAdded | PartitionGap | StreamControl | WorkerDrain | SlotPaused
)


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
    writer = fastavro.parse_schema(copy.deepcopy(RECORD_SCHEMA))
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

    assert (encode_key(left) == encode_key(right)) == (subject(left) == subject(right))


def test_a_tombstone_has_the_key_of_what_it_removes_and_no_value():
    watermark = SlotWatermark(3, 9, 77, 4, (), None, 0)
    expired = SlotWatermarkExpired(3, 77)
    assert encode_key(expired) == encode_key(watermark)
    assert encode_record(ProgressRecord("e", "w", expired)) is None


def test_what_a_version_cannot_express_is_refused():
    changes = SlotChanges(3, 2, 1, 77, 4, (), None, 0)
    with pytest.raises(SchemaError, match="does not match its schema"):
        encode_record(ProgressRecord("e", "w", changes, 1))
    with pytest.raises(SchemaError):
        encode_key(changes, 1)


def test_version_1_cannot_hold_that_timestamps_are_text():
    started = StreamStarted("s", "d", 1, None, "g", 16, "id", (), ())
    assert encode_record(ProgressRecord("e", "w", started, 1))
    with pytest.raises(SchemaError, match="form of timestamps"):
        encode_record(ProgressRecord("e", "w", replace(started, timestamps="STRING"), 1))
    # Every chunk of a set holds it.
    text = replace(started, children=(child("a"), child("b")), timestamps=TimestampForm.STRING)
    assert {one.timestamps for one in split(text, items_max=1)} == {TimestampForm.STRING}
    assert decode_record(encode_record(ProgressRecord("e", "w", text))).body == text


def test_a_stream_that_began_before_the_form_was_recorded_has_microseconds():
    schema = json.loads(schema_text("progress_record", 2))
    started = schema["fields"][2]["type"][0]["fields"]
    assert started.pop()["name"] == "timestamps"
    body = StreamStarted("s", "d", 1, None, "g", 16, "id", (), ())
    buffer = io.BytesIO()
    plain = fastavro.schemaless_reader(
        io.BytesIO(encode_record(ProgressRecord("e", "w", body))), fastavro.parse_schema(
            json.loads(schema_text("progress_record", 2))), None, return_record_name=True,
    )  # fmt: skip
    writer = fastavro.parse_schema(schema)
    fastavro.schemaless_writer(buffer, writer, plain)
    assert decode_record(buffer.getvalue(), writer).body == body


def test_a_record_of_version_1_is_read_with_what_it_could_not_say():
    newer = token("a", number=4, checksums=ChecksumKind.XXHASH_64, stopped="why")
    record = ProgressRecord("e", "w", SlotProgress(3, 1, 77, 4, (), (newer,)), 1)
    read = decode_record(encode_record(record), version=1)
    assert read == replace(record, body=replace(record.body, tokens=(token("a"),)))
    assert read.body.tokens[0].number == -1
    assert read.body.tokens[0].checksums is ChecksumKind.BLAKE2B_64


def test_a_reader_of_version_1_refuses_what_it_would_misread():
    """It would take changes for a whole snapshot, if they had that name."""
    changes = SlotChanges(3, 2, 1, 77, 4, (), None, 0)
    data = encode_record(ProgressRecord("e", "w", changes))
    of_version_1 = fastavro.parse_schema(copy.deepcopy(RECORD_SCHEMAS[1]))
    writer = fastavro.parse_schema(copy.deepcopy(RECORD_SCHEMA))
    with pytest.raises(fastavro.read.SchemaResolutionError):
        fastavro.schemaless_reader(io.BytesIO(data), writer, of_version_1)


def test_a_reader_of_version_1_refuses_a_later_table():
    data = encode_record(ProgressRecord("e", "w", TableAdded(DataTopic("t", "id", 3, 7))))
    of_version_1 = fastavro.parse_schema(copy.deepcopy(RECORD_SCHEMAS[1]))
    writer = fastavro.parse_schema(copy.deepcopy(RECORD_SCHEMA))
    with pytest.raises(fastavro.read.SchemaResolutionError):
        fastavro.schemaless_reader(io.BytesIO(data), writer, of_version_1)


GAP = PartitionGap("t", 5, 9, "ops@host", 7)


@pytest.mark.parametrize("version", [1, 2])
def test_a_gap_is_of_version_3_and_readers_of_earlier_ones_refuse_it(version):
    for write in (encode_key, lambda gap, one: encode_record(ProgressRecord("e", "w", gap, one))):
        with pytest.raises(SchemaError, match=f"version {version} cannot hold an accepted gap"):
            write(GAP, version)
    reader = fastavro.parse_schema(copy.deepcopy(RECORD_SCHEMAS[version]))
    writer = fastavro.parse_schema(copy.deepcopy(RECORD_SCHEMA))
    data = encode_record(ProgressRecord("e", "w", GAP))
    with pytest.raises(fastavro.read.SchemaResolutionError):
        fastavro.schemaless_reader(io.BytesIO(data), writer, reader)
    # What it knows, it reads from version 3 too.
    others = encode_record(ProgressRecord("e", "w", PartitionAnnounced(child("c"), "p")))
    found = fastavro.schemaless_reader(io.BytesIO(others), writer, reader)
    assert found["body"]["parent"] == "p"


def test_a_gap_covers_its_begin_and_not_its_end():
    assert [GAP.covers(us) for us in (4, 5, 8, 9)] == [False, True, True, False]


@given(BODIES)
def test_what_every_worker_reads_is_known_by_its_key(body):
    is_for_all = isinstance(body, TableAdded | StreamControl | WorkerDrain)
    assert is_root_key(encode_key(body)) == is_for_all


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "body",
    [StreamControl(1, ControlState.PAUSED, "me", 2), WorkerDrain("w", "me", 2), SlotPaused(3, 1)],
)
def test_what_operators_want_is_of_version_4_and_readers_of_earlier_ones_refuse_it(version, body):
    for write in (encode_key, lambda one, at: encode_record(ProgressRecord("e", "w", one, at))):
        with pytest.raises(SchemaError, match=f"version {version} cannot hold"):
            write(body, version)
    reader = fastavro.parse_schema(copy.deepcopy(RECORD_SCHEMAS[version]))
    writer = fastavro.parse_schema(copy.deepcopy(RECORD_SCHEMA))
    data = io.BytesIO(encode_record(ProgressRecord("e", "w", body)))
    with pytest.raises(fastavro.read.SchemaResolutionError):
        fastavro.schemaless_reader(data, writer, reader)


@given(BODIES)
def test_an_announcement_is_known_by_its_key(body):
    assert is_announcement_key(encode_key(body)) == isinstance(body, PartitionAnnounced)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_keys_of_every_version_tell_announcements(version):
    announced = PartitionAnnounced(ChildPartition("t", (), 1), "p")

    assert is_announcement_key(encode_key(announced, version))
    assert not is_announcement_key(encode_key(SlotProgress(1, 1, 0, -1, (), ()), version))


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
    own = fastavro.parse_schema(copy.deepcopy(RECORD_SCHEMA))
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
        branches["PartitionAnnounced"]["fields"].pop(1)

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
            {"kind": "SLOT_PROGRESS", "id": "3", "detail": "", "chunk": 0},
        ),
        (
            SlotChanges(3, 2, 5, 77, 4, (), None, 0, chunk=1, chunks=2),
            {"kind": "SLOT_CHANGES", "id": "3", "detail": "5", "chunk": 1},
        ),
        (
            SlotWatermark(3, 2, 77, 4, (), None, 0),
            {"kind": "SLOT_WATERMARK", "id": "3", "detail": "77", "chunk": 0},
        ),
        (
            PartitionGap("t", 5, 9, "ops@host", 7),
            {"kind": "PARTITION_GAP", "id": "t", "detail": "5", "chunk": 0},
        ),
        (
            StreamControl(7, ControlState.PAUSED, "ops@host", 9),
            {"kind": "STREAM_CONTROL", "id": "", "detail": "", "chunk": 0},
        ),
        (
            WorkerDrain("w1", "ops@host", 9),
            {"kind": "WORKER_DRAIN", "id": "w1", "detail": "", "chunk": 0},
        ),
        (
            SlotPaused(3, 7),
            {"kind": "SLOT_PAUSED", "id": "3", "detail": "", "chunk": 0},
        ),
    ],
)
def test_keys_are_those_of_the_protocol(body, key):
    assert read_key(body, PROGRESS_VERSION) == key


def test_a_snapshot_of_version_1_has_its_minute_in_the_key():
    key = {"kind": "SLOT_PROGRESS", "id": "3", "detail": "77", "chunk": 0}
    assert read_key(slot_progress("a"), 1) == key


def read_key(body, version):
    schema = fastavro.parse_schema(copy.deepcopy(KEY_SCHEMAS[version]))
    return fastavro.schemaless_reader(io.BytesIO(encode_key(body, version)), schema, schema)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_the_schemas_stand_ready_for_a_registry(version):
    assert json.loads(schema_text("progress_key", version)) == KEY_SCHEMAS[version]
    assert json.loads(schema_text("progress_record", version)) == RECORD_SCHEMAS[version]


@pytest.mark.parametrize(
    "body",
    [
        PartitionAnnounced(child("c"), "p", (7,)),
        SlotProgress(3, 1, 77, 4, (), (token("a"), token("b", parked_keys=(-1,)))),
    ],
)
def test_version_1_cannot_hold_parked_keys(body):
    with pytest.raises(SchemaError, match="parked keys"):
        encode_record(ProgressRecord("e", "w", body, 1))


@given(BODIES, st.integers(1, 4))
def test_chunks_are_put_together_again(body, items_max):
    chunks = split(body, items_max=items_max)
    assert assembled(chunks) == [(body, 0)]
    if not isinstance(body, WITHOUT_CHUNKS):
        assert [chunk.chunk for chunk in chunks] == list(range(len(chunks)))
        assert {chunk.chunks for chunk in chunks} == {len(chunks)}


@pytest.mark.parametrize(
    ("kind", "version", "fingerprint"),
    [
        ("progress_key", 1, "bf27f9a0d7387647"),
        ("progress_key", 2, "069fb266995666dc"),
        ("progress_key", 3, "045832b04db30e6a"),
        ("progress_key", 4, "2504a1533b3115eb"),
        ("progress_record", 1, "644683ff7ee05b3b"),
        ("progress_record", 2, "6a151526d89f084b"),
        ("progress_record", 3, "910210fbc0551e7c"),
        ("progress_record", 4, "dab438aa7f345384"),
    ],
)
def test_a_schema_that_topics_hold_never_changes(kind, version, fingerprint):
    """A change of what is written needs another version, whose readers know both."""
    digest = hashlib.sha256(schema_text(kind, version).encode()).hexdigest()
    assert digest.startswith(fingerprint)
