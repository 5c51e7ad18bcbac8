"""Parts that tables of all formats share: their port, their types, and writing several at once.

A table's owner may have set something that refuses our writes: a table for appends only, or a
constraint.  Each run would end with the same error of Delta or delta-rs.  So our error names the
cause, and says what to change.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import AnyTable, Release, TableVersion
from tidegate.spark_consumer.sinks.sql import for_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_APPENDS_ONLY = re.compile(r"DELTA_CANNOT_MODIFY_APPEND_ONLY|table is append-only")
_CONSTRAINT = re.compile(
    r"DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\W.*?CHECK constraint (.{1,300}?) violated", re.DOTALL
)
"""The text also has the row's values; the constraint alone is shown."""

_REWRITTEN_FILE_BYTES = 64 * 1024**2
_REWRITTEN_FILE_ROWS = 100_000

_TABLES_AT_ONCE = 2
"""Most of a small commit is spent waiting for the driver: a second table costs little."""


@contextmanager
def named_refusals(topic: str) -> Iterator[None]:
    """Turn a refusal within the block into a ConfigError; `topic` is that of the written table."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as failure:
        text = str(failure)
        if _APPENDS_ONLY.search(text):
            raise ConfigError(
                "a table of the output is for appends only, and a release changes its rows",
                hint=(
                    "ALTER TABLE delta.`<output>/<sink>/<table>` SET TBLPROPERTIES "
                    "('delta.appendOnly' = 'false'), then start again"
                ),
                topic=topic,
            ) from failure
        match = _CONSTRAINT.search(text)
        if match is None:
            raise
        raise ConfigError(
            "a constraint on a table of the output refuses a row of a release",
            hint=(
                "ALTER TABLE delta.`<output>/<sink>/<table>` DROP CONSTRAINT …, then start again: "
                "a sink writes whatever rows the source has"
            ),
            topic=topic,
            constraint=match[1],
        ) from failure


def for_each_table(
    spark: SparkSession, topics: Sequence[str], write: Callable[[str], object]
) -> None:
    """Call `write` for every table, two at once; raises the first error when all have ended.

    Raises ConfigError if a setting or constraint of a table refuses the write.
    """

    def write_table(topic: str) -> None:
        with named_refusals(topic):
            write(topic)

    if len(topics) < _TABLES_AT_ONCE:
        for topic in topics:
            write_table(topic)
        return
    from pyspark import inheritable_thread_target  # noqa: PLC0415 - where Spark runs

    # The threads inherit Spark's job group, or stopping the query would not stop their jobs.
    target: Any = inheritable_thread_target(spark)
    with ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="tidegate-sink") as pool:
        futures = [pool.submit(target(write_table), topic) for topic in topics]
    for future in futures:
        future.result()


def fold_settings(files: int, tables: Iterable[AnyTable]) -> dict[str, str]:
    """Return the settings in which the changes of tables are folded for MERGEs into some files."""
    rows = max(table.rows for table in tables)
    return {"spark.sql.shuffle.partitions": str(files), **for_rows(rows)}


@dataclass(frozen=True, slots=True)
class Commit:
    """The statement of one of our commits about itself."""

    query_id: str
    sink: str
    release: int
    through_us: int

    @property
    def metadata(self) -> str:
        """Text of `userMetadata` for the commit that carries the release's rows."""
        return self._text({"release": self.release, "through_us": self.through_us})

    @property
    def preparation(self) -> str:
        """Text of `userMetadata` for a commit that only creates or widens the table."""
        return self._text({"prepares": self.release})

    @staticmethod
    def adoption(query_id: str, sink: str, *, version: int) -> str:
        """Text of `userMetadata` for a commit that adopts the foreign commits up to a version."""
        return json.dumps({"tidegate": {"query_id": query_id, "sink": sink, "adopts": version}})

    @property
    def application(self) -> str:
        """Name of Delta's own transaction identifier (`txnAppId`); its version is the release."""
        return f"{self.query_id}/{self.sink}"

    @classmethod
    def of_batch(cls, batch: HandedBatch, sink: str) -> Commit:
        """Return the statement of a batch's commits, which have the numbers of batches."""
        return cls(batch.query_id, sink, batch.number, batch.watermark_us)

    def _text(self, rest: Mapping[str, int]) -> str:
        return json.dumps({"tidegate": {"query_id": self.query_id, "sink": self.sink, **rest}})


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a release, or of a batch, for one table of an output.

    `topic` names them in errors, and `sources` says how many changes of each source table they
    hold; `is_counted` whether manifests name that number.  `changes` has the same rows in memory,
    where they are few.
    """

    topic: str
    table: str
    spark: SparkSession
    schema: Callable[[], StructType]
    frame: Callable[[], DataFrame]
    sources: Mapping[str, int]
    changes: Sequence[Mapping[str, Any]] | None = None
    is_counted: bool = True

    @property
    def rows(self) -> int:
        """Number of changes."""
        return sum(self.sources.values())


class RowWriter(ABC):
    """The output of one sink, in tables or in files."""

    @abstractmethod
    def open(self, spark: SparkSession, *, query_id: str, release_max: int) -> None:
        """Refuse rows of another query, or ahead of this one's checkpoint, with ConfigError.

        Raises TableMissing if a table that the newest manifest names is not there, or is older.
        """

    @abstractmethod
    def begin(self, rows: TableRows, *, commit: Commit) -> None:
        """Prepare the output for rows, before any of the release is appended.

        Raises SchemaError for a column whose type changed.
        """

    @abstractmethod
    def append(self, rows: TableRows, *, commit: Commit) -> bool:
        """Append rows at once, unless the output has them; return whether this call did."""

    @abstractmethod
    def versions(self, rows: TableRows, *, commit: Commit) -> dict[str, TableVersion]:
        """Return the version that has the rows, by source table."""

    def staging(self, spark: SparkSession, *, commit: Commit) -> AbstractContextManager[None]:  # noqa: ARG002 - writers that need it override this
        """Set what `append` needs within the block; all tables of a release share it."""
        return nullcontext()

    def heads(self) -> dict[str, int]:
        """Return the newest version of each table that was read, by its path in the output."""
        return {}

    def batch_versions(self, spark: SparkSession, release: Release) -> dict[str, TableVersion]:  # noqa: ARG002 - writers that need it override this
        """Return each table's version after the release's batch, of the tables that exist."""
        return {}


class TableLog(Protocol):
    """The releases that a table holds."""

    @property
    def exists(self) -> bool:
        """Whether the table exists."""

    def find_version(self, release: int) -> int | None:
        """Return the table's version after a release, None if it did not exist by then."""

    def version_at(self, release: int) -> int:
        """Return the table's version after a release that it has."""


