"""A function of the user's as a sink: it gets each release as a frame, whole and sorted.

The gate calls it for one release at a time, in order, and goes on when it has returned.  After a
kill it is called again with the release that was interrupted: the same number, the same rows.  A
function that stores the number with what it writes, in one step, has each release exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.port import Release, TableVersion
from tidegate.spark_consumer.sinks.released_frame import (
    changes_of,
    in_order,
    transactions_of,
    wide_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Mode: TypeAlias = Literal["commit", "transaction"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ReleasedChanges:
    """What a function learns of a release beside its frame.

    All changes with `after` < commit timestamp <= `through` are in the release; `through` is the
    watermark: nothing at or before it comes later.
    """

    def __init__(self, release: Release) -> None:
        """Take the release; its frames are valid until the function returns."""
        self._tables = {one.schemas.table: one for one in release.tables.values()}
        self.number = release.number
        self.query_id = release.query_id
        self.after = _time(release.after_us)
        self.through = _time(release.through_us)
        self.rows = release.rows

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that have changes in the release."""
        return tuple(sorted(name for name, one in self._tables.items() if one.rows))

    def table(self, name: str) -> DataFrame:
        """Return one table's changes with typed columns, sorted by `ordinal`.

        A known table without a change has an empty frame.  Raises ConfigError for any other.
        """
        one = self._tables.get(name)
        if one is None:
            raise ConfigError(
                "the stream has shown no such table yet",
                hint=f"Known tables: {', '.join(sorted(self._tables)) or 'none'}",
                table=name,
            )
        return in_order(one.frame, rows=one.rows)


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
        """Do nothing: what the function has written is its own."""

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Call the function; raises what it raises."""
        if release.rows or self._with_empty:
            spark = next((one.spark for one in release.tables.values()), self._spark)
            with wide_rows(spark) if self._is_by_transaction else nullcontext():
                self._function(self._frame(release, spark), ReleasedChanges(release))
        return {}


def _time(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
