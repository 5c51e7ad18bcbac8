"""What the sinks that merge into Delta tables have in common: two ways, by delta-rs and by Spark.

A subclass says how a release is merged in each of them.  Exactly once: a release that a table's
commits name is not merged again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.collected_table import CollectedTable
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.incomplete import IncompleteTables
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.merging_sink import TableMergingSink
from tidegate.spark_consumer.sinks.delta.mirror_scope import MirrorScope
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.port import AnyTable
from tidegate.spark_consumer.sinks.session_settings import session_settings
from tidegate.spark_consumer.sinks.sql_names import quoted

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable


class DeltaMergingSink(TableMergingSink[SinkTables, IncompleteTables]):
    """Merges into `<output>/<name>/<table>`; a `MergingSink`."""

    incomplete: ClassVar[str]
    """The name of the folder of the side tables."""

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        *,
        direct: DirectWay | None = None,
        accepted: Iterable[str] = (),
        layout: TableLayout | None = None,
        part: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the output's address, and how small releases are written without Spark.

        `accepted` says what tables are written in spite of, as the setting `mirror_accepts`;
        `layout` is that of new tables.  `part` is the partition, by column, that holds every row
        which a merge may change, where it is not all of the table: tables are partitioned by these
        columns.
        """
        self._output = output
        self._part = dict(part or {})
        tables = SinkTables(
            output,
            folder=self.name,
            sink=self.name,
            direct=direct,
            partitioned_by=tuple(self._part),
            layout=layout,
        )
        super().__init__(
            spark,
            output,
            tables=tables,
            incomplete=IncompleteTables(output, name=self.incomplete, of=self.name, direct=direct),
            scope=MirrorScope(accepted, of=self.name),
            direct=direct,
        )

    @property
    def incomplete_changes(self) -> int:
        """How many changes went to the incomplete tables since `open`."""
        return self._incomplete.changes

    def heads(self) -> Mapping[str, int]:
        """Return the newest version of each table that was read, by its path in the output."""
        return {**self._tables.heads(), **self._incomplete.heads()}

    def _merge_changed(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        opened: dict[str, tuple[CollectedTable, DirectTable]] = {}
        for topic, one in tables.items():
            found = self._opened(one)
            if isinstance(one, CollectedTable) and found is not None:
                opened[topic] = one, found
        self._merge_directly(opened, commit=commit)
        rest = {topic: one for topic, one in tables.items() if topic not in opened}
        if rest:
            self._merge_by_spark(rest, commit=commit)

    @abstractmethod
    def _merge_directly(
        self, opened: Mapping[str, tuple[CollectedTable, DirectTable]], *, commit: Commit
    ) -> None:
        """Merge tables by delta-rs, by topic."""

    @abstractmethod
    def _merge_by_spark(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        """Merge tables by Spark, by topic; there is one at least, and all are of one session."""

    def _opened(self, one: AnyTable, *, version: int | None = None) -> DirectTable | None:
        """Return the sink's table for delta-rs, or None if Spark writes it."""
        direct = self._tables.direct
        if direct is None or not isinstance(one, CollectedTable):
            return None
        return direct.mirror(
            self._tables.path(one.schemas.table),
            schema=self._schema(one),
            keys=key_names(one.schemas),
            version=version,
            part=self._part,
        )

    def _files(self, tables: Mapping[str, AnyTable]) -> int:
        """Return how many files the MERGE of each of these tables writes at most."""
        return max(
            self._tables.files_of_merge(
                one.spark, one.schemas.table, rows=one.rows, part=self._part
            )
            for one in tables.values()
        )

    @contextmanager
    def _merging(self, spark: SparkSession, *, files: int, commit: Commit) -> Iterator[None]:
        """Set what MERGE takes from the session only; all tables of a release share it."""
        settings = {
            "spark.databricks.delta.commitInfo.userMetadata": commit.metadata,
            "spark.databricks.delta.write.txnAppId": commit.application,
            "spark.databricks.delta.write.txnVersion": str(commit.release),
            # The source is materialised once, before the MERGE, which also counts it.
            "spark.databricks.delta.merge.materializeSource": "none",
            "spark.sql.shuffle.partitions": str(files),
        }
        with session_settings(spark, settings):
            yield


def key_names(schemas: TopicSchemas) -> list[str]:
    """Return the key's columns, in primary key order."""
    return [field["name"] for field in schemas.key_schema["fields"]]


def key_struct(keys: Sequence[str]) -> Column:
    """Return a table's key as a decoded change has it."""
    return F.struct(*(F.col(quoted(key)) for key in keys)).alias("key")
