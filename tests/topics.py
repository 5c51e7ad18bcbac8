"""Topics as a producer would write them: Avro rows made with fastavro."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import fastavro

from tidegate.schemas.change_schema import excludes, key_schema, unwatched_columns, value_schema
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, reader_schema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS_SCHEMA = (
    "topic string, topic_partition int, offset long, key binary, value binary, "
    "order_key binary, mod string, origin long, ordinal long"
)


def table_schema(name, columns, keys):
    """`columns` is {name: Spanner type}; `keys` the key's columns in primary key order."""
    return TableSchema(
        name,
        tuple(
            Column(
                column,
                ColumnType.from_spanner_type(kind),
                ordinal,
                keys.index(column) + 1 if column in keys else None,
            )
            for ordinal, (column, kind) in enumerate(columns.items(), 1)
        ),
    )


@dataclass
class Change:
    """One change; `new` and `old` hold the captured columns; `every` says that all are captured."""

    mod: str
    key: dict
    new: dict | None = None
    old: dict | None = None
    us: int = 1_000
    transaction: str = "t1"
    sequence: int = 0
    mod_number: int = 0
    every: bool = True
    value_id: int | None = None
    token: str = "token"
    records: int = 1
    """How many records its transaction has, as each of them states."""
    open_us: int | None = None
    """The first time that was open when an event of a file was read."""
    is_older: bool = False
    """Written by a program that put the token into the value, and named it in no header."""

    @property
    def origin(self):
        return int.from_bytes(origin_of(self.token), "big", signed=True)

    @property
    def order_key(self):
        place = self.open_us or 0, self.sequence
        return OrderKey(self.us, self.transaction, place, self.mod_number).encode()

    @property
    def record_sequence(self):
        if self.open_us is None:
            return f"{self.sequence:08d}"
        return f"{self.open_us:x}-{self.sequence:x}"


@dataclass
class Topic:
    """Encodes changes of one table; `versions` are its columns by schema id, newest last."""

    table: str
    versions: dict
    keys: list
    key_id: int = 100
    prefix: str = "bank"
    offset: int = 0
    hidden_ids: set = field(default_factory=set)
    """Schema ids that the plan does not name."""
    unwatched: dict = field(default_factory=dict)
    """By schema id, the columns that the change stream does not watch."""
    excludes: tuple = ()
    schemas: dict = field(init=False)

    def __post_init__(self):
        self.topic = TopicNames(self.prefix).data(self.table)
        self.tables = {
            i: self._watched(i, table_schema(self.table, columns, self.keys))
            for i, columns in self.versions.items()
        }
        self.schemas = {i: value_schema(self.topic, table) for i, table in self.tables.items()}
        self.newest = max(self.versions)
        self.key_schema = key_schema(self.topic, self.tables[self.newest])
        written = {**self.schemas, self.key_id: self.key_schema}
        self.parsed = {i: fastavro.parse_schema(dict(schema)) for i, schema in written.items()}

    def _watched(self, schema_id, table):
        columns = [
            replace(column, is_watched=column.name not in self.unwatched.get(schema_id, ()))
            for column in table.columns
        ]
        return replace(table, columns=tuple(columns), excludes=self.excludes)

    def topic_schemas(self):
        versions = [self.schemas[i] for i in sorted(self.schemas)]
        return TopicSchemas(
            self.table,
            self.key_schema,
            reader_schema(versions),
            {
                schema_id: schema
                for schema_id, schema in {**self.schemas, self.key_id: self.key_schema}.items()
                if schema_id not in self.hidden_ids
            },
            unwatched=unwatched_columns(versions),
            excludes=excludes(versions),
        )

    def row(self, change, *, ordinal):
        """A row of a release, as the gate hands it to the decoder."""
        key, value = self.framed(change)
        self.offset += 1
        return (
            self.topic, 0, self.offset, bytearray(key), bytearray(value),
            bytearray(change.order_key), change.mod[0],
            None if change.is_older else change.origin, ordinal,
        )  # fmt: skip

    def framed(self, change):
        """A change's key and value, in Confluent's framing."""
        value_id = change.value_id or self.newest
        names = list(self.versions[value_id])

        def side(values):
            if values is None:
                return None, None
            filled = {**change.key, **values}
            captured = [name for name in names if name in filled]
            every = change.every and len(captured) == len(names)
            return {name: filled.get(name) for name in names}, None if every else captured

        new, new_columns = side(change.new)
        old, old_columns = side(change.old)
        record = {
            "mod_type": change.mod,
            "new_values": new,
            "old_values": old,
            "new_columns": new_columns,
            "old_columns": old_columns,
            "source": {
                "commit_timestamp": _EPOCH + timedelta(microseconds=change.us),
                "server_transaction_id": change.transaction,
                "record_sequence": change.record_sequence,
                "mod_number": change.mod_number,
                "is_last_record_in_transaction_in_partition": True,
                "number_of_records_in_transaction": change.records,
                "number_of_partitions_in_transaction": 1,
                "transaction_tag": "",
                "is_system_transaction": False,
                "value_capture_type": "NEW_VALUES",
                "change_stream": "everything",
                "partition_token": change.token if change.is_older else "",
            },
        }
        return (
            _framed(self.key_id, self.parsed[self.key_id], change.key),
            _framed(value_id, self.parsed[value_id], record),
        )


def _framed(schema_id, schema, record):
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, record)
    return frame(schema_id, body.getvalue())
