"""The port between the gate and its outputs: the input of a sink, and its guarantees.

To write a sink, implement `Sink` and hand it to the query under a unique name.

- The gate calls `open` once, then `write` for each release, in ascending order of their numbers and
  never two at once.  A release counts as published only when every sink has returned from `write`.
- After a kill the gate writes the interrupted release again: same number, same bounds, same rows
  with the same ordinals.  `write` must then leave the output as the first call did and return the
  same result.  The usual way is to store the release number with the rows, in one atomic step.
- A newer run may have replaced this one without its knowledge.  Both then write the same release
  with the same rows; a sink must accept either order.
- Rows arrive decoded, deduplicated and complete.  Order is the `ordinal` column: dense from 0 over
  all tables of the release, in commit order.  A frame's rows may come in any order.
- A sink that needs Kafka's original records calls `Release.source_records`: bytes, in the order of
  the ordinals, over all tables.  Nothing is read or copied for other sinks.
- Frames are valid until `write` returns.  Where a release has several sinks, frames are persisted:
  reading one twice decodes it once.
- A small release comes as `CollectedTable`, with its rows in memory and a frame for sinks that need
  one.  The output must not depend on this: a replay may bring the release in the other form.
- The plan of a batch names the sinks that each release is written to, and the state those of the
  query.  A sink may join a query that has released already: it gets every release from the next one
  on.  A sink never leaves; the run refuses to continue without it.
- A mirror that takes several releases at once is a `MergingSink`: `merge` writes several releases
  as `write` writes one.  A mirror that joins takes all earlier releases in its first merge.
- `write` blocks until the release is durable.  It may raise any error: the run then ends, and the
  next run writes the release again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


__all__ = [
    "AdmittingSink",
    "AnyTable",
    "ClosingSink",
    "CollectedTable",
    "DecodedTable",
    "Merge",
    "MergingSink",
    "Release",
    "Sink",
    "SourceRecord",
    "TableSink",
    "TableVersion",
]


class _Table(ABC):
    """One table's changes in a release.

    `frame` has the columns `sinks.decoding.CHANGE_COLUMNS`, typed by `schemas.reader_schema`, and
    `rows` rows.  A table that is known but has no change in the release has an empty frame.
    """

    def __init__(
        self, spark: SparkSession, make_frame: Callable[[], DataFrame], schemas: TopicSchemas
    ) -> None:
        self.spark = spark
        self.schemas = schemas
        self._make_frame = make_frame

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of changes."""

    @property
    def schema(self) -> StructType:
        """The frame's columns, every field nullable."""
        from tidegate.spark_consumer.sinks.spark_types import change_type  # noqa: PLC0415 - where Spark runs

        return change_type(self.schemas)

    @cached_property
    def frame(self) -> DataFrame:
        """The changes, planned when they are first asked for: an idle table costs nothing."""
        return self._make_frame()


class DecodedTable(_Table):
    """A table whose changes Spark holds.

    `is_ordered` says that the frame's rows come in the order of their ordinals, one Spark task
    after the other, so that written unchanged it becomes sorted files.
    """

    def __init__(
        self,
        spark: SparkSession,
        make_frame: Callable[[], DataFrame],
        rows: int,
        schemas: TopicSchemas,
        *,
        is_ordered: bool = False,
    ) -> None:
        """Take the session of the frame, which in a streaming query differs from the sink's."""
        super().__init__(spark, make_frame, schemas)
        self._rows = rows
        self.is_ordered = is_ordered

    @property
    def rows(self) -> int:
        """Number of changes."""
        return self._rows


class CollectedTable(_Table):
    """A table of a small release that is in the driver's memory too, in `changes`.

    They are the rows of its frame in the order of their ordinals, each a mapping with the columns
    `sinks.decoding.CHANGE_COLUMNS`.  Records are mappings, and UUIDs text.  Timestamps are
    microseconds since 1970 and dates days since 1970; in changes that were read back from the
    changelog, for a `Merge`, they are Python's.
    """

    def __init__(
        self,
        spark: SparkSession,
        make_frame: Callable[[], DataFrame],
        changes: Sequence[Mapping[str, Any]],
        schemas: TopicSchemas,
    ) -> None:
        """Take the changes, and the function that makes their frame for a sink that needs one."""
        super().__init__(spark, make_frame, schemas)
        self.changes = changes

    @property
    def rows(self) -> int:
        """Number of changes."""
        return len(self.changes)


AnyTable: TypeAlias = DecodedTable | CollectedTable


