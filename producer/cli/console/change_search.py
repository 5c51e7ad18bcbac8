"""The changes of one key in commit order, with the place of each in Kafka.

The data topic is read from a time on; records of other keys are skipped.
"""

from __future__ import annotations

import base64
import heapq
import io
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Protocol

import fastavro

from tidegate.producer.cli.clients import kafka_options, schema_registry
from tidegate.producer.config import ProducerConfig
from tidegate.producer.kafka.recent_records import RecentRecords, StoredRecord
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.instants import canonical_rfc3339, parse_rfc3339_ns
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_REDRIVEN, TopicNames
from tidegate.schemas.wire_format import HEADER_BYTES, unframe

_VALUES_MAX = 4_000
SHOWN_MAX = 200
"""Number of a key's newest changes that are kept."""
_TYPED_MAX = 80
_LONG_END = 1 << 63
_NUMERIC_END = 10**29
_JSON_START = b"{"
"""The first byte of a key in JSON; a framed key begins with a zero byte."""
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
    """The result of a search."""

    topic: str
    changes: tuple[FoundChange, ...]
    """In commit order."""
    records: int
    """Number of records that were read."""
    is_cut: bool
    """Whether a limit ended it before the topic's end."""


def find_changes(
    config: ProducerConfig, table: str, key: str, *, hours: float, with_values: bool
) -> Search:
    """Return the changes of a key that were published in the last `hours`.

    `key` is JSON: one value, a list of the key's columns in their order, or an object by column; a
    text that is not JSON is a STRING.  Raises ConfigError for a table without a topic and for a key
    that no row can have, SchemaError for a record without an order key, and UnreachableError.
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
        # Only these are held and decoded: a key may have very many changes.
        newest = heapq.nlargest(
            SHOWN_MAX,
            (r for r in records if wanted.fits(r.key) and r.value is not None),
            key=lambda record: (record.headers.get(HEADER_ORDER, b""), record.offset),
        )
    changes = [_change(record, registry, with_values=with_values) for record in reversed(newest)]
    return Search(topic, tuple(changes), records.count, records.is_cut)


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


class _Key(Protocol):
    """The key that is searched for."""

    def fits(self, key: bytes | None) -> bool:
        """Whether a record has this key."""
        ...


@dataclass(frozen=True, slots=True)
class _RegisteredKey:
    """A key under a registered schema, compared by its bytes in Avro without the schema's id.

    The schema is registered for keys in JSON too.
    """

    schema: Mapping[str, Any]
    body: bytes

    def fits(self, key: bytes | None) -> bool:
        if key is None or not key.startswith(_JSON_START):
            return key is not None and key[HEADER_BYTES:] == self.body
        try:
            return _encoded(self.schema, json.loads(key, parse_float=Decimal)) == self.body
        except (ValueError, ConfigError):
            return False


@dataclass(frozen=True, slots=True)
class _JsonKey:
    """A key without a registered schema, compared by its columns."""

    columns: Mapping[str, Any]

    def fits(self, key: bytes | None) -> bool:
        try:
            return key is not None and json.loads(key, parse_float=Decimal) == self.columns
        except ValueError:
            return False


def _wanted(registry: HttpSchemaRegistry, topic: str, text: str) -> _Key:
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
    is_text = [_kind(field["type"]) for field in schema["fields"]] == ["string"]
    if is_text and isinstance(given, int | float | Decimal):
        given = text  # a STRING such as 1e5 or true, without quotation marks
    return _RegisteredKey(schema, _encoded(schema, given))


def _given(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return text


def _encoded(schema: Mapping[str, Any], given: Any) -> bytes:
    """Return a key in Avro; raises ConfigError for a key that no row can have."""
    columns = {field["name"]: field["type"] for field in schema["fields"]}
    values = _by_column(given, list(columns))
    body = io.BytesIO()
    for name, avro_type in columns.items():
        _write(body, avro_type, values[name], column=name)
    return body.getvalue()


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


def _write(body: io.BytesIO, avro_type: Any, value: Any, *, column: str) -> None:
    """Write a value of JSON in Avro; raises ConfigError if it does not fit the column."""
    kind = _kind(avro_type)
    try:
        converted = None if value is None else _converted(kind, value)
        fastavro.schemaless_writer(body, avro_type, converted)
    except (ValueError, TypeError, ArithmeticError, KeyError, SchemaError) as error:
        shown = repr(value)
        shown = shown if len(shown) <= _TYPED_MAX else f"{shown[:_TYPED_MAX]}…"
        raise ConfigError(
            f"key: {shown} cannot be a value of column {column} ({kind})",
            hint="Write it as Spanner's JSON has it: times in RFC 3339, bytes in base64",
        ) from error


def _kind(avro_type: Any) -> str:
    """Return the name of a column's Avro type, or of its logical type."""
    branches = avro_type if isinstance(avro_type, list) else [avro_type]
    own = next(branch for branch in branches if branch != "null")
    return own if isinstance(own, str) else str(own.get("logicalType", own["type"]))


def _converted(kind: str, value: Any) -> Any:
    """Return a value of JSON as fastavro writes it; equal values of Spanner become one value."""
    match kind:
        case "long" | "int":
            number = Decimal(str(value))
            # Compared before the conversion: an exponent may ask for very many digits.
            if abs(number) > _LONG_END or number != number.to_integral_value():
                raise ValueError(value)
            return int(number)
        case "float" | "double":
            return float(value) + 0.0  # a zero has no sign in a key
        case "boolean":
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value)]
        case "bytes":
            return base64.b64decode(value, validate=True)
        case "decimal":
            number = Decimal(str(value))
            if abs(number) >= _NUMERIC_END:
                raise ValueError(value)
            return number
        case "date":
            return date.fromisoformat(value)
        case "timestamp-micros":
            return parse_rfc3339_ns(value) // 1_000
        case "timestamp-rfc3339":
            return canonical_rfc3339(value)
        case "uuid":
            return str(uuid.UUID(str(value)))
        case _:
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise TypeError(value)
            return str(value)
