"""Records of data topics that are not changes, and how a batch sets them aside as dead letters.

A record without an order key is set aside by the batch that reads it.  Every other record is within
the bounds of a release, and is decoded when that release is made: by Spark for a large release, in
the driver for a small one.  So a run can also set aside records that wait in a segment.

A record of another writer may name any schema id.  One that the registry does not know, or that
belongs to another topic, must never enter a plan: a topic is read with all the ids that its plan
names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import StringType, StructField, StructType

from tidegate.schemas.change_schema import record_names
from tidegate.schemas.errors import SchemaError, SchemaNotFound
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_ORIGIN
from tidegate.schemas.wire_format import unframe
from tidegate.spark_consumer.batch.change_counts import RecordFrame, topics_of
from tidegate.spark_consumer.batch.rows import (
    CHANGE_SCHEMA,
    HEADERS,
    IS_PROGRESS,
    has_order_key,
)
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, full_name
from tidegate.spark_consumer.errors import BAD_RECORD_HINT, UndecodableRecord, UnknownSchema
from tidegate.spark_consumer.sinks.decoding import why_unreadable
from tidegate.spark_consumer.sinks.row_decoding import decode_rows, find_undecodable

NO_SCHEMA_OF_TOPIC = "no record of its topic names a schema that is known"
_NO_ORDER_KEY = "its first header is no order key"

_REASON = "reason"
_WITH_REASON = StructType([*CHANGE_SCHEMA, StructField(_REASON, StringType())])
_ORIGIN_DIGITS = 16

Place = tuple[str, int, int]
"""Topic, topic partition and offset of a record."""


class DeadLetterRows(Protocol):
    """Stores records that are not changes."""

    def write(self, rows: DataFrame, *, query_id: str, batch: int, release: int | None) -> int:
        """Append the dead letters of a batch, or of one of its releases; idempotent by that.

        Returns how many of them were written, by this call or an earlier one.
        """
        ...


@dataclass(frozen=True, slots=True)
class BadRecords:
    """How a query treats records that are not changes.

    A stored plan that sets some aside is followed whatever `sets_aside` is.
    """

    ids: SchemaIds
    table: DeadLetterRows
    sets_aside: bool


def unordered_rows(rows: DataFrame) -> DataFrame:
    """Return the data rows of a batch that have no order key, as dead letters."""
    unordered = rows.where(~F.col(IS_PROGRESS) & ~has_order_key())
    return unordered.withColumn(_REASON, F.lit(_NO_ORDER_KEY))


def unreadable_rows(rows: DataFrame, topics: Mapping[str, TopicSchemas]) -> DataFrame:
    """Return the rows of a release that its schemas cannot decode, each with the reason."""
    return rows.withColumn(_REASON, _reason(topics)).where(F.col(_REASON).isNotNull())


def readable_rows(rows: DataFrame, topics: Mapping[str, TopicSchemas]) -> DataFrame:
    """Return the rows of a release that its schemas can decode."""
    return rows.where(is_readable(topics))


def is_readable(topics: Mapping[str, TopicSchemas]) -> Column:
    """Condition: these schemas can decode the row."""
    return _reason(topics).isNull()


def reasons_of(
    records: Iterable[Mapping[str, Any]], topics: Mapping[str, TopicSchemas]
) -> dict[Place, str]:
    """Return the reason for each record of a small release that its schemas cannot decode."""
    of_topic: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        of_topic.setdefault(record["topic"], []).append(record)
    reasons: dict[Place, str] = {}
    for topic, of_one_topic in of_topic.items():
        if topic in topics:
            for record, error in find_undecodable(of_one_topic, topics[topic]):
                reasons[place_of(record)] = error.message
        else:
            unknown = (record for record in of_one_topic if record["value"] is not None)
            reasons |= {place_of(record): NO_SCHEMA_OF_TOPIC for record in unknown}
    return reasons


def frame_of(
    spark: SparkSession, records: Sequence[Mapping[str, Any]], reasons: Mapping[Place, str]
) -> DataFrame:
    """Return the records of a small release that have a reason, as `unreadable_rows` does."""
    names = CHANGE_SCHEMA.fieldNames()
    rows = [
        (*(record[name] for name in names), reasons[place_of(record)])
        for record in records
        if place_of(record) in reasons
    ]
    return spark.createDataFrame(rows, _WITH_REASON)


def without(rows: DataFrame, places: Iterable[Place]) -> DataFrame:
    """Return the rows whose places are not among these."""
    texts = ["/".join(map(str, place)) for place in places]
    place = F.concat_ws("/", "topic", F.col("topic_partition"), F.col("offset"))
    return rows.where(~place.isin(texts))


def place_of(record: Mapping[str, Any]) -> Place:
    """Return the place of a record."""
    return record["topic"], record["topic_partition"], record["offset"]


def as_dead_letters(rows: DataFrame) -> DataFrame:
    """Return rows of `unreadable_rows` with the headers that the gate's columns were read from."""
    origin = F.unhex(F.lpad(F.hex("origin"), _ORIGIN_DIGITS, "0"))
    headers = F.array(
        _header(HEADER_ORDER, F.col("order_key")),
        _header(HEADER_MOD, F.encode("mod", "UTF-8")),
        _header(HEADER_ORIGIN, origin),
    )
    return rows.withColumn(HEADERS, F.filter(headers, lambda header: header["value"].isNotNull()))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.alias("value"))


