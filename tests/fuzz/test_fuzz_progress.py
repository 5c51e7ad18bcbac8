"""Bytes of the progress topic: records, or a SchemaError; sets of chunks: whole, or nothing."""

import copy
from dataclasses import replace

import fastavro
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressRecord,
    SlotProgress,
    SlotWatermarkExpired,
    StreamStarted,
    TableAdded,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)
from tidegate.schemas.progress_chunks import ProgressAssembler, split
from tidegate.schemas.progress_codec import (
    KEY_SCHEMAS,
    RECORD_SCHEMA,
    decode_record,
    encode_key,
    encode_record,
)
from tidegate.schemas.wire_format import frame, unframe

CHILDREN = tuple(ChildPartition(f"child-{n}", ("left", "right"), 2**60 + n) for n in range(3))
TOTALS = (TopicTotals("bank.accounts", 1, 2, 3, 2**64 - 1), TopicTotals("bank.b", 0, 0, 0, 0))
VECTOR = (TopicOffset("bank.accounts", 5, 2**40), TopicOffset("bank-progress", 0, -1))
TOKENS = tuple(
    TokenSnapshot(f"token-{n}", n, ("p",), (), -1, (("tx", "00000001"),), TOTALS, 1, 2)
    for n in range(3)
)
BODIES = [
    StreamStarted("projects/p", "D", 1, None, "g", 16, "id",
                  (DataTopic("bank.accounts", "id", 6, 1),), CHILDREN, ("exclude_insert=true",)),
    StreamStarted("projects/p", "D", 1, 2**62, "g", 1, "id", (), ()),
    PartitionAnnounced(CHILDREN[0], "left"),
    PartitionFinished("token", ("p",), 1, 2, CHILDREN, TOTALS, 3, 4),
    SlotProgress(3, 7, 28_000_000, 41, VECTOR, TOKENS),
    SlotProgress(0, 0, 0, -1, (), ()),
]  # fmt: skip


def items(body):
    match body:
        case SlotProgress():
            return body.tokens
        case StreamStarted() | PartitionFinished():
            return body.children
        case _:
            return ()


def said(body):
    """What all chunks of a set say alike."""
    match body:
        case SlotProgress():
            return replace(body, tokens=(), vector=(), chunk=0)
        case PartitionFinished():
            return replace(body, children=(), totals=(), chunk=0)
        case StreamStarted():
            return replace(body, children=(), chunk=0)
        case _:
            return body


CHUNKS = [chunk for body in BODIES for size in (1, 2) for chunk in split(body, items_max=size)]
ENCODED = [frame(1, encode_record(ProgressRecord("epoch", "worker", body))) for body in CHUNKS]
# Sets that nearly meet: one record cut in two ways.
SAID_OF = [{said(chunk) for n in (1, 2) for chunk in split(body, items_max=n)} for body in BODIES]
ORDERS = st.sampled_from(range(len(BODIES))).flatmap(
    lambda one: st.lists(
        st.sampled_from([n for n, chunk in enumerate(CHUNKS) if said(chunk) in SAID_OF[one]]),
        max_size=12,
    )
)

OWN_SCHEMA = copy.deepcopy(RECORD_SCHEMA)


def grown():
    """This schema as a later version might have it."""
    schema = copy.deepcopy(RECORD_SCHEMA)
    schema["fields"].append({"name": "region", "type": ["null", {"type": "map", "values": "long"}]})
    schema["fields"][2]["type"].append({"type": "record", "name": "Unheard", "fields": []})
    return schema


FOREIGN = [
    None,
    fastavro.parse_schema(grown()),
    fastavro.parse_schema({**OWN_SCHEMA, "fields": OWN_SCHEMA["fields"][:2]}),
    fastavro.parse_schema({**OWN_SCHEMA, "fields": OWN_SCHEMA["fields"][::-1]}),
    fastavro.parse_schema("bytes"),
]


