"""Progress records and their keys as Avro bodies, and back.

Pure: other modules frame the bodies and call the registry.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any, TypeAlias

import fastavro

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
    ProgressBody,
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

_BodyWithValue: TypeAlias = (
    StreamStarted
    | PartitionAnnounced
    | PartitionFinished
    | SlotProgress
    | SlotChanges
    | SlotWatermark
    | TableAdded
    | PartitionGap
    | StreamControl
    | WorkerDrain
    | SlotPaused
)


def schema_text(kind: str, version: int) -> str:
    """Return the released text of a schema; `kind` is `progress_key` or `progress_record`."""
    return files(__package__).joinpath(f"avro/{kind}/v{version}.avsc").read_text()


_VERSIONS = range(1, PROGRESS_VERSION + 1)
KEY_SCHEMAS: dict[int, dict[str, Any]] = {
    version: json.loads(schema_text("progress_key", version)) for version in _VERSIONS
}
"""The schemas of keys, by version."""
RECORD_SCHEMAS: dict[int, dict[str, Any]] = {
    version: json.loads(schema_text("progress_record", version)) for version in _VERSIONS
}
KEY_SCHEMA = KEY_SCHEMAS[PROGRESS_VERSION]
RECORD_SCHEMA = RECORD_SCHEMAS[PROGRESS_VERSION]
_KEY_WRITERS = {
    version: fastavro.parse_schema(json.loads(schema_text("progress_key", version)))
    for version in _VERSIONS
}
_RECORD_WRITERS = {
    version: fastavro.parse_schema(json.loads(schema_text("progress_record", version)))
    for version in _VERSIONS
}
_NAMESPACE = "tidegate.progress."
_SINCE: dict[type[ProgressBody], tuple[int, str]] = {
    PartitionGap: (3, "an accepted gap"),
    StreamControl: (4, "a pause"),
    WorkerDrain: (4, "the drain of a worker"),
    SlotPaused: (4, "a pause"),
}
"""The first version that can hold a body, and the name of the body."""
_HINT_NEWER = "If a newer version of Tidegate wrote it, upgrade this program"


def encode_key(body: ProgressBody, version: int = PROGRESS_VERSION) -> bytes:
    """Return the Avro body of a record's key; raises SchemaError if it cannot."""
    _require_version(body, version)
    chunk = 0
    match body:
        case StreamStarted():
            kind, name, detail, chunk = "STREAM_STARTED", body.stream, "", body.chunk
        case PartitionAnnounced():
            kind, name, detail = "PARTITION_ANNOUNCED", body.child.token, body.parent
        case PartitionFinished():
            kind, name, detail, chunk = "PARTITION_FINISHED", body.token, "", body.chunk
        case SlotProgress():
            kind, name, chunk = "SLOT_PROGRESS", str(body.slot), body.chunk
            detail = str(body.minute) if version == 1 else ""
        case SlotChanges():
            kind, name, detail = "SLOT_CHANGES", str(body.slot), str(body.position)
            chunk = body.chunk
        case SlotWatermark():
            kind, name, detail = "SLOT_WATERMARK", str(body.slot), str(body.minute)
            chunk = body.chunk
        case SlotWatermarkExpired():
            kind, name, detail = "SLOT_WATERMARK", str(body.slot), str(body.minute)
        case TableAdded():
            # With its content, so that compaction never hides that two tables of a topic differ.
            topic = body.topic
            kind, name = "TABLE_ADDED", topic.topic
            detail = f"{topic.topic_id}/{topic.topic_partitions}/{topic.key_schema_id}"
        case PartitionGap():
            kind, name, detail = "PARTITION_GAP", body.token, str(body.from_us)
        case StreamControl():
            kind, name, detail = "STREAM_CONTROL", "", ""
        case WorkerDrain():
            kind, name, detail = "WORKER_DRAIN", body.worker, ""
        case SlotPaused():
            kind, name, detail = "SLOT_PAUSED", str(body.slot), ""
    key = {"kind": kind, "id": name, "detail": detail, "chunk": chunk}
    return _written(_KEY_WRITERS[version], lambda: key)


