"""Released rows of one topic, from Confluent-framed Avro to the columns that sinks receive.

Each row is read with its writer's schema and becomes one of the plan's reader schema, so a replay
reads it the same way.  Bytes that do not fit their schema fail the release; no value becomes null
instead.  `why_unreadable` finds such rows, and fails for no row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.classic.column import Column as ClassicColumn

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.topics import HEADER_ORIGIN
from tidegate.schemas.wire_format import HEADER_BYTES, frame_prefix
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, full_name, row_columns

CHANGE_COLUMNS = (
    "release",
    "ordinal",
    "commit_timestamp",
    "server_transaction_id",
    "record_sequence",
    "mod_number",
    "mod_type",
    "order_key",
    "key",
    "new_values",
    "old_values",
    "new_columns",
    "old_columns",
    "source",
    "topic_partition",
    "offset",
    "origin",
    "value_bytes",
)
"""The columns of a decoded change, in order; also those of every changelog table."""

STATED_COLUMNS = ("commit_us", "server_transaction_id", "record_sequence", "records")
"""A change's statement about its transaction; `records` is the number of its records."""

_STATED_FIELDS = frozenset(
    {
        "commit_timestamp",
        "server_transaction_id",
        "record_sequence",
        "number_of_records_in_transaction",
    }
)
_FAIL_FAST = {"mode": "FAILFAST"}
_CALENDAR = {"datetimeRebaseMode": "CORRECTED"}
"""Avro's calendar, independent of the session's settings."""

_PERMISSIVE = {"mode": "PERMISSIVE"}

_IS_READ = "tidegate_is_read"
"""A field that no writer has, with a default: true in every record that could be decoded.

Spark gives a record of nulls where it could not, and a key may be of nulls alone.
"""


def decode_changes(rows: DataFrame, schemas: TopicSchemas, *, topic: str) -> DataFrame:
    """Return a table's changes in `CHANGE_COLUMNS`; rows without a value (tombstones) are left out.

    They come from its data topic, and from the second topic that the schemas may name.

    `rows` are a release's, in any order, which stays: topic string, topic_partition int, offset
    long, key binary, value binary (Confluent's framing), order_key binary, origin long, release
    long, ordinal long.  Raises SchemaError for schemas that do not fit each other.  The action that
    runs the frame fails for bytes that do not fit their schema, for a schema id that the plan does
    not name, and for a change that names no stream partition.
    """
    topics = schemas.read_from(topic)
    rows = rows.where(F.col("topic").isin(*topics) & F.col("value").isNotNull())
    changes = rows.select(
        "release",
        "topic_partition",
        "offset",
        "order_key",
        "ordinal",
        "origin",
        "value",
        F.length("value").cast("long").alias("value_bytes"),
        _decoded("key", schemas, schemas.key_schema).alias("key"),
        _decoded("value", schemas, schemas.reader_schema).alias("change"),
    )
    return changes.select(
        "release",
        "ordinal",
        F.col("change.source.commit_timestamp").alias("commit_timestamp"),
        F.col("change.source.server_transaction_id").alias("server_transaction_id"),
        F.col("change.source.record_sequence").alias("record_sequence"),
        F.col("change.source.mod_number").alias("mod_number"),
        F.col("change.mod_type").alias("mod_type"),
        "order_key",
        "key",
        F.col("change.new_values").alias("new_values"),
        F.col("change.old_values").alias("old_values"),
        _captured("new", schemas).alias("new_columns"),
        _captured("old", schemas).alias("old_columns"),
        F.col("change.source").alias("source"),
        "topic_partition",
        "offset",
        _origin(schemas).alias("origin"),
        "value_bytes",
    ).select(*CHANGE_COLUMNS)


def decode_stated(rows: DataFrame, topics: Iterable[TopicSchemas]) -> DataFrame:
    """Return rows with a value, with `STATED_COLUMNS` added.

    `rows` are a release's of any of the topics, in any order, which stays: value binary.  Of the
    values nothing else is decoded.  The action that runs the frame fails for bytes that do not fit
    their schema, and for a schema id that no topic names.
    """
    branches = {
        schema_id: body_of("value", writer, _stated(schemas.reader_schema))
        for schemas in topics
        for schema_id, writer in writers_of(schemas, schemas.reader_schema)
    }
    message = "a value of a release has a schema id that the plan does not name: "
    stated = rows.where(F.col("value").isNotNull()).withColumn(
        "stated", _by_schema("value", branches, message)["source"]
    )
    return stated.select(
        *rows.columns,
        F.unix_micros("stated.commit_timestamp").alias("commit_us"),
        "stated.server_transaction_id",
        "stated.record_sequence",
        F.col("stated.number_of_records_in_transaction").alias("records"),
    )


