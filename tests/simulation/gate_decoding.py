"""Released rows decoded as `sinks.decoding` does it in Spark, one by one.

A row is read with the schema that its frame names, into the columns of the plan's reader schema.
"All columns" refers to the writer's schema, so its columns are spelled out.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from tests.simulation.tables import key_text, plain_columns
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.wire_format import unframe
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, full_name, row_columns


def signed(origin: bytes) -> int | None:
    return int.from_bytes(origin, "big", signed=True) if len(origin) == 8 else None


@dataclass(frozen=True, slots=True)
class DecodedRow:
    release: int
    ordinal: int
    order_key: bytes
    key: bytes
    mod: str
    columns: tuple[tuple[str, Any], ...]  # the captured columns without the key, plain
    origin: int
    record: tuple[int, str, str, int] = (0, "", "", 0)
    """Commit time, transaction, record sequence, and the number of records that it states."""


class ChangeReader:
    def __init__(self, schemas: TopicSchemas) -> None:
        """Raises SchemaError for a writer's column that the reader schema lacks."""
        self.columns = row_columns(schemas.reader_schema)
        self._schemas = schemas
        self._reader = _parsed(schemas.reader_schema)
        self._writers = {
            schema_id: _writer(schema)
            for schema_id, schema in schemas.writer_schemas.items()
            if full_name(schema) == full_name(schemas.reader_schema)
        }
        for schema_id, (_, known) in self._writers.items():
            if not set(known) <= set(self.columns):
                raise SchemaError(
                    "a writer schema has columns that the reader schema lacks",
                    table=schemas.table,
                    schema_id=schema_id,
                    columns=known,
                )

    def read(
        self,
        key: bytes,
        value: bytes,
        *,
        release: int,
        ordinal: int,
        order_key: bytes,
        origin: int | None,
    ) -> DecodedRow:
        """Decode a framed change."""
        key_id, key_body = unframe(key)
        value_id, body = unframe(value)
        if not {key_id, value_id} <= self._schemas.writer_schemas.keys():
            raise SchemaError(
                "a record has a schema id that the plan does not name",
                key_id=key_id,
                value_id=value_id,
            )
        writer, known = self._writers[value_id]
        change = _read(body, writer, self._reader)
        row = change["new_values"] or {}
        names = change["new_columns"] or (known if row else ())
        of_key = _read(key_body, _parsed(self._schemas.writer_schemas[key_id]), None)
        captured = plain_columns(row, (name for name in names if name not in of_key))
        text = key_text(of_key)
        token = change["source"]["partition_token"]
        number = origin if origin is not None else signed(origin_of(token)) if token else None
        if number is None:
            raise SchemaError("a change names no stream partition", table=self._schemas.table)
        source = change["source"]
        record = (
            OrderKey.decode(order_key).commit_timestamp_us,
            source["server_transaction_id"],
            source["record_sequence"],
            source["number_of_records_in_transaction"],
        )
        mod = change["mod_type"][0]
        columns = tuple(captured.items())
        return DecodedRow(release, ordinal, order_key, text, mod, columns, number, record)


def _writer(schema: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    return _parsed(schema), row_columns(schema)


def _parsed(schema: Mapping[str, Any]) -> Any:
    return _parsed_text(json.dumps(schema))


@functools.cache
def _parsed_text(text: str) -> Any:
    return fastavro.parse_schema(json.loads(text))


def _read(body: bytes, writer: Any, reader: Any) -> Any:
    try:
        return fastavro.schemaless_reader(io.BytesIO(body), writer, reader)
    except (EOFError, IndexError, KeyError, OverflowError, ValueError) as error:
        raise SchemaError("a record is not what its schema id says", cause=str(error)) from error
