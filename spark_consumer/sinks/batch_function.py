"""A function of the user's in the order mode `key`: it gets each batch's changes before a release.

It waits for no watermark.  After a kill it is called again with the batch that was interrupted: the
same number, the same rows.  A function that stores the number with what it writes, in one step, has
each change exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce

from pyspark.sql import DataFrame

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import Release, TableVersion
from tidegate.spark_consumer.sinks.released_frame import in_order, with_variants

BATCH_FIELDS = (
    "batch BIGINT, table STRING, topic_partition INT, offset BIGINT, commit_timestamp "
    "TIMESTAMP_LTZ, server_transaction_id STRING, record_sequence STRING, mod_number INT, "
    "mod_type STRING, key VARIANT, new_values VARIANT, old_values VARIANT, new_columns "
    "ARRAY<STRING>, old_columns ARRAY<STRING>, order_key BINARY"
)
"""The columns of the frame that a function gets, in order."""

_PLACE = ("table", "topic_partition", "offset")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BatchChanges:
    """What a function learns of a batch beside its frame.

    `number` and `query_id` identify the batch.  Every change up to `watermark` has been handed over
    with this batch, but for those that an operator puts back; None: there is none yet.
    """

    def __init__(self, batch: HandedBatch) -> None:
        """Take the batch; its frames are valid until the function returns."""
        self._tables = {one.schemas.table: one for one in batch.tables.values()}
        self.number = batch.number
        self.query_id = batch.query_id
        self.rows = batch.rows
        is_known = batch.watermark_us != BEFORE_EVERYTHING_US
        self.watermark = _EPOCH + timedelta(microseconds=batch.watermark_us) if is_known else None

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that have changes in the batch."""
        return tuple(sorted(name for name, one in self._tables.items() if one.rows))

    def table(self, name: str) -> DataFrame:
        """Return one table's changes with typed columns, sorted by topic partition and offset.

        A known table without a change has an empty frame.  Raises ConfigError for any other.
        """
        one = self._tables.get(name)
        if one is None:
            raise ConfigError(
                "the stream has shown no such table yet",
                hint=f"Known tables: {', '.join(sorted(self._tables)) or 'none'}",
                table=name,
            )
        return in_order(one.frame, rows=one.rows, by=_PLACE[1:])


class BatchFunctionSink:
    """Calls `function(frame, batch)` for each batch that has changes.

    The frame has a row for each change, in `BATCH_FIELDS`, sorted by table, topic partition and
    offset.
    """

    def __init__(
        self, function: Callable[[DataFrame, BatchChanges], object], *, name: str = "batches"
    ) -> None:
        self._function = function
        self._name = name

    @property
    def name(self) -> str:
        """The name under which the state knows the function."""
        return self._name

    def open(self, *, query_id: str, release_max: int) -> None:
        """Do nothing: what the function has written is its own."""

    def take(self, batch: HandedBatch) -> None:
        """Call the function; raises what it raises."""
        frames = [with_variants(one, BATCH_FIELDS) for one in batch.tables.values() if one.rows]
        if frames:
            changes = reduce(DataFrame.unionByName, frames)
            self._function(in_order(changes, rows=batch.rows, by=_PLACE), BatchChanges(batch))

    def write(self, release: Release) -> Mapping[str, TableVersion]:  # noqa: ARG002 - the port's
        """Do nothing: the release's changes were handed over with their batches."""
        return {}
