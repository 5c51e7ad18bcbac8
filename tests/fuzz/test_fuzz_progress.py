"""Bytes and records of the progress topic: believed, or refused; sets of chunks: whole, or nothing.

What can be decoded may still make no sense: a watermark, none, or a typed error comes of it.
"""

import copy
import json
from dataclasses import replace

import fastavro
from hypothesis import example, given, reject
from hypothesis import strategies as st

from tests.fuzz.conftest import assert_reportable, damage
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.errors import StreamChangedError
from tidegate.schemas.errors import ConsumerError, SchemaError
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
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import frame, unframe

SHORT = st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]) | st.integers(0, 3)
LONG = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]) | st.integers(0, 5)
NAME = st.sampled_from(["", "a", "b", "c"])
TOPIC_NAMES = st.sampled_from(["bank.a", "bank-progress", "other.a", ""])
SMALL = st.integers(0, 2)


def tuples(of, most=2):
    return st.lists(of, max_size=most).map(tuple)


NAMES = tuples(NAME)
CHILDREN = tuples(st.builds(ChildPartition, NAME, NAMES, LONG), 3)
SUMS = tuples(st.builds(TopicTotals, TOPIC_NAMES, LONG, LONG, LONG, st.integers(0, 2**64 - 1)))
TOKENS = tuples(st.builds(TokenSnapshot, NAME, LONG, NAMES, NAMES, LONG, st.just(()), SUMS), 3)
DATA_TOPICS = tuples(st.builds(DataTopic, TOPIC_NAMES, NAME, SHORT, SHORT))
OFFSETS = tuples(st.builds(TopicOffset, TOPIC_NAMES, SHORT, LONG))


def bodies(*chunks):
    """Bodies of records; each is one of these chunks of its set, by its number and how many."""

    def chunked(kind, *fields):
        return st.builds(
            lambda chunk, *found: kind(*found, chunk=chunk[0], chunks=chunk[1]),
            st.sampled_from(chunks),
            *fields,
        )

    return st.one_of(
        chunked(StreamStarted, NAME, NAME, LONG, st.none() | LONG, NAME, SHORT | SMALL, NAME,
                DATA_TOPICS, CHILDREN, NAMES),
        st.builds(PartitionAnnounced, st.builds(ChildPartition, NAME, NAMES, LONG), NAME),
        chunked(PartitionFinished, NAME, NAMES, LONG, LONG, CHILDREN, SUMS),
        chunked(SlotProgress, SMALL, LONG, LONG, LONG, OFFSETS, TOKENS),
    )  # fmt: skip


WHOLE = bodies((0, 1))
LISTS = ("tokens", "children", "vector", "totals")


def encoded(body):
    """A record of the topic; examples whose body cannot be written are left out."""
    try:
        return frame(1, encode_record(ProgressRecord("epoch", "worker", body)))
    except SchemaError as error:
        assert_reportable(error)
        reject()


def items(body):
    return getattr(body, "tokens", None) or getattr(body, "children", ())


def said(body):
    """What all chunks of a set say alike."""
    empty = dict.fromkeys((name for name in LISTS if hasattr(body, name)), ())
    return replace(body, chunk=0, **empty) if hasattr(body, "chunk") else body


FIELDS = RECORD_SCHEMA["fields"]


def grown():
    """This schema as a later version might have it."""
    schema = copy.deepcopy(RECORD_SCHEMA)
    schema["fields"].append({"name": "region", "type": ["null", {"type": "map", "values": "long"}]})
    schema["fields"][2]["type"].append({"type": "record", "name": "Unheard", "fields": []})
    return schema


FOREIGN = [
    None,
    *map(
        fastavro.parse_schema,
        (
            grown(), {**copy.deepcopy(RECORD_SCHEMA), "fields": FIELDS[:2]},
            {**copy.deepcopy(RECORD_SCHEMA), "fields": FIELDS[::-1]}, "bytes",
        ),
    ),
]  # fmt: skip


def read(framed, schema=None):
    """As every reader of the topic does."""
    try:
        record = decode_record(unframe(framed)[1], schema)
    except SchemaError as error:
        assert_reportable(error)
        return None
    assert isinstance(record, ProgressRecord)
    # Whatever is believed can be written again, and is the same then.
    assert decode_record(encode_record(record)) == record
    assert encode_key(record.body)
    return record