class LoggedTables(RowWriter):
    """Tables, each with a log of the releases that it holds."""

    @abstractmethod
    def path(self, table: str) -> str:
        """Return a table's name in manifests."""

    @abstractmethod
    def log(self, spark: SparkSession, table: str) -> TableLog:
        """Return a table's log, loaded once; the table may not exist."""

    @abstractmethod
    def columns(self, spark: SparkSession, table: str) -> tuple[str, ...]:
        """Return the names of a table's columns, none if it does not exist."""

    @abstractmethod
    def prepare(
        self, spark: SparkSession, table: str, *, schema: StructType, commit: Commit
    ) -> None:
        """Create the table, or add the columns that it lacks; cheap when it fits.

        Raises SchemaError if a column exists with another type, and TableMissing if the table was
        deleted since the last release.
        """

    def begin(self, rows: TableRows, *, commit: Commit) -> None:
        """Prepare the table, unless it exists and gets no row."""
        if rows.rows or not self.log(rows.spark, rows.table).exists:
            self.prepare(rows.spark, rows.table, schema=rows.schema(), commit=commit)

    def versions(self, rows: TableRows, *, commit: Commit) -> dict[str, TableVersion]:
        """Return the table's version at the release, for each source table."""
        path = self.path(rows.table)
        version = self.log(rows.spark, rows.table).version_at(commit.release)
        return {
            source: TableVersion(path, version, count if rows.is_counted else None)
            for source, count in rows.sources.items()
        }


def files_of_merge(size: int, rows: int) -> int:
    """Return how many files a MERGE of `rows` changes into a table of this size writes at most.

    By default a MERGE writes one file for each of the session's 200 shuffle partitions, and later
    MERGEs keep them.
    """
    return 1 + max(size // _REWRITTEN_FILE_BYTES, rows // _REWRITTEN_FILE_ROWS)
