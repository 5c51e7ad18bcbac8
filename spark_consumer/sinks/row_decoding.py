"""Decodes released rows in the driver, one by one, as `decoding` does in Spark.

For small releases only.  Values come out as numbers where Avro has numbers, so that no value
passes through a form with other bounds: microseconds for timestamps, days for dates.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import fastavro

from tidegate.schemas.checksums import origin_of
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.topics import HEADER_ORIGIN
from tidegate.schemas.wire_format import HEADER_BYTES, unframe
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, full_name, row_columns
from tidegate.spark_consumer.errors import BAD_RECORD_HINT, UndecodableRecord, UnknownSchema

# Errors of fastavro for bytes that do not fit the schema: it has no specific error for that.
_NOT_OF_THE_SCHEMA = (
    ArithmeticError,
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
)


def decode_rows(
    rows: Iterable[Mapping[str, Any]], schemas: TopicSchemas, *, release: int
) -> list[dict[str, Any]]:
    """Return a topic's changes as `CollectedTable` has them; rows without a value are left out.

    `rows` have the columns that `decoding.decode_changes` reads, and are all of one topic.  Raises
    UndecodableRecord for bytes that do not fit their schema, for a schema id that the plan does not
    name, and for a change that names no stream partition.
    """
    with_value = [row for row in rows if row["value"] is not None]
    if not with_value:
        return []
    decoder = RowDecoder(schemas, release=release)
    return [decoder.decoded(row) for row in with_value]


def find_undecodable(
    rows: Iterable[Mapping[str, Any]], schemas: TopicSchemas
) -> Iterator[tuple[Mapping[str, Any], UndecodableRecord]]:
    """Yield the rows of one topic that `decode_rows` refuses, each with its error."""
    decoder = RowDecoder(schemas, release=0)
    for row in rows:
        if row["value"] is not None:
            try:
                decoder.decoded({"ordinal": 0, **row})
            except UndecodableRecord as error:
                yield row, error


class RowDecoder:
    """Decodes the rows of one topic in one release, one by one."""

    def __init__(self, schemas: TopicSchemas, *, release: int) -> None:
        """Raise SchemaError for schemas that do not fit each other."""
        self._table = schemas.table
        self._release = release
        self._keys = _Records(schemas, schemas.key_schema, "key")
        self._values = _Records(schemas, schemas.reader_schema, "value")
        newest = row_columns(schemas.reader_schema)
        self._older_columns: dict[int, list[str]] = {}
        for schema_id, writer in self._values.writers.items():
            columns = row_columns(writer)
            if unknown := [column for column in columns if column not in newest]:
                message = "a writer schema has columns that the reader schema lacks"
                table = schemas.table
                raise SchemaError(message, table=table, schema_id=schema_id, columns=unknown)
            if len(columns) < len(newest):
                self._older_columns[schema_id] = list(columns)

    def decoded(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a change as `decode_rows` does; raises UndecodableRecord."""
        # The key first, as in `decoding.why_unreadable`: a bad record has one reason.
        _, key = self._keys.read(row)
        value_id, change = self._values.read(row)
        source = change["source"]
        return {
            "release": self._release,
            "ordinal": row["ordinal"],
            "commit_timestamp": source["commit_timestamp"],
            "server_transaction_id": source["server_transaction_id"],
            "record_sequence": source["record_sequence"],
            "mod_number": source["mod_number"],
            "mod_type": change["mod_type"],
            "order_key": bytes(row["order_key"]),
            "key": key,
            "new_values": change["new_values"],
            "old_values": change["old_values"],
            "new_columns": self._captured("new", change, value_id),
            "old_columns": self._captured("old", change, value_id),
            "source": source,
            "topic_partition": row["topic_partition"],
            "offset": row["offset"],
            "origin": self._origin(row, source["partition_token"]),
            "value_bytes": len(row["value"]),
        }

    def _captured(self, side: str, change: Mapping[str, Any], value_id: int) -> list[str] | None:
        """Return the captured columns' names, None for all; a writer's "all" is its own columns."""
        named = cast("list[str] | None", change[f"{side}_columns"])
        if named is None and change[f"{side}_values"] is not None:
            return self._older_columns.get(value_id)
        return named

    def _origin(self, row: Mapping[str, Any], token: str) -> int:
        if row["origin"] is not None:
            return int(row["origin"])
        if not token:
            raise UndecodableRecord(
                "a change names no stream partition: its header is missing",
                hint=BAD_RECORD_HINT,
                header=HEADER_ORIGIN,
                **_at(row, self._table),
            )
        return int.from_bytes(origin_of(token), "big", signed=True)


class _Records:
    """Reads framed records, keys or values, each with the schema it was written with."""

    def __init__(self, schemas: TopicSchemas, reader: Mapping[str, Any], column: str) -> None:
        self._table = schemas.table
        self._column = column
        self._reader = fastavro.parse_schema(_as_numbers(reader))
        self.writers = {
            schema_id: writer
            for schema_id, writer in schemas.writer_schemas.items()
            if full_name(writer) == full_name(reader)
        }
        self._parsed = {
            schema_id: fastavro.parse_schema(_as_numbers(writer))
            for schema_id, writer in self.writers.items()
        }

    def read(self, row: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the schema id and the record."""
        framed = bytes(row[self._column] or b"")
        schema_id = self._schema_id(framed, row)
        if schema_id not in self._parsed:
            raise UnknownSchema(
                f"a {self._column} has a schema id that the plan does not name",
                hint=BAD_RECORD_HINT,
                schema_id=schema_id,
                **_at(row, self._table),
            )
        body = io.BytesIO(framed)
        body.seek(HEADER_BYTES)
        try:
            record = fastavro.schemaless_reader(body, self._parsed[schema_id], self._reader)
        except _NOT_OF_THE_SCHEMA as error:
            raise UndecodableRecord(
                f"a {self._column} does not fit the schema that it names",
                hint=BAD_RECORD_HINT,
                schema_id=schema_id,
                **_at(row, self._table),
            ) from error
        return schema_id, record

    def _schema_id(self, framed: bytes, row: Mapping[str, Any]) -> int:
        try:
            schema_id, _ = unframe(framed)
        except SchemaError as error:
            raise UndecodableRecord(
                f"a {self._column} does not begin with a schema id",
                hint=BAD_RECORD_HINT,
                **error.fields,
                **_at(row, self._table),
            ) from error
        return schema_id


def _at(row: Mapping[str, Any], table: str) -> dict[str, Any]:
    place = {name: row[name] for name in ("topic", "topic_partition", "offset")}
    return {"table": table, **place}


def _as_numbers(schema: Any) -> Any:
    """Return the schema without logical types but decimals: their values stay what Avro stores."""
    if isinstance(schema, list):
        return [_as_numbers(part) for part in schema]
    if not isinstance(schema, dict) and not hasattr(schema, "items"):
        return schema
    keeps = schema.get("logicalType") == "decimal"
    return {
        name: _as_numbers(part) for name, part in schema.items() if keeps or name != "logicalType"
    }