def read(assert_reportable, framed, schema=None):
    """As every reader of the topic does."""
    try:
        _, body = unframe(framed)
        record = decode_record(body, schema)
    except SchemaError as error:
        assert_reportable(error)
        return None
    assert isinstance(record, ProgressRecord)
    # Whatever is believed can be written again, and is the same then.
    assert decode_record(encode_record(record)) == record
    assert encode_key(record.body)
    return record


@given(st.sampled_from(ENCODED), st.data())
def test_damaged_records(damaged, assert_reportable, whole, data):
    found = damaged(data, whole)
    record = read(assert_reportable, found)
    if found == whole:
        assert record is not None


@given(st.sampled_from(ENCODED), st.data())
def test_no_truncated_record_is_believed(assert_reportable, whole, data):
    end = data.draw(st.integers(0, len(whole) - 1))
    assert read(assert_reportable, whole[:end]) is None


@given(st.sampled_from(ENCODED), st.binary(min_size=1, max_size=8))
def test_no_bytes_behind_a_record_are_believed(assert_reportable, whole, rest):
    assert read(assert_reportable, whole + rest) is None


@given(st.binary(max_size=200))
@example(b"\0\0\0\0\1\0\0")
@example(b"\0\0\0\0\1\0\0" + b"\xff" * 100)
@example(b"\0\0\0\0\1" + b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")
@example(b"\0\0\0\0\1\0\0\2\2c\x80\x80\x80\x80\x80\x40\2p")
def test_any_bytes(assert_reportable, data):
    read(assert_reportable, data)
    read(assert_reportable, frame(1, data))


@given(st.sampled_from(ENCODED), st.sampled_from(range(len(FOREIGN))), st.data())
def test_records_under_another_schema(damaged, assert_reportable, whole, schema, data):
    read(assert_reportable, damaged(data, whole), FOREIGN[schema])


@given(
    st.builds(ProgressRecord, st.text(), st.text(), version=st.sampled_from(sorted(KEY_SCHEMAS)))
    | st.builds(ProgressRecord, st.text(), st.text(), st.from_type(SlotProgress))
)
@example(ProgressRecord("e", "w", SlotWatermarkExpired(3, 28_000_000)))
def test_any_record_is_written_or_refused(assert_reportable, record):
    try:
        data = encode_record(record)
    except SchemaError as error:
        assert_reportable(error)
        return
    if data is None:
        assert isinstance(record.body, SlotWatermarkExpired)
        return
    try:
        read_again = decode_record(data, version=record.version)
        # The first version has no place for what the second one has added.
        assert read_again == record or record.version == 1
        assert encode_record(read_again) == data
    except SchemaError as error:
        assert_reportable(error)
        assert not isinstance(record.body, PartitionAnnounced)
        assert not 0 <= record.body.chunk < record.body.chunks


@given(st.lists(st.sampled_from(range(len(ENCODED))), max_size=20) | ORDERS, st.data())
def test_damaged_chunks_never_make_a_set_of_two(damaged, assert_reportable, order, data):
    """What comes out has every chunk of its set, and no item that those did not bring."""
    assembler = ProgressAssembler()
    so_far = []
    for offset, index in enumerate(order):
        framed = ENCODED[index]
        if data.draw(st.sampled_from([False, False, True])):
            framed = damaged(data, framed)
        record = read(assert_reportable, framed)
        if record is None:
            continue
        so_far.append(record.body)
        whole = assembler.add(record.body, offset=offset)
        if whole is None:
            continue
        body, first_offset = whole
        assert 0 <= first_offset <= offset
        set_of = [chunk for chunk in so_far if said(chunk) == said(record.body)]
        if not isinstance(body, PartitionAnnounced | TableAdded | PartitionGap):
            assert {chunk.chunk for chunk in set_of} == set(range(record.body.chunks))
        assert set(items(body)) <= {item for chunk in set_of for item in items(chunk)}
    assert len(assembler._open) <= 64