def _stated(reader: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a value schema with no more than the fields of `source` that `decode_stated` needs."""
    (source,) = (field for field in reader["fields"] if field["name"] == "source")
    fields = [field for field in source["type"]["fields"] if field["name"] in _STATED_FIELDS]
    return {**reader, "fields": [{**source, "type": {**source["type"], "fields": fields}}]}


def _decoded(column: str, schemas: TopicSchemas, reader: Mapping[str, Any]) -> Column:
    """Return the Avro body of a framed column, each row read with its own writer's schema."""
    branches = {
        schema_id: body_of(column, writer, reader)
        for schema_id, writer in writers_of(schemas, reader)
    }
    if not branches:  # no row was written yet: only the type is needed
        return F.when(F.expr("false"), body_of(column, reader, reader))
    message = f"a {column} of table {schemas.table} has a schema id that the plan does not name: "
    return _by_schema(column, branches, message)


def body_of(
    column: str,
    writer: Mapping[str, Any],
    reader: Mapping[str, Any],
    *,
    mode: Mapping[str, str] = _FAIL_FAST,
) -> Column:
    """Return the Avro body of a framed column, written with one schema and read with another."""
    body = F.expr(f"substring({column}, {HEADER_BYTES + 1})")
    return avro_column(body, writer, {**mode, **_CALENDAR, "avroSchema": json.dumps(reader)})


def _by_schema(column: str, branches: Mapping[int, Column], message: str) -> Column:
    """Return the branch of the schema id that a framed column names; fail for any other."""
    header = F.expr(f"hex(substring({column}, 1, {HEADER_BYTES}))")
    chosen = F.raise_error(F.concat(F.lit(message), header))
    for schema_id, value in branches.items():
        chosen = F.when(begins_with(column, schema_id), value).otherwise(chosen)
    return chosen


def _origin(schemas: TopicSchemas) -> Column:
    """Return the number of the stream partition; an older value holds its token instead."""
    token = F.col("change.source.partition_token")
    named = F.when(F.col("origin").isNotNull(), F.col("origin")).when(
        token != "", F.xxhash64(token)
    )
    message = f"a change of table {schemas.table} names no stream partition: its header "
    return named.otherwise(F.raise_error(F.lit(f"{message}{HEADER_ORIGIN!r} is missing")))


def _captured(side: str, schemas: TopicSchemas) -> Column:
    """Return the captured columns' names, null for all.

    A writer's "all" refers to its own schema.  Where the reader's has more columns the names are
    listed; otherwise a column that the writer did not know would read as captured and NULL.
    """
    named = F.col(f"change.{side}_columns")
    values = F.col(f"change.{side}_values")
    newest = row_columns(schemas.reader_schema)
    for schema_id, writer in writers_of(schemas, schemas.reader_schema):
        columns = row_columns(writer)
        if unknown := [column for column in columns if column not in newest]:
            raise SchemaError(
                "a writer schema has columns that the reader schema lacks",
                table=schemas.table,
                schema_id=schema_id,
                columns=unknown,
            )
        if len(columns) < len(newest):
            older = begins_with("value", schema_id) & named.isNull() & values.isNotNull()
            spelled = F.array(*(F.lit(column) for column in columns))
            named = F.when(older, spelled).otherwise(named)
    return named


def writers_of(
    schemas: TopicSchemas, reader: Mapping[str, Any]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the writer schemas of the reader's record; keys' and values' ids share one map."""
    for schema_id, writer in sorted(schemas.writer_schemas.items()):
        if full_name(writer) == full_name(reader):
            yield schema_id, writer


def begins_with(column: str, schema_id: int) -> Column:
    """Condition: a framed column names this schema id."""
    return F.expr(f"substring({column}, 1, {HEADER_BYTES})") == F.lit(frame_prefix(schema_id))


def avro_column(body: Column, writer: Mapping[str, Any], options: Mapping[str, str]) -> Column:
    """Decode bodies that were written with a schema, as `from_avro` of PySpark does.

    Here its options are a value.  In PySpark they are an expression, which is evaluated whenever
    plans are compared, also by Spark's own threads.  All copies of a plan share its builder, which
    two threads sometimes fill at the same time: DUPLICATED_MAP_KEY ended the query.
    """
    return F.call_function("from_avro", body, F.lit(json.dumps(writer)), _value(options))


def _value(options: Mapping[str, str]) -> Column:
    session: Any = SparkSession.active()
    jvm = session._jvm  # noqa: SLF001 - the only way to a map that is not an expression
    given = jvm.java.util.HashMap()
    for name, value in options.items():
        given.put(name, value)
    text = jvm.org.apache.spark.sql.types.DataTypes.StringType
    literal = jvm.org.apache.spark.sql.catalyst.expressions.Literal.create(
        jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(given),
        jvm.org.apache.spark.sql.types.DataTypes.createMapType(text, text, False),  # noqa: FBT003 - Spark's own
    )
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(literal))


def why_unreadable(schemas: TopicSchemas) -> Column:
    """Return why `decode_changes` fails for a row of the topic with a value; null if it does not.

    The texts are the same as in `row_decoding`.
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