def _require_version(body: ProgressBody, version: int) -> None:
    """Raise SchemaError for a body that a version does not have."""
    since, feature = _SINCE.get(type(body), (1, ""))
    if version < since:
        raise SchemaError(
            f"progress records of version {version} cannot hold {feature}", kind=type(body).__name__
        )


def is_root_key(key: bytes) -> bool:
    """Whether the Avro body of a key is that of a record which every worker reads in slot 0.

    These are `TableAdded`, `StreamControl` and `WorkerDrain`, in any version.  Decodes nothing.
    """
    return key[:1] in _ROOT_KEY_STARTS


def is_announcement_key(key: bytes) -> bool:
    """Whether the Avro body of a key is that of a `PartitionAnnounced`, in any version."""
    return key[:1] == _ANNOUNCEMENT_KEY_START


def encode_record(record: ProgressRecord) -> bytes | None:
    """Return the Avro body of a record's value; None for a record that removes another.

    Raises SchemaError for a body that its version cannot express.
    """
    body = record.body
    if isinstance(body, SlotWatermarkExpired):
        return None
    _require_version(body, record.version)
    if record.version == 1 and _has_parked_keys(body):
        raise SchemaError(
            "progress records of version 1 cannot hold parked keys", kind=type(body).__name__
        )
    if record.version == 1 and isinstance(body, StreamStarted) and body.timestamps != "MICROS":
        raise SchemaError(
            "progress records of version 1 cannot hold the form of timestamps",
            timestamps=body.timestamps,
        )
    return _written(
        _RECORD_WRITERS[record.version],
        lambda: {
            "epoch": record.epoch,
            "worker": record.worker,
            "body": (_NAMESPACE + type(body).__name__, _body_to_avro(body)),
        },
    )


def _has_parked_keys(body: _BodyWithValue) -> bool:
    match body:
        case PartitionAnnounced():
            return bool(body.parked_keys)
        case SlotProgress():
            return any(token.parked_keys for token in body.tokens)
        case _:
            return False


