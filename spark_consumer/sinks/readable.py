"""Which rows `decoding` can decode: a condition for Spark, which fails for no row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.wire_format import HEADER_BYTES
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.decoding import begins_with, body_of, writers_of

_PERMISSIVE = {"mode": "PERMISSIVE"}

_IS_READ = "tidegate_is_read"
"""A field that no writer has, with a default: true in every record that could be decoded.

Spark gives a record of nulls where it could not, and a key may be of nulls alone.
"""


def why_unreadable(schemas: TopicSchemas) -> Column:
    """Return why `decode_changes` fails for a row of the topic with a value; null if it does not.

    The texts are those of `row_decoding`.
    """
    values = _bodies("value", schemas, schemas.reader_schema)
    token = F.lit(None).cast("string")
    for schema_id, body in values.items():
        named = body["source"]["partition_token"]
        token = F.when(begins_with("value", schema_id), named).otherwise(token)
    return F.coalesce(
        _why("key", _bodies("key", schemas, schemas.key_schema)),
        _why("value", values),
        F.when(
            F.col("origin").isNull() & (token == ""),
            F.lit("a change names no stream partition: its header is missing"),
        ),
    )


def _why(column: str, bodies: Mapping[int, Column]) -> Column:
    why = F.lit(f"a {column} has a schema id that the plan does not name")
    for schema_id, body in bodies.items():
        misfit = F.lit(f"a {column} does not fit the schema that it names")
        of_body = F.when(body[_IS_READ].isNull(), misfit)
        why = F.when(begins_with(column, schema_id), of_body).otherwise(why)
    is_framed = F.expr(
        f"coalesce(substring({column}, 1, 1) = X'00' AND length({column}) >= {HEADER_BYTES}, FALSE)"
    )
    return F.when(~is_framed, F.lit(f"a {column} does not begin with a schema id")).otherwise(why)


def _bodies(column: str, schemas: TopicSchemas, reader: Mapping[str, Any]) -> dict[int, Column]:
    """Return the body of a column by the schema id that it may have been written with."""
    is_read = {"name": _IS_READ, "type": "boolean", "default": True}
    marked = {**reader, "fields": [*reader["fields"], is_read]}
    return {
        schema_id: body_of(column, writer, marked, mode=_PERMISSIVE)
        for schema_id, writer in writers_of(schemas, reader)
    }
