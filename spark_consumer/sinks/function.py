"""A function of the user's as a sink: it gets each release, or each batch, as one sorted frame.

The gate calls it for one release at a time, in order, and continues when it has returned.  After a
kill it is called again with the release that was interrupted: the same number, the same rows.  A
function that stores the number with what it writes, in one step, has each release exactly once.
The same is true for a function by batch, which does not wait for the watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark.sql import DataFrame

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import AnyTable, Release, TableVersion
from tidegate.spark_consumer.sinks.released_frame import (
    KAFKAS_ORDER,
    changes_of,
    in_order,
    transactions_of,
    wide_rows,
    with_variants,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Mode: TypeAlias = Literal["commit", "transaction"]

BATCH_FIELDS = (
    "batch BIGINT, table STRING, topic_partition INT, offset BIGINT, commit_timestamp "
    "TIMESTAMP_LTZ, server_transaction_id STRING, record_sequence STRING, mod_number INT, "
    "mod_type STRING, key VARIANT, new_values VARIANT, old_values VARIANT, new_columns "
    "ARRAY<STRING>, old_columns ARRAY<STRING>, order_key BINARY"
)
"""The columns of the frame that a function by batch gets, in order."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Tables:
    """The tables of a release or a batch; their frames are valid until the function returns."""

    def __init__(self, tables: Iterable[AnyTable], order: tuple[str, ...]) -> None:
        self._tables = {table.schemas.table: table for table in tables}
        self._order = order

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that have changes in it."""
        return tuple(sorted(name for name, table in self._tables.items() if table.rows))

    def table(self, name: str) -> DataFrame:
        """Return one table's changes with typed columns, sorted as the whole frame is.

        A known table without a change has an empty frame.  Raises ConfigError for any other.
        """
        table = self._tables.get(name)
        if table is None:
            raise ConfigError(
                "the stream has shown no such table yet",
                hint=f"Known tables: {', '.join(sorted(self._tables)) or 'none'}",
                table=name,
            )
        return in_order(table.frame, rows=table.rows, by=self._order)


class ReleasedChanges(_Tables):
    """Facts about a release, for a function that gets its frame.

    All changes with `after` < commit timestamp <= `through` are in the release; `through` is the
    watermark: nothing at or before it comes later.
    """

    def __init__(self, release: Release) -> None:
        super().__init__(release.tables.values(), ("ordinal",))
        self.number = release.number
        self.query_id = release.query_id
        self.after = _time(release.after_us)
        self.through = _time(release.through_us)
        self.rows = release.rows


class BatchChanges(_Tables):
    """Facts about a batch, for a function that gets its frame.

    `number` and `query_id` identify the batch.  Every change up to `watermark` has been handed over
    with this batch or before it, except for changes that an operator puts back; None: there is no
    watermark yet.
    """

    def __init__(self, batch: HandedBatch) -> None:
        super().__init__(batch.tables.values(), KAFKAS_ORDER)
        self.number = batch.number
        self.query_id = batch.query_id
        self.rows = batch.rows
        is_known = batch.watermark_us != BEFORE_EVERYTHING_US
        self.watermark = _time(batch.watermark_us) if is_known else None


class FunctionSink:
    """Calls `function(frame, release)` for each release that has changes."""

    def __init__(
        self,
        function: Callable[[DataFrame, ReleasedChanges], object],
        *,
        spark: SparkSession,
        name: str = "function",
        mode: Mode = "commit",
        with_empty: bool = False,
    ) -> None:
        """`with_empty` calls it for releases without a change too: each moves the watermark.

        The frame has a row for each change, or with the mode `transaction` one for each
        transaction.  Raises ConfigError for another mode.
        """
        if mode not in ("commit", "transaction"):
            raise ConfigError(
                "unknown order mode of a function",
                hint="Use commit or transaction; for_each_batch gets changes without waiting",
                mode=mode,
            )
        self._function = function
        self._spark = spark
        self._name = name
        self._is_by_transaction = mode == "transaction"
        self._frame = transactions_of if self._is_by_transaction else changes_of
        self._with_empty = with_empty

    @property
    def name(self) -> str:
        """The name under which the state knows the function."""
        return self._name

    def open(self, *, query_id: str, release_max: int) -> None:
        """Do nothing: only the function knows its output."""

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Call the function; raises what it raises."""
        if release.rows or self._with_empty:
            spark = next((table.spark for table in release.tables.values()), self._spark)
            with wide_rows(spark) if self._is_by_transaction else nullcontext():
                self._function(self._frame(release, spark), ReleasedChanges(release))
        return {}


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
        """Do nothing: only the function knows its output."""

    def take(self, batch: HandedBatch) -> None:
        """Call the function; raises what it raises."""
        frames = [
            with_variants(table, BATCH_FIELDS) for table in batch.tables.values() if table.rows
        ]
        if frames:
            changes = reduce(DataFrame.unionByName, frames)
            order = ("table", *KAFKAS_ORDER)
            self._function(in_order(changes, rows=batch.rows, by=order), BatchChanges(batch))

    def write(self, release: Release) -> Mapping[str, TableVersion]:  # noqa: ARG002 - the port's
        """Do nothing: the release's changes were handed over with their batches."""
        return {}


def _time(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
