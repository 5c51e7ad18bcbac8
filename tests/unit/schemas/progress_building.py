"""Progress records of any content, and helpers for their bytes."""

from __future__ import annotations

import copy
import io
from dataclasses import replace

import fastavro
from hypothesis import strategies as st

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
)
from tidegate.schemas.progress_codec import (
    RECORD_SCHEMA,
    encode_record,
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


ANNOUNCED_DATUM = {"child": {"token": "a", "parents": ["p"], "start_ns": 5}, "parent": "p"}
ANNOUNCED_BODY = ("tidegate.progress.PartitionAnnounced", ANNOUNCED_DATUM)


def read(chunks, assembler=None):
    assembler = assembler or ProgressAssembler()
    results = [assembler.add(chunk, offset=offset) for offset, chunk in chunks]
    return [result for result in results if result is not None]
