"""The completion markers of a progress topic as frames; the driver collects none of them.

Rows are selected by Kafka keys first, so that heartbeats, which are most of the topic, are not
decoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.lineage.errors import MixedEpochs
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import ChecksumKind, PartitionGap
from tidegate.schemas.progress_codec import RECORD_SCHEMA
from tidegate.schemas.topics import TopicNames, beside
from tidegate.schemas.wire_format import HEADER_BYTES, frame_prefix, unframe
from tidegate.spark_consumer.batch.progress_rows import name_of_record
from tidegate.spark_consumer.sinks.decoding import avro_column
from tidegate.spark_consumer.spark.audit.rows import half_sums, joined_halves

_KINDS = ("STREAM_STARTED", "PARTITION_ANNOUNCED", "PARTITION_FINISHED", "PARTITION_GAP")
_BODIES = ("StreamStarted", "PartitionAnnounced", "PartitionFinished", "PartitionGap")
_FAIL_FAST = {"mode": "FAILFAST"}


@dataclass(frozen=True, slots=True)
class Markers:
    """The known facts about a stream's partitions.

    `origins` has a row for each `origin`: `tokens` and `open` (how many stream partitions have it,
    and how many of them have not finished), `token` (one of them), `start_us`, `end_us` (null if
    none has finished), `parked`, `has_checksum` (all were summed with XXHASH_64).  `totals` has a
    row for each origin and topic with `mods`, `value_bytes` and `checksum`, of finished ones.
    """

    origins: DataFrame
    totals: DataFrame
    filters: tuple[str, ...]
    """The change stream's omissions when the stream began, and settings of the producer."""
    gaps: tuple[PartitionGap, ...] = ()
    """The accepted gaps, by time."""


def marker_records(progress: DataFrame) -> DataFrame:
    """Return the records of a progress topic (`key` and `value` binary, `offset`) that count."""
    present = progress.where(F.col("value").isNotNull())
    return present.where(name_of_record()["kind"].isin(*_KINDS)).select("offset", "value")


def decoded_records(chosen: DataFrame, schema_of: Callable[[int], Mapping[str, Any]]) -> DataFrame:
    """Decode what `marker_records` has chosen, which is read twice: the caller persists it.

    `schema_of` returns the schema of an id.  Raises ConfigError for a topic without a record.
    """
    records = chosen.select("offset", _decoded(_schemas(chosen, schema_of)).alias("record"))
    bodies = map(_member, _BODIES)
    return records.select("offset", "record.epoch", *(f"record.body.{body}" for body in bodies))


def read_markers(bodies: DataFrame) -> Markers:
    """Read what `decoded_records` returns, several times: the caller persists it.

    Otherwise each copy of a plan would parse the schema and Hadoop's settings for its decoder.
    Raises ConfigError for a topic without a stream and MixedEpochs for one with two.
    """
    filters = _stream(bodies)
    finished = _whole_markers(bodies.select("offset", f"{_member('PartitionFinished')}.*"))
    announced = bodies.select(f"{_member('PartitionAnnounced')}.child.*").where("token IS NOT NULL")
    return Markers(_origins(announced, finished), _totals(finished), filters, _gaps(bodies))


def under_their_tables(markers: Markers, names: TopicNames, tables: Iterable[str]) -> Markers:
    """Return the markers, with the totals of tables' second topics counted for their data topics.

    A changelog has the rows of both: a stream partition has written to one of them.
    """
    data_topics = {names.data(beside(table)): names.data(table) for table in tables}
    topic = F.col("topic")
    for second_topic, data_topic in data_topics.items():
        topic = F.when(F.col("topic") == second_topic, data_topic).otherwise(topic)
    return replace(markers, totals=markers.totals.withColumn("topic", topic))


def _schemas(
    chosen: DataFrame, schema_of: Callable[[int], Mapping[str, Any]]
) -> Mapping[int, Mapping[str, Any]]:
    """Return the writer schemas by id."""
    header = F.substring("value", 1, HEADER_BYTES)
    headers = chosen.select(F.hex(header).alias("header")).distinct().collect()
    ids = sorted(unframe(bytes.fromhex(row["header"]))[0] for row in headers)
    if not ids:
        raise _no_stream()
    return {schema_id: schema_of(schema_id) for schema_id in ids}


def _no_stream() -> ConfigError:
    message = "the progress topic holds no stream"
    return ConfigError(message, hint="Check the prefix: no fleet has begun under it")


