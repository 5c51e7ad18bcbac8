"""Progress records to Avro bodies and back, and the keys they stand under.

Pure: framing and registry are elsewhere.  `split` cuts a record into chunks that fit a message,
`ProgressAssembler` puts a set together again; both are inverse to each other.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import fastavro

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    ProgressBody,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "CHUNK_BYTES_MAX",
    "CHUNK_ITEMS_MAX",
    "KEY_SCHEMA",
    "KEY_SCHEMA_TEXT",
    "RECORD_SCHEMA",
    "RECORD_SCHEMA_TEXT",
    "ProgressAssembler",
    "decode_record",
    "encode_key",
    "encode_record",
    "split",
]

KEY_SCHEMA_TEXT = files(__package__).joinpath("avro/progress_key/v1.avsc").read_text()
RECORD_SCHEMA_TEXT = files(__package__).joinpath("avro/progress_record/v1.avsc").read_text()

CHUNK_ITEMS_MAX = 400
"""Tokens or children in one chunk."""

CHUNK_BYTES_MAX = 384 * 1024
"""Estimated bytes of tokens or children in one chunk, so that a chunk stays below 512 KiB."""

KEY_SCHEMA: dict[str, Any] = json.loads(KEY_SCHEMA_TEXT)
RECORD_SCHEMA: dict[str, Any] = json.loads(RECORD_SCHEMA_TEXT)
_KEY_SCHEMA = fastavro.parse_schema(json.loads(KEY_SCHEMA_TEXT))
_RECORD_SCHEMA = fastavro.parse_schema(json.loads(RECORD_SCHEMA_TEXT))
_NAMESPACE = "tidegate.progress."
_OPEN_SETS_MAX = 64
_Item = TypeVar("_Item", ChildPartition, TokenSnapshot)


def encode_key(body: ProgressBody) -> bytes:
    """Return the Avro body of a record's key; raises SchemaError for what does not fit it."""
    match body:
        case StreamStarted():
            kind, name, detail, chunk = "STREAM_STARTED", body.stream, "", body.chunk
        case PartitionAnnounced():
            kind, name, detail, chunk = "PARTITION_ANNOUNCED", body.child.token, body.parent, 0
        case PartitionFinished():
            kind, name, detail, chunk = "PARTITION_FINISHED", body.token, "", body.chunk
        case SlotProgress():
            kind, name, detail = "SLOT_PROGRESS", str(body.slot), str(body.minute)
            chunk = body.chunk
    key = {"kind": kind, "id": name, "detail": detail, "chunk": chunk}
    return _written(_KEY_SCHEMA, lambda: key)


def encode_record(record: ProgressRecord) -> bytes:
    """Return the Avro body of a record's value; raises SchemaError for what does not fit it."""
    return _written(
        _RECORD_SCHEMA,
        lambda: {
            "epoch": record.epoch,
            "worker": record.worker,
            "body": (_NAMESPACE + type(record.body).__name__, _body_to_avro(record.body)),
        },
    )