@given(WHOLE, st.binary(min_size=1, max_size=8), st.data())
def test_damaged_records(body, rest, data):
    whole = encoded(body)
    found = damage(data, whole)
    record = read(found)
    if found == whole:
        assert record is not None
    # Neither a truncated record is believed, nor bytes after one.
    assert read(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    assert read(whole + rest) is None
    read(found, data.draw(st.sampled_from(range(len(FOREIGN))).map(FOREIGN.__getitem__)))


@given(st.binary(max_size=200))
@example(b"\0\0\0\0\1\0\0")
@example(b"\0\0\0\0\1\0\0" + b"\xff" * 100)
@example(b"\0\0\0\0\1" + b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")
@example(b"\0\0\0\0\1\0\0\2\2c\x80\x80\x80\x80\x80\x40\2p")
def test_any_bytes(data):
    read(data)
    read(frame(1, data))


@given(
    st.builds(ProgressRecord, st.text(), st.text(), version=st.sampled_from(sorted(KEY_SCHEMAS)))
    | st.builds(ProgressRecord, st.text(), st.text(), st.from_type(SlotProgress))
)
@example(ProgressRecord("e", "w", SlotWatermarkExpired(3, 28_000_000)))
def test_any_record_is_written_or_refused(record):
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


@given(st.lists(WHOLE, min_size=1, max_size=3), st.data())
def test_damaged_chunks_never_make_a_set_of_two(whole, data):
    """What comes out has every chunk of its set, and no item that those did not bring.

    One record is cut in two ways, so that sets nearly meet.
    """
    cut = [encoded(one) for body in whole for size in (1, 2) for one in split(body, items_max=size)]
    assembler, so_far = ProgressAssembler(), []
    for offset, framed in enumerate(data.draw(st.lists(st.sampled_from(cut), max_size=20))):
        is_damaged = data.draw(st.sampled_from([False, False, True]))
        record = read(damage(data, framed) if is_damaged else framed)
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


# ---------------------------------------------------------------- the first record of an epoch

TOPICS = (DataTopic("bank.a", "id-a", 6, 1), DataTopic("bank.b", "id-b", 6, 2))

IDENTITY = StreamIdentity(
    stream="projects/p/instances/i/databases/d/changeStreams/S", dialect="GOOGLE_STANDARD_SQL",
    group="bank-fleet", slots=16, progress_topic_id="id", topics=TOPICS,
)  # fmt: skip
OWN = IDENTITY.started(start_ns=1, end_ns=None, children=(ChildPartition("c", (), 1),))
COMPARED = ("stream", "dialect", "group", "slots", "progress_topic_id")

TEXT = st.text(max_size=5)
TOPIC = st.sampled_from(TOPICS) | st.builds(
    DataTopic, st.sampled_from(["bank.a", "bank.b", "bank.c"]) | TEXT, TEXT, SHORT, SHORT
)
OTHERS = {
    "stream": TEXT, "dialect": TEXT, "group": TEXT, "slots": SHORT, "progress_topic_id": TEXT,
    "topics": st.lists(TOPIC, max_size=4).map(tuple), "start_ns": LONG, "end_ns": st.none() | LONG,
    "filters": st.lists(TEXT, max_size=2).map(tuple),
}  # fmt: skip
STARTED = st.fixed_dictionaries({}, optional=OTHERS).map(lambda changes: replace(OWN, **changes))


def is_own(started):
    known = {topic.topic: topic for topic in TOPICS}
    return all(getattr(started, name) == getattr(OWN, name) for name in COMPARED) and all(
        known.get(topic.topic, topic) == topic for topic in started.topics
    )


@given(STARTED, st.data())
@example(OWN, None)
@example(replace(OWN, slots=0), None)
@example(replace(OWN, topics=(*TOPICS, TOPICS[0])), None)
@example(replace(OWN, topics=(replace(TOPICS[0], topic_partitions=-1),)), None)
def test_any_stream_is_this_one_or_refused(started, data):
    found = [started]
    if data is not None:
        whole = encode_record(ProgressRecord("epoch", "worker", OWN))
        try:
            found.append(decode_record(damage(data, whole)).body)
        except SchemaError as error:
            assert_reportable(error)
    for body in found:
        if isinstance(body, StreamStarted):
            try:
                IDENTITY.require(body)
            except StreamChangedError as error:
                assert_reportable(error)
                assert not is_own(body)
            else:
                assert is_own(body)


# ---------------------------------------------------------------- records that make no sense

SUBSCRIPTION = Subscription(TopicNames("bank"))
SENSELESS = bodies((0, 1), (0, 1), (0, 2), (1, 2), (1, 3), (2, 3))


def row(slot, offset, body, epoch="e"):
    if isinstance(body, SlotProgress) and offset % 8:
        body = replace(body, slot=slot)
    return ProgressRow(slot, offset, ProgressRecord(epoch, "w", body))


ROWS = st.builds(row, SMALL, st.integers(0, 40), SENSELESS, st.sampled_from("eeeeef"))
REACHED = st.dictionaries(TOPIC_NAMES, st.dictionaries(SMALL, LONG, max_size=3), max_size=3)
START = StreamStarted("s", "d", 1, None, "g", 1, "id", (), ())


@given(st.lists(st.tuples(st.lists(ROWS, max_size=8), REACHED), max_size=4))
@example([([row(0, 0, START), row(0, 1, SlotProgress(0, 1, 0, 0, (), ()))],
           {"bank-progress": {0: 2}})])  # fmt: skip
@example([([row(0, 0, replace(START, slots=2**31 - 1))], {"bank-progress": {0: 1}})])
@example([([row(0, 0, replace(START, slots=0))], {})])
def test_any_records(batches):
    frontier = Frontier(SUBSCRIPTION)
    try:
        for rows, reached in batches:
            frontier.fold(rows, reached=reached)
            frontier.check_invariants()
            frontier.watermark()
            kept = json.loads(json.dumps(list(frontier.items_since(None))))
            again = Frontier(SUBSCRIPTION)
            again.apply(kept)
            assert list(again.items_since(None)) == kept
    except ConsumerError as error:
        assert_reportable(error)