def _decoded(schemas: Mapping[int, Mapping[str, Any]]) -> Column:
    """Return the record, each value read with the schema that it was written with."""
    body = F.expr(f"substring(value, {HEADER_BYTES + 1})")
    options = _FAIL_FAST | {"avroSchema": json.dumps(RECORD_SCHEMA)}
    record = F.lit(None)
    for schema_id, writer in schemas.items():
        is_its = F.expr(f"substring(value, 1, {HEADER_BYTES})") == F.lit(frame_prefix(schema_id))
        decoded = avro_column(body, writer, options)
        record = F.when(is_its, decoded).otherwise(record)
    return record


def _member(name: str) -> str:
    """Return Spark's name for one of the kinds of bodies."""
    (body,) = (field for field in RECORD_SCHEMA["fields"] if field["name"] == "body")
    names = [branch["name"] for branch in body["type"]]
    return f"member{names.index(name)}"


def _stream(bodies: DataFrame) -> tuple[str, ...]:
    """Return the stream's filters at its begin; raise unless there is one stream, once."""
    started = F.col(_member("StreamStarted"))
    # The first chunk has them; in other chunks they are empty.
    head = F.when(started["chunk"] == 0, started["filters"])
    epochs = bodies.groupBy("epoch").agg(F.max(head).alias("filters")).limit(2).collect()
    if len(epochs) > 1:
        raise MixedEpochs(
            "the progress topic holds two epochs: the stream was reset under this prefix",
            hint="Audit against the topics of the stream that the output was made of",
            epochs=sorted(row["epoch"] for row in epochs),
        )
    if not epochs or epochs[0]["filters"] is None:
        raise _no_stream()
    return tuple(epochs[0]["filters"])


def _gaps(bodies: DataFrame) -> tuple[PartitionGap, ...]:
    rows = bodies.select(f"{_member('PartitionGap')}.*").where("token IS NOT NULL").distinct()
    gaps = (PartitionGap(**row.asDict()) for row in rows.collect())
    return tuple(sorted(gaps, key=lambda gap: (gap.from_us, gap.token)))


def _whole_markers(chunks: DataFrame) -> DataFrame:
    """Return the chunks of whole markers, each once, with the token's `origin`."""
    of_record = [name for name in chunks.columns if name not in {"offset", "token", "chunk"}]
    newest = (
        chunks.where("token IS NOT NULL")
        .groupBy("token", "chunk")
        .agg(F.max_by(F.struct(*of_record), "offset").alias("newest"))
        .select("token", "chunk", "newest.*")
    )
    whole = newest.groupBy("token").agg(F.count("*").alias("found"), F.max("chunks").alias("sent"))
    return newest.join(whole.where("found = sent").select("token"), "token", "left_semi").select(
        "*", origin_of_token().alias("origin")
    )


def _origins(announced: DataFrame, finished: DataFrame) -> DataFrame:
    ended = finished.groupBy("token").agg(
        _us(F.max("end_ns")).alias("end_us"),
        F.max("parked").alias("parked"),
        F.bool_and(F.col("checksums") == ChecksumKind.XXHASH_64.value).alias("has_checksum"),
    )
    started = announced.select("token", "start_ns").unionByName(
        finished.select("token", "start_ns")
    )
    tokens = (
        started.groupBy("token")
        .agg(_us(F.min("start_ns")).alias("start_us"))
        .join(ended, "token", "left")
    )
    return tokens.groupBy(origin_of_token().alias("origin")).agg(
        F.count("*").alias("tokens"),
        F.count_if(F.col("end_us").isNull()).alias("open"),
        F.min("token").alias("token"),
        F.min("start_us").alias("start_us"),
        F.max("end_us").alias("end_us"),
        F.coalesce(F.sum("parked"), F.lit(0)).alias("parked"),
        F.coalesce(F.bool_and("has_checksum"), F.lit(False)).alias("has_checksum"),  # noqa: FBT003 - a literal
    )


def origin_of_token() -> Column:
    """Return the `origin` of the column `token`, as a signed number."""
    return F.xxhash64("token")


def _us(ns: Column) -> Column:
    """Return whole microseconds; a quotient of doubles would lose digits."""
    return F.call_function("div", ns, F.lit(NS_PER_US))


def _totals(finished: DataFrame) -> DataFrame:
    """Return the sums over all markers of an origin."""
    exploded = finished.select("origin", F.explode("totals").alias("of")).select("origin", "of.*")
    high, low = (
        F.conv(F.hex(F.substring("checksum", first, 4)), 16, 10).cast("long") for first in (1, 5)
    )
    return (
        exploded.withColumns({"high": high, "low": low})
        .groupBy("origin", "topic")
        .agg(
            F.sum("mods").alias("mods"),
            F.sum("value_bytes").alias("value_bytes"),
            *half_sums(),
        )
        .select("origin", "topic", "mods", "value_bytes", joined_halves().alias("checksum"))
    )