def _written(schema: Any, make: Callable[[], dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, schema, make())
    except Exception as error:  # fastavro's writer raises many kinds of errors
        raise SchemaError(
            "progress record does not match its schema",
            cause=f"{type(error).__name__}: {error}"[:200],
        ) from error
    return buffer.getvalue()


_ROOT_KEY_STARTS = frozenset(
    encode_key(body)[:1]
    for body in (
        TableAdded(DataTopic("", "", 0, 0)),
        StreamControl(0, ControlState.RUNNING, "", 0),
        WorkerDrain("", "", 0),
    )
)
_ANNOUNCEMENT_KEY_START = encode_key(PartitionAnnounced(ChildPartition("", (), 0), ""))[:1]


def decode_record(
    data: bytes, writer_schema: dict[str, Any] | None = None, *, version: int = PROGRESS_VERSION
) -> ProgressRecord:
    """Return the record in an Avro body.

    `writer_schema` is the parsed schema that the body was written with, unless that is the schema
    of `version`.  Raises SchemaError for bytes that are not one record, and for a chunk number
    outside the set.
    """
    buffer = io.BytesIO(data)
    try:
        envelope: Any = fastavro.schemaless_reader(
            buffer,
            writer_schema or _RECORD_WRITERS[version],
            _RECORD_WRITERS[PROGRESS_VERSION],
            return_record_name=True,
        )
        name, fields = envelope["body"]
        body = _body_from_avro(name, fields)
    except SchemaError:
        raise
    except Exception as error:  # fastavro's parser raises many kinds of errors
        message = "bytes are not a progress record"
        hint = "" if writer_schema is None else _HINT_NEWER
        cause = type(error).__name__
        raise SchemaError(message, hint=hint, length=len(data), cause=cause) from error
    if buffer.tell() != len(data):
        raise SchemaError(
            "bytes beyond the end of a progress record", length=len(data), end=buffer.tell()
        )
    if isinstance(body, _WITHOUT_CHUNKS):
        return ProgressRecord(envelope["epoch"], envelope["worker"], body, version)
    if not 0 <= body.chunk < body.chunks:
        raise SchemaError(
            "progress record with a chunk number that its set cannot have",
            chunk=body.chunk,
            chunks=body.chunks,
        )
    return ProgressRecord(envelope["epoch"], envelope["worker"], body, version)


_WITHOUT_CHUNKS = (
    PartitionAnnounced | TableAdded | PartitionGap | StreamControl | WorkerDrain | SlotPaused
)


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


def _vector_to_avro(vector: tuple[TopicOffset, ...]) -> list[dict[str, Any]]:
    return [_plain(entry, "topic", "topic_partition", "offset") for entry in vector]


def _slowest_to_avro(slowest: SlowestToken | None) -> dict[str, Any] | None:
    return None if slowest is None else _plain(slowest, "token", "watermark_us")


def _boundary_to_avro(boundary: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    return [
        {"server_transaction_id": transaction, "record_sequence": sequence}
        for transaction, sequence in boundary
    ]


def _body_to_avro(body: _BodyWithValue) -> dict[str, Any]:
    match body:
        case StreamStarted():
            plain = ("stream", "dialect", "start_ns", "end_ns", "group", "slots")
            return {
                **_plain(
                    body, *plain, "progress_topic_id", "filters", "chunk", "chunks", "timestamps"
                ),
                "topics": [_topic_to_avro(topic) for topic in body.topics],
                "children": _children_to_avro(body.children),
            }
        case PartitionAnnounced():
            child = _children_to_avro((body.child,))[0]
            return {"child": child, **_plain(body, "parent", "parked_keys")}
        case PartitionFinished():
            plain = ("token", "parents", "start_ns", "end_ns", "filtered", "parked")
            return {
                **_plain(body, *plain, "checksums", "chunk", "chunks"),
                "children": _children_to_avro(body.children),
                "totals": _totals_to_avro(body.totals),
            }
        case SlotProgress():
            return {
                **_plain(body, "slot", "revision", "minute", "includes", "chunk", "chunks"),
                "vector": _vector_to_avro(body.vector),
                "tokens": [_token_to_avro(token) for token in body.tokens],
            }
        case SlotChanges():
            return {
                **_plain(body, "slot", "revision", "position", "minute", "includes"),
                **_plain(body, "open", "removed", "chunk", "chunks"),
                "vector": _vector_to_avro(body.vector),
                "slowest": _slowest_to_avro(body.slowest),
                "added": [_token_to_avro(token) for token in body.added],
                "moved": [_move_to_avro(move) for move in body.moved],
            }
        case SlotWatermark():
            return {
                **_plain(body, "slot", "revision", "minute", "includes", "open", "chunk", "chunks"),
                "vector": _vector_to_avro(body.vector),
                "slowest": _slowest_to_avro(body.slowest),
            }
        case TableAdded():
            return {"topic": _topic_to_avro(body.topic)}
        case PartitionGap() | StreamControl() | WorkerDrain() | SlotPaused():
            return asdict(body)


def _topic_to_avro(topic: DataTopic) -> dict[str, Any]:
    return _plain(topic, "topic", "topic_id", "topic_partitions", "key_schema_id")


def _token_to_avro(token: TokenSnapshot) -> dict[str, Any]:
    plain = ("token", "start_ns", "parents", "parents_heard", "number", "checksums", "stopped")
    return {**_plain(token, *plain, "parked_keys"), **_progress_to_avro(token)}


def _move_to_avro(move: TokenMove) -> dict[str, Any]:
    return {"number": move.number, **_progress_to_avro(move)}


def _progress_to_avro(token: TokenSnapshot | TokenMove) -> dict[str, Any]:
    return {
        **_plain(token, "watermark_us", "filtered", "parked"),
        "boundary": _boundary_to_avro(token.boundary),
        "totals": _totals_to_avro(token.totals),
    }


def _child_from_avro(child: Mapping[str, Any]) -> ChildPartition:
    return ChildPartition(child["token"], tuple(child["parents"]), child["start_ns"])


def _totals_from_avro(totals: list[Mapping[str, Any]]) -> tuple[TopicTotals, ...]:
    return tuple(
        TopicTotals(**{**total, "checksum": int.from_bytes(total["checksum"], "big")})
        for total in totals
    )


def _slowest_from_avro(slowest: Any) -> SlowestToken | None:
    # With its name, as every record inside a union.
    return None if slowest is None else SlowestToken(**slowest[1])


def _body_from_avro(name: str, body: dict[str, Any]) -> _BodyWithValue:
    kind = name.removeprefix(_NAMESPACE)
    if kind in ("SlotProgress", "SlotChanges", "SlotWatermark"):
        body["vector"] = tuple(TopicOffset(**offset) for offset in body["vector"])
    match kind:
        case "StreamStarted":
            topics = tuple(DataTopic(**topic) for topic in body.pop("topics"))
            children = tuple(_child_from_avro(child) for child in body.pop("children"))
            filters = tuple(body.pop("filters"))
            body["timestamps"] = TimestampForm(body["timestamps"])
            return StreamStarted(**body, topics=topics, children=children, filters=filters)
        case "PartitionAnnounced":
            child = _child_from_avro(body["child"])
            return PartitionAnnounced(child, body["parent"], tuple(body["parked_keys"]))
        case "PartitionFinished":
            children = tuple(_child_from_avro(child) for child in body.pop("children"))
            totals = _totals_from_avro(body.pop("totals"))
            parents = tuple(body.pop("parents"))
            body["checksums"] = ChecksumKind(body["checksums"])
            return PartitionFinished(**body, parents=parents, children=children, totals=totals)
        case "SlotProgress":
            tokens = tuple(_token_from_avro(token) for token in body.pop("tokens"))
            return SlotProgress(**body, tokens=tokens)
        case "SlotChanges":
            body["slowest"] = _slowest_from_avro(body["slowest"])
            body["removed"] = tuple(body["removed"])
            added = tuple(_token_from_avro(token) for token in body.pop("added"))
            moved = tuple(
                TokenMove(number=move["number"], **_progress_from_avro(move))
                for move in body.pop("moved")
            )
            return SlotChanges(**body, added=added, moved=moved)
        case "SlotWatermark":
            body["slowest"] = _slowest_from_avro(body["slowest"])
            return SlotWatermark(**body)
        case "TableAdded":
            return TableAdded(DataTopic(**body["topic"]))
        case "PartitionGap":
            return PartitionGap(**body)
        case "StreamControl":
            return StreamControl(**{**body, "state": ControlState(body["state"])})
        case "WorkerDrain":
            return WorkerDrain(**body)
        case "SlotPaused":
            return SlotPaused(**body)
        case other:
            raise SchemaError("progress record of an unknown kind", kind=other)


def _token_from_avro(token: dict[str, Any]) -> TokenSnapshot:
    return TokenSnapshot(
        token=token["token"],
        start_ns=token["start_ns"],
        parents=tuple(token["parents"]),
        parents_heard=tuple(token["parents_heard"]),
        number=token["number"],
        checksums=ChecksumKind(token["checksums"]),
        stopped=token["stopped"],
        parked_keys=tuple(token["parked_keys"]),
        **_progress_from_avro(token),
    )


def _progress_from_avro(token: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "watermark_us": token["watermark_us"],
        "boundary": tuple(
            (entry["server_transaction_id"], entry["record_sequence"])
            for entry in token["boundary"]
        ),
        "totals": _totals_from_avro(token["totals"]),
        "filtered": token["filtered"],
        "parked": token["parked"],
    }
