"""Progress rows of a batch, brought to the driver and decoded.

A batch of live traffic has few and takes all.  One of a backlog is thinned on the executors first,
as compaction would: of each Kafka key the newest, so one snapshot per slot and minute, every
announcement, every marker.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import fastavro
from pyspark.sql import functions as F  # noqa: N812

from tidegate.schemas.progress_codec import RECORD_SCHEMA_TEXT, decode_record
from tidegate.schemas.wire_format import unframe
from tidegate.spark_consumer.core.frontier import ProgressRow
from tidegate.spark_consumer.spark.rows import IS_PROGRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

__all__ = ["ROWS_TAKEN_WHOLE_MAX", "ProgressReader"]

ROWS_TAKEN_WHOLE_MAX = 5_000
"""Up to so many offsets a shuffle would cost more than the rows."""

_OWN_SCHEMA = json.loads(RECORD_SCHEMA_TEXT)


class ProgressReader:
    """Decodes progress rows; keeps the writer schemas that it has met."""

    def __init__(self, schema_of: Callable[[int], Mapping[str, Any]]) -> None:
        """Take the way to the schema of an id."""
        self._schema_of = schema_of
        self._parsed: dict[int, dict[str, Any] | None] = {}

    def read(self, rows: DataFrame, *, offsets: int) -> list[ProgressRow]:
        """Return the progress rows of a batch that spans so many offsets of the progress topic.

        Raises SchemaError for one that cannot be decoded.
        """
        progress = rows.where(IS_PROGRESS).select("topic_partition", "offset", "key", "value")
        if offsets > ROWS_TAKEN_WHOLE_MAX:
            progress = progress.groupBy("topic_partition", "key").agg(
                F.max("offset").alias("offset"), F.max_by("value", "offset").alias("value")
            )
        found = progress.select("topic_partition", "offset", "value").collect()
        return [
            self._decoded(slot, offset, bytes(value))
            for slot, offset, value in found
            # Tombstones are compaction's business.
            if value is not None
        ]

    def _decoded(self, slot: int, offset: int, value: bytes) -> ProgressRow:
        schema_id, body = unframe(value)
        if schema_id not in self._parsed:
            self._parsed[schema_id] = _parsed(self._schema_of(schema_id))
        return ProgressRow(slot, offset, decode_record(body, self._parsed[schema_id]))


def _parsed(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a foreign version's schema, or None if it is the one that this code has."""
    if schema == _OWN_SCHEMA:
        return None
    return cast("dict[str, Any]", fastavro.parse_schema(dict(schema)))