class SourceRecord(NamedTuple):
    """One change of a release as its record in Kafka holds it; key and value are framed."""

    ordinal: int
    topic: str
    key: bytes
    value: bytes
    order_key: bytes
    mod: str
    origin: int | None
    """The header's 8 bytes as a signed number; None where an older program wrote none."""


def _no_source_records() -> Iterator[SourceRecord]:
    raise InvariantViolation("a release that was not made from Kafka's records was asked for them")


@dataclass(frozen=True, slots=True)
class Release:
    """All changes with `after_us` < commit timestamp <= `through_us` (microseconds since 1970).

    `tables` has an entry for every topic known at this release, by topic.  `rows` counts the
    changes over all of them, and `copies` the records that were left out because they repeat one.
    `value_bytes` is the size of the changes' values in Kafka; None: they were not counted.

    `source_records` returns the changes of all tables, one after the other by their ordinals, and
    may be called again.  A large release is read in portions, one slice in the driver at a time.
    Valid until `write` returns, as frames are.
    """

    number: int
    after_us: int
    through_us: int
    query_id: str
    batch: int
    rows: int
    tables: Mapping[str, AnyTable]
    copies: int = 0
    source_records: Callable[[], Iterator[SourceRecord]] = _no_source_records
    value_bytes: int | None = None

    @classmethod
    def of(
        cls,
        bounds: ReleaseBounds,
        tables: Mapping[str, AnyTable],
        *,
        plan: Plan,
        rows: int,
        records: int,
        source_records: Callable[[], Iterator[SourceRecord]] = _no_source_records,
        value_bytes: int | None = None,
    ) -> Release:
        """Return a release of a plan; `records` are its changes with every copy."""
        return cls(
            number=bounds.number,
            after_us=bounds.after_us,
            through_us=bounds.through_us,
            query_id=plan.query_id,
            batch=plan.batch,
            rows=rows,
            tables=tables,
            copies=records - rows,
            source_records=source_records,
            value_bytes=value_bytes,
        )


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table after a release.

    `path` is relative to the output.  `version` is the version that this release made, or the last
    one before it if the release changed nothing.  `rows` counts the rows that this release
    appended; None if that number has no meaning.  `left_out` names the omissions of the change
    stream, which the table lacks: `column <name>`, or an option of the stream.  `release` is the
    release of a mirror; None: the release of this version.
    """

    path: str
    version: int
    rows: int | None = None
    left_out: tuple[str, ...] = ()
    release: int | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """The releases after `after` up to `through`, which ended at `through_us` (microseconds).

    `tables` has the schemas of every table that the last of them knows, by topic.
    """

    query_id: str
    batch: int
    after: int
    through: int
    through_us: int
    tables: Mapping[str, TopicSchemas]


class Sink(Protocol):
    """One kind of output; the module states the contract."""

    @property
    def name(self) -> str:
        """Short name, unique in the query: in plan, state, manifest and log lines."""
        ...

    def open(self, *, query_id: str, release_max: int) -> None:
        """Check the existing output; called once, before the first `write`.

        `release_max` is the highest release number that the gate's state or plan names, -1 if none:
        the output may hold the releases of an unfinished plan already.  Raises ConfigError if the
        output belongs to another query or holds a higher release.
        """
        ...

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write a release; idempotent by its number.

        Returns a version for every table in `release.tables`, by table name (`schemas.table`); none
        if the output has no versions of tables.
        """
        ...


@runtime_checkable
class AdmittingSink(Sink, Protocol):
    """A sink that may refuse a table, before any sink has written of the batch."""

    def admit(self, tables: Iterable[TopicSchemas]) -> None:
        """Raise an error for a table that it cannot write; called with all of a batch's tables."""
        ...


@runtime_checkable
class ClosingSink(Sink, Protocol):
    """A sink that holds something as long as its query runs."""

    def close(self) -> None:
        """Release it; called when no further release is written, maybe twice."""
        ...


@runtime_checkable
class TableSink(Sink, Protocol):
    """A sink of Delta tables, which may be maintained between two batches."""

    def heads(self) -> Mapping[str, int]:
        """Return the newest version of each table that was read, by its path in the output."""
        ...


@runtime_checkable
class MergingSink(Sink, Protocol):
    """A sink that takes several releases at once, from where another sink keeps them."""

    def merge(self, merge: Merge) -> Mapping[str, TableVersion]:
        """Write several releases as one; idempotent by the number of the last.

        Returns a version for every table in `merge.tables`, by table name.
        """
        ...

    def versions(self, release: int, tables: Iterable[TopicSchemas]) -> Mapping[str, TableVersion]:
        """Return the version at a release of each of the tables that existed by then."""
        ...
