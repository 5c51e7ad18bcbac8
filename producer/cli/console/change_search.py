"""The changes of one key, in their order: where each is in Kafka, and which release has it.

The data topic is read from a time on, and what belongs to other keys is passed over.
"""

from __future__ import annotations

import base64
import io
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

import fastavro

from tidegate.producer.cli.clients import kafka_options, schema_registry
from tidegate.producer.config import ProducerConfig
from tidegate.producer.kafka.recent_records import RecentRecords, StoredRecord
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.instants import parse_rfc3339_ns
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_REDRIVEN, TopicNames
from tidegate.schemas.wire_format import HEADER_BYTES, unframe

_VALUES_MAX = 4_000
SHOWN_MAX = 200
"""The newest changes of a key that are kept."""
_MODS = {b"I": "INSERT", b"U": "UPDATE", b"D": "DELETE"}


@dataclass(frozen=True, slots=True)
class FoundChange:
    """One change of the key."""

    order_key: bytes
    commit_us: int
    transaction: str
    record_sequence: str
    mod_number: int
    mod: str
    topic_partition: int
    offset: int
    published_us: int
    is_redriven: bool
    """Whether it was parked, and put back."""
    values: str
    """The record's value as JSON, cut where it is long; empty unless it was asked for."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a search has found."""

    topic: str
    changes: tuple[FoundChange, ...]
    """In commit order."""
    records: int
    """How many records were read."""
    is_cut: bool
    """Whether a limit ended it before the topic's end."""


def find_changes(
    config: ProducerConfig, table: str, key: str, *, hours: float, with_values: bool
) -> Search:
    """Return the changes of a key that were published in the last `hours`.

    `key` is JSON: one value, a list of the key's columns in their order, or an object by column; a
    text that is not JSON is a STRING.  Raises ConfigError for a table or a key that does not fit,
    and UnreachableError.
    """
    names = config.topic_names
    topic = names.data(table)
    options = kafka_options(config)
    described = KafkaTopics(config.bootstrap_servers, options=options).describe([topic])
    if topic not in described:
        raise ConfigError(
            f"table: there is no topic {topic}", hint="Write the table's name as Spanner has it"
        )
    registry = schema_registry(config)
    wanted = _wanted(registry, topic, key)
    records = RecentRecords(
        topic,
        range(described[topic].topic_partitions),
        since_ms=max(round((time.time() - hours * 3_600) * 1_000), 0),
        bootstrap_servers=config.bootstrap_servers,
        client_group=f"{names.group}-console",
        options=options,
    )
    with closing(records):
        changes = [
            _change(record, registry, with_values=with_values)
            for record in records
            if wanted.fits(record.key) and record.value is not None
        ]
    changes.sort(key=lambda change: (change.order_key, change.offset))
    return Search(topic, tuple(changes[-SHOWN_MAX:]), records.count, records.is_cut)


def _change(
    record: StoredRecord, registry: HttpSchemaRegistry, *, with_values: bool
) -> FoundChange:
    order_key = record.headers.get(HEADER_ORDER, b"")
    order = OrderKey.decode(order_key)
    high, low = order.record_sequence
    return FoundChange(
        order_key=order_key,
        commit_us=order.commit_timestamp_us,
        transaction=order.server_transaction_id,
        record_sequence=f"{high:x}-{low:x}" if high else str(low),
        mod_number=order.mod_number,
        mod=_MODS.get(record.headers.get(HEADER_MOD, b""), "unknown"),
        topic_partition=record.topic_partition,
        offset=record.offset,
        published_us=record.written_us,
        is_redriven=HEADER_REDRIVEN in record.headers,
        values=_shown(record.value or b"", registry) if with_values else "",
    )


def _shown(value: bytes, registry: HttpSchemaRegistry) -> str:
    """Return a record's value as JSON, whatever its envelope and form."""
    try:
        schema_id, body = unframe(value)
        decoded = fastavro.schemaless_reader(io.BytesIO(body), registry.schema(schema_id), None)
        text = json.dumps(decoded, default=_plain, ensure_ascii=False)
    except SchemaError:
        text = value.decode(errors="backslashreplace")
    return text if len(text) <= _VALUES_MAX else f"{text[:_VALUES_MAX]}…"


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


# ---------------------------------------------------------------- the key


@dataclass(frozen=True, slots=True)
class _AvroKey:
    """A key that is compared by its bytes, without the id of its schema."""

    body: bytes

    def fits(self, key: bytes | None) -> bool:
        return key is not None and key[HEADER_BYTES:] == self.body


@dataclass(frozen=True, slots=True)
class _JsonKey:
    """A key that is compared by its columns."""

    columns: Mapping[str, Any]

    def fits(self, key: bytes | None) -> bool:
        try:
            return key is not None and json.loads(key) == self.columns
        except ValueError:
            return False


def _wanted(registry: HttpSchemaRegistry, topic: str, text: str) -> _AvroKey | _JsonKey:
    given = _given(text)
    versions = registry.versions(TopicNames.key_subject(topic))
    if not versions:
        if not isinstance(given, dict):
            raise ConfigError(
                "key: the keys of this topic are JSON objects",
                hint='Give one by column, such as {"Id": 7}',
            )
        return _JsonKey(given)
    schema = versions[-1].schema
    columns = {field["name"]: field["type"] for field in schema["fields"]}
    record = {
        name: _avro_value(columns[name], value, column=name)
        for name, value in _by_column(given, list(columns)).items()
    }
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, record)
    return _AvroKey(body.getvalue())


def _given(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return text


def _by_column(given: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return the value of each column; raises ConfigError for a key with other columns."""
    if isinstance(given, dict):
        values = given
    else:
        parts = given if isinstance(given, list) else [given]
        values = dict(zip(columns, parts, strict=False)) if len(parts) == len(columns) else {}
    if values.keys() != set(columns):
        example = json.dumps(dict.fromkeys(columns, "…"), ensure_ascii=False)
        raise ConfigError(
            f"key: the table's key has the columns {', '.join(columns)}",
            hint=f"Give all of them, as a list in this order or as {example}",
        )
    return values


def _avro_value(avro_type: Any, value: Any, *, column: str) -> Any:
    """Return a value of JSON as fastavro writes it; raises ConfigError if it does not fit."""
    branches = avro_type if isinstance(avro_type, list) else [avro_type]
    own = next(branch for branch in branches if branch != "null")
    kind = own if isinstance(own, str) else own.get("logicalType", own["type"])
    if value is None:
        return None
    try:
        return _converted(kind, value)
    except (ValueError, TypeError, InvalidOperation, KeyError, SchemaError) as error:
        raise ConfigError(
            f"key: {value!r} cannot be a value of column {column} ({kind})",
            hint="Write it as Spanner's JSON has it: times in RFC 3339, bytes in base64",
        ) from error


def _converted(kind: str, value: Any) -> Any:
    match kind:
        case "long" | "int":
            number = Decimal(str(value))
            if number != number.to_integral_value():
                raise ValueError(value)
            return int(number)
        case "float" | "double":
            return float(value)
        case "boolean":
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value)]
        case "bytes":
            return base64.b64decode(value, validate=True)
        case "decimal":
            return Decimal(str(value))
        case "date":
            return date.fromisoformat(value)
        case "timestamp-micros":
            return parse_rfc3339_ns(value) // 1_000
        case "uuid":
            return str(uuid.UUID(value))
        case _:
            return str(value)