def _reason(topics: Mapping[str, TopicSchemas]) -> Column:
    """Return why a row cannot be decoded; null where it can be, or has no value."""
    reason = F.lit(NO_SCHEMA_OF_TOPIC)
    for topic, schemas in topics.items():
        reason = F.when(F.col("topic") == topic, why_unreadable(schemas)).otherwise(reason)
    return F.when(F.col("value").isNotNull(), reason)


class SchemaIds:
    """Looks each id up once, in the checkpoint or the registry."""

    def __init__(self, schema_of: Callable[[int], Mapping[str, Any]], *, sets_aside: bool) -> None:
        """`schema_of` returns the schema of an id, and raises SchemaNotFound for an unknown one.

        `sets_aside`: records with other ids raise no error; they are set aside as dead letters.
        """
        self._schema_of = schema_of
        self._sets_aside = sets_aside
        self._good: set[tuple[str, str, bytes]] = set()

    def topics_of(
        self,
        frames: Iterable[RecordFrame],
        *,
        find: Callable[[str, str, bytes], Mapping[str, int]],
    ) -> tuple[TopicIds, ...]:
        """Return the ids of records whose key and value name a schema of their topic.

        `find` returns topic partition and offset of a record, by its topic and how its key or value
        begins.  Raises UndecodableRecord for the first other record, unless such are set aside, and
        what the registry raises if it does not answer.
        """
        decodable: list[RecordFrame] = []
        for frame in sorted(frames, key=lambda frame: (frame[0], frame[1], frame[2] or b"")):
            topic, key, value = frame
            parts = [("key", key)] if value is None else [("key", key), ("value", value)]
            faults = [fault for part in parts if (fault := self._fault(topic, *part)) is not None]
            if not faults:
                decodable.append(frame)
            elif not self._sets_aside:
                kind, column, head, message, fields = faults[0]
                place = find(topic, column, head)
                raise kind(message, hint=BAD_RECORD_HINT, topic=topic, **place, **fields)
        return topics_of(decodable)

    def _fault(
        self, topic: str, column: str, head: bytes
    ) -> tuple[type[UndecodableRecord], str, bytes, str, dict[str, Any]] | None:
        """Return what is wrong with how a key or a value begins."""
        if (topic, column, head) in self._good:
            return None
        try:
            schema_id, _ = unframe(head)
        except SchemaError as error:
            message = f"a {column} does not begin with a schema id"
            return UndecodableRecord, column, head, message, error.fields
        fields: dict[str, Any] = {"schema_id": schema_id}
        try:
            name = full_name(self._schema_of(schema_id))
        except SchemaNotFound as error:
            message = f"a {column} names a schema that the registry does not know"
            return UnknownSchema, column, head, message, {**fields, "cause": error.message}
        expected = record_names(topic)[column]
        if name != expected:
            message = f"a {column} names a schema that is not one of its topic"
            names = {"found": name, "expected": expected}
            return UnknownSchema, column, head, message, {**fields, **names}
        self._good.add((topic, column, head))
        return None


_DECODING_ERRORS = (
    "MALFORMED_AVRO_MESSAGE",
    "Malformed records are detected",
    "has a schema id that the plan does not name",
    "names no stream partition",
)
"""Parts of the errors of `sinks.decoding`, and of Spark's own Avro functions."""

_COLUMNS = ("topic", "topic_partition", "offset", "order_key", "key", "value", "origin")


@contextmanager
def naming_undecodable(
    rows: DataFrame, topics: Mapping[str, TopicSchemas], *, release: int
) -> Iterator[None]:
    """Within the block, raise UndecodableRecord with its place where a record cannot be decoded.

    Spark's error names no record, and a task of it fails at the first of many; a sink that decodes
    records itself does not know their places.  So the records are decoded once more, one after the
    other in the driver, which names the first that it cannot decode.  `rows` are the release's,
    with every column of a record; they must be readable still.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        is_of_a_sink = isinstance(error, UndecodableRecord)
        if is_of_a_sink or any(sign in text for sign in _DECODING_ERRORS):
            _decode_each(rows, topics, release=release)
        raise


def _decode_each(rows: DataFrame, topics: Mapping[str, TopicSchemas], *, release: int) -> None:
    for row in rows.select(*_COLUMNS).toLocalIterator():
        record = {**row.asDict(), "ordinal": 0}
        if row["topic"] in topics:
            decode_rows([record], topics[row["topic"]], release=release)