def _written(schema: Any, make: Callable[[], dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, schema, make())
    except Exception as error:  # fastavro raises whatever its writer trips over
        message = "a progress record that does not fit its schema"
        raise SchemaError(message, cause=f"{type(error).__name__}: {error}"[:200]) from error
    return buffer.getvalue()


def decode_record(data: bytes, writer_schema: dict[str, Any] | None = None) -> ProgressRecord:
    """Return the record that an Avro body holds.

    `writer_schema` is the parsed schema it was written with, if that is not this version's own.
    Raises SchemaError if the bytes do not fit, are more than one record, or number a chunk that
    its set cannot have.
    """
    buffer = io.BytesIO(data)
    try:
        envelope: Any = fastavro.schemaless_reader(
            buffer,
            writer_schema or _RECORD_SCHEMA,
            _RECORD_SCHEMA,
            return_record_name=True,
        )
        name, fields = envelope["body"]
        body = _body_from_avro(name, fields)
    except SchemaError:
        raise
    except Exception as error:  # fastavro raises whatever its parser trips over
        message = "bytes that are no progress record"
        raise SchemaError(message, length=len(data), cause=type(error).__name__) from error
    if buffer.tell() != len(data):
        message = "bytes beyond the end of a progress record"
        raise SchemaError(message, length=len(data), end=buffer.tell())
    if not isinstance(body, PartitionAnnounced) and not 0 <= body.chunk < body.chunks:
        message = "a progress record that its set of chunks cannot have"
        raise SchemaError(message, chunk=body.chunk, chunks=body.chunks)
    return ProgressRecord(epoch=envelope["epoch"], worker=envelope["worker"], body=body)


def split(body: ProgressBody, *, items_max: int = CHUNK_ITEMS_MAX) -> list[ProgressBody]:
    """Return the record as one or more chunks, each within `items_max` and `CHUNK_BYTES_MAX`.

    An item larger than a chunk stands alone in one.
    """
    match body:
        case PartitionAnnounced():
            return [body]
        case SlotProgress():
            head = sum(_fixed_weight(offset.topic) for offset in body.vector)
            items = list(_batches(body.tokens, items_max, first=head))
            return [
                replace(
                    body,
                    tokens=tokens,
                    vector=body.vector if index == 0 else (),
                    chunk=index,
                    chunks=len(items),
                )
                for index, tokens in enumerate(items)
            ]
        case StreamStarted():
            each = sum(_fixed_weight(topic.topic, topic.topic_id) for topic in body.topics)
            sets = list(_batches(body.children, items_max, first=each, each=each))
            return [
                replace(body, children=children, chunk=index, chunks=len(sets))
                for index, children in enumerate(sets)
            ]
        case PartitionFinished():
            each = sum(_fixed_weight(parent) for parent in body.parents)
            head = each + sum(_fixed_weight(total.topic) for total in body.totals)
            sets = list(_batches(body.children, items_max, first=head, each=each))
            return [
                replace(
                    body,
                    children=children,
                    totals=body.totals if index == 0 else (),
                    chunk=index,
                    chunks=len(sets),
                )
                for index, children in enumerate(sets)
            ]


class ProgressAssembler:
    """Puts chunks of one slot together, in the order of their offsets.

    A set that is incomplete, or not of one record, is never given out.
    """

    def __init__(self) -> None:
        """Start with no set open."""
        self._open: dict[ProgressBody, tuple[int, list[ProgressBody]]] = {}

    def add(self, body: ProgressBody, *, offset: int) -> tuple[ProgressBody, int] | None:
        """Take the next chunk; return the record that it completes and its first chunk's offset.

        Chunks of a set are written in order by one transaction, so one out of order opens no set;
        and of sets that were begun and not completed only the last few are kept.
        """
        if isinstance(body, PartitionAnnounced) or body.chunks == 1:
            return body, offset
        identity = _set_identity(body)
        if body.chunk == 0:
            self._open.pop(identity, None)
            self._open[identity] = (offset, [body])
            if len(self._open) > _OPEN_SETS_MAX:
                del self._open[next(iter(self._open))]
            return None
        first_offset, chunks = self._open.get(identity, (offset, []))
        if len(chunks) != body.chunk:
            self._open.pop(identity, None)
            return None
        chunks.append(body)
        if len(chunks) < body.chunks:
            return None
        del self._open[identity]
        return _join(chunks), first_offset


def _set_identity(body: StreamStarted | PartitionFinished | SlotProgress) -> ProgressBody:
    """Return what all chunks of a set have in common; a chunk that differs is of another set."""
    match body:
        case StreamStarted():
            return replace(body, children=(), chunk=0)
        case PartitionFinished():
            return replace(body, children=(), totals=(), chunk=0)
        case SlotProgress():
            return replace(body, tokens=(), vector=(), chunk=0)


def _join(chunks: list[ProgressBody]) -> ProgressBody:
    first = chunks[0]
    match first:
        case SlotProgress():
            tokens = tuple(t for c in chunks if isinstance(c, SlotProgress) for t in c.tokens)
            return replace(first, tokens=tokens, chunk=0, chunks=1)
        case StreamStarted():
            children = tuple(k for c in chunks if isinstance(c, StreamStarted) for k in c.children)
            return replace(first, children=children, chunk=0, chunks=1)
        case PartitionFinished():
            kids = tuple(k for c in chunks if isinstance(c, PartitionFinished) for k in c.children)
            return replace(first, children=kids, chunk=0, chunks=1)
        case PartitionAnnounced():
            return first


def _batches(
    items: tuple[_Item, ...], size: int, *, first: int, each: int = 0
) -> Iterator[tuple[_Item, ...]]:
    """Cut items into runs within both limits; no items are one empty run.

    `first` and `each` are the bytes that the first run and every further one have beside items.
    """
    start, taken = 0, first
    for index, item in enumerate(items):
        weight = _weight(item)
        if index > start and (index - start == size or taken + weight > CHUNK_BYTES_MAX):
            yield items[start:index]
            start, taken = index, each
        taken += weight
    yield items[start:]


def _fixed_weight(*texts: str) -> int:
    """Return about as many bytes as a few texts with numbers beside them take."""
    return 32 + sum(len(text.encode()) for text in texts)


def _weight(item: ChildPartition | TokenSnapshot) -> int:
    """Return about as many bytes as an item takes, rather more than fewer."""
    texts = [item.token, *item.parents]
    fixed = 32
    if isinstance(item, TokenSnapshot):
        texts += item.parents_heard
        texts += (text for entry in item.boundary for text in entry)
        texts += (total.topic for total in item.totals)
        fixed += 48 * len(item.totals)
    return fixed + sum(len(text.encode()) + 4 for text in texts)


def _children_to_avro(children: tuple[ChildPartition, ...]) -> list[dict[str, Any]]:
    return [{"token": c.token, "parents": c.parents, "start_ns": c.start_ns} for c in children]


def _totals_to_avro(totals: tuple[TopicTotals, ...]) -> list[dict[str, Any]]:
    return [
        {
            "topic": t.topic,
            "records": t.records,
            "mods": t.mods,
            "value_bytes": t.value_bytes,
            "checksum": t.checksum.to_bytes(8, "big"),
        }
        for t in totals
    ]


def _plain(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _body_to_avro(body: ProgressBody) -> dict[str, Any]:
    match body:
        case StreamStarted():
            plain = ("stream", "dialect", "start_ns", "end_ns", "group", "slots")
            return {
                **_plain(body, *plain, "progress_topic_id", "filters", "chunk", "chunks"),
                "topics": [
                    _plain(t, "topic", "topic_id", "topic_partitions", "key_schema_id")
                    for t in body.topics
                ],
                "children": _children_to_avro(body.children),
            }
        case PartitionAnnounced():
            return {"child": _children_to_avro((body.child,))[0], "parent": body.parent}
        case PartitionFinished():
            plain = ("token", "parents", "start_ns", "end_ns", "filtered", "parked")
            return {
                **_plain(body, *plain, "chunk", "chunks"),
                "children": _children_to_avro(body.children),
                "totals": _totals_to_avro(body.totals),
            }
        case SlotProgress():
            return {
                **_plain(body, "slot", "revision", "minute", "includes", "chunk", "chunks"),
                "vector": [_plain(o, "topic", "topic_partition", "offset") for o in body.vector],
                "tokens": [_token_to_avro(token) for token in body.tokens],
            }


def _token_to_avro(token: TokenSnapshot) -> dict[str, Any]:
    plain = ("token", "start_ns", "parents", "parents_heard", "watermark_us", "filtered", "parked")
    return {
        **_plain(token, *plain),
        "boundary": [
            {"server_transaction_id": transaction, "record_sequence": sequence}
            for transaction, sequence in token.boundary
        ],
        "totals": _totals_to_avro(token.totals),
    }


def _child_from_avro(child: Mapping[str, Any]) -> ChildPartition:
    return ChildPartition(child["token"], tuple(child["parents"]), child["start_ns"])


def _totals_from_avro(totals: list[Mapping[str, Any]]) -> tuple[TopicTotals, ...]:
    return tuple(
        TopicTotals(**{**total, "checksum": int.from_bytes(total["checksum"], "big")})
        for total in totals
    )


def _body_from_avro(name: str, body: dict[str, Any]) -> ProgressBody:
    match name.removeprefix(_NAMESPACE):
        case "StreamStarted":
            topics = tuple(DataTopic(**topic) for topic in body.pop("topics"))
            children = tuple(_child_from_avro(child) for child in body.pop("children"))
            filters = tuple(body.pop("filters"))
            return StreamStarted(**body, topics=topics, children=children, filters=filters)
        case "PartitionAnnounced":
            return PartitionAnnounced(_child_from_avro(body["child"]), body["parent"])
        case "PartitionFinished":
            children = tuple(_child_from_avro(child) for child in body.pop("children"))
            totals = _totals_from_avro(body.pop("totals"))
            parents = tuple(body.pop("parents"))
            return PartitionFinished(**body, parents=parents, children=children, totals=totals)
        case "SlotProgress":
            vector = tuple(TopicOffset(**offset) for offset in body.pop("vector"))
            tokens = tuple(_token_from_avro(token) for token in body.pop("tokens"))
            return SlotProgress(**body, vector=vector, tokens=tokens)
        case other:
            message = "a progress record of an unknown kind"
            raise SchemaError(message, kind=other)


def _token_from_avro(token: dict[str, Any]) -> TokenSnapshot:
    return TokenSnapshot(
        token=token["token"],
        start_ns=token["start_ns"],
        parents=tuple(token["parents"]),
        parents_heard=tuple(token["parents_heard"]),
        watermark_us=token["watermark_us"],
        boundary=tuple(
            (entry["server_transaction_id"], entry["record_sequence"])
            for entry in token["boundary"]
        ),
        totals=_totals_from_avro(token["totals"]),
        filtered=token["filtered"],
        parked=token["parked"],
    )
