"""The sinks of the settings: what each of them writes, when, and by which writer.

A sink is a kind of rows, the time at which they are written, and a writer; `KINDS` has a line for
each.  docs/sinks.md has this table, and the contract suite (tests/spark/sinks/test_contract.py)
runs over it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig, names_in
from tidegate.spark_consumer.core.sink_names import (
    CHANGELOG,
    CHANGELOG_BY_KEY,
    HISTORY,
    ICEBERG_CHANGELOG,
    ICEBERG_MIRROR,
    MIRROR,
    MIRROR_BY_KEY,
    PARQUET_BY_KEY,
)
from tidegate.spark_consumer.sinks.append import (
    BATCH_ROWS,
    CHANGE_ROWS,
    TRANSACTION_ROWS,
    TRANSACTIONS,
    AppendSink,
    BatchAppendSink,
    ChangelogSink,
)
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.files.datastream import (
    DATASTREAM_FILES,
    DatastreamFilesSink,
    FileSettings,
)
from tidegate.spark_consumer.sinks.files.events import FileFormat, FileLimits
from tidegate.spark_consumer.sinks.files.parquet import (
    PARQUET,
    PARQUET_TRANSACTIONS,
    ParquetFolders,
)
from tidegate.spark_consumer.sinks.iceberg.catalog import IcebergPlace
from tidegate.spark_consumer.sinks.iceberg.mirror import IcebergMirrorSink
from tidegate.spark_consumer.sinks.iceberg.tables import IcebergTables
from tidegate.spark_consumer.sinks.kafka.ordered_topic import SINK as TOPIC
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink, TopicOrder
from tidegate.spark_consumer.sinks.kafka.port import OutputTopic
from tidegate.spark_consumer.sinks.manifest import OutputFiles
from tidegate.spark_consumer.sinks.merge.by_key import DeltaMirrorByKeySink
from tidegate.spark_consumer.sinks.merge.history import DeltaHistorySink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.merge.versions import HistoryColumns
from tidegate.spark_consumer.sinks.port import Sink
from tidegate.spark_consumer.sinks.released_frame import transaction_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_RELEASE, _BATCH = "each release", "each batch"
_MERGES = "each release, or several at once"


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that sinks are made of, besides those that their settings name."""

    spark: SparkSession
    config: ConsumerConfig
    output: Storage
    direct: DirectWay | None
    """How small releases are written without Spark."""
    topic: Callable[[], OutputTopic]
    """Returns the ordered topic."""
    stream: Callable[[], str]
    """Returns the change stream's full name; called before the first file of Datastream's."""
    first_release: int | None = 0
    """The first release that the ordered topic gets; None if it joins with a later one."""
    clock: Callable[[], float] = time.time

    @property
    def layout(self) -> TableLayout:
        """The layout of new tables."""
        return TableLayout(properties=self.config.table_properties)

    @property
    def mirror_layout(self) -> TableLayout:
        """The layout of new mirrors."""
        return TableLayout(
            properties=self.config.table_properties,
            partition_by=_columns(self.config.mirror_partition_by),
            cluster_by=_columns(self.config.mirror_cluster_by),
        )

    @property
    def iceberg(self) -> IcebergPlace:
        """Where Iceberg tables are."""
        return IcebergPlace.of(
            self.output.root,
            prefix=self.config.prefix,
            catalog=self.config.iceberg_catalog,
            namespace=self.config.iceberg_namespace,
        )


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A kind of sink: its output, when it writes, and its writer."""

    rows: str
    when: str
    writer: str
    make: Callable[[Parts], Sink]


def changelog_sink(
    spark: SparkSession,
    output: str,
    *,
    direct: DirectWay | None = None,
    layout: TableLayout | None = None,
) -> ChangelogSink:
    """Every change as a row of `<output>/changelog/<table>`."""
    properties = _delta_bounds(CHANGE_ROWS.bounded)
    tables = SinkTables(
        output, CHANGELOG, sink=CHANGELOG, direct=direct, properties=properties, layout=layout
    )
    return ChangelogSink(spark, CHANGELOG, CHANGE_ROWS, tables)


def changelog_by_key_sink(
    spark: SparkSession, output: str, *, layout: TableLayout | None = None
) -> BatchAppendSink:
    """Every change as a row of `<output>/changelog_by_key/<table>`."""
    name, properties = CHANGELOG_BY_KEY, _delta_bounds(BATCH_ROWS.bounded)
    tables = SinkTables(
        output, name, sink=name, properties=properties, layout=layout, is_by_batch=True
    )
    return BatchAppendSink(spark, name, BATCH_ROWS, tables)


def transactions_sink(spark: SparkSession, output: str) -> AppendSink:
    """Every transaction as a row of `<output>/transactions`."""
    name, properties = TRANSACTIONS, _delta_bounds(TRANSACTION_ROWS.bounded)
    tables = SinkTables(output, name, sink=name, properties=properties, is_single=True)
    return AppendSink(spark, name, TRANSACTION_ROWS, tables)


def iceberg_changelog_sink(spark: SparkSession, output: str, place: IcebergPlace) -> AppendSink:
    """Every change as a row of the Iceberg table `<namespace>_changelog.<table>`."""
    properties = {
        # Rows stay in the order and in the files of their tasks.
        "write.distribution-mode": "none",
        "write.metadata.metrics.default": "none",
        **{f"write.metadata.metrics.column.{column}": "full" for column in CHANGE_ROWS.bounded},
    }
    name = ICEBERG_CHANGELOG
    tables = IcebergTables(output, place, kind=CHANGELOG, sink=name, properties=properties)
    return AppendSink(spark, name, CHANGE_ROWS, tables)


def parquet_sink(spark: SparkSession, output: OutputFiles, *, is_direct: bool) -> AppendSink:
    """Every change as a row of a file in `<output>/parquet/<table>/<release>`."""
    folders = ParquetFolders(output, folder=PARQUET, is_direct=is_direct)
    return AppendSink(spark, PARQUET, CHANGE_ROWS, folders)


def parquet_transactions_sink(spark: SparkSession, output: OutputFiles) -> AppendSink:
    """Every transaction as a row of a file in `<output>/parquet_transactions/<release>`."""
    folders = ParquetFolders(output, folder=PARQUET_TRANSACTIONS, is_single=True)
    return AppendSink(spark, PARQUET_TRANSACTIONS, TRANSACTION_ROWS, folders)


def parquet_by_key_sink(spark: SparkSession, output: OutputFiles) -> BatchAppendSink:
    """Every change as a row of a file in `<output>/parquet_by_key/<table>/<batch>`."""
    folders = ParquetFolders(output, folder=PARQUET_BY_KEY)
    return BatchAppendSink(spark, PARQUET_BY_KEY, BATCH_ROWS, folders)


def _mirror(parts: Parts) -> Sink:
    return DeltaMirrorSink(
        parts.spark,
        parts.output.root,
        direct=parts.direct,
        accepted=parts.config.accepted_exclusions,
        layout=parts.mirror_layout,
    )


def _history(parts: Parts) -> Sink:
    return DeltaHistorySink(
        parts.spark,
        parts.output.root,
        direct=parts.direct,
        accepted=parts.config.accepted_exclusions,
        layout=parts.layout,
        columns=HistoryColumns(parts.config.history_prefix),
    )


def _mirror_by_key(parts: Parts) -> Sink:
    return DeltaMirrorByKeySink(
        parts.spark,
        parts.output.root,
        accepted=parts.config.accepted_exclusions,
        layout=parts.layout,
    )


def _iceberg_mirror(parts: Parts) -> Sink:
    return IcebergMirrorSink(
        parts.spark,
        parts.output.root,
        parts.iceberg,
        direct=parts.direct,
        accepted=parts.config.accepted_exclusions,
    )


def _datastream_files(parts: Parts) -> Sink:
    config = parts.config
    settings = FileSettings(
        FileFormat(config.datastream_files_format),
        FileLimits(config.datastream_files_rows_max, config.datastream_files_bytes_max),
    )
    return DatastreamFilesSink(parts.output, settings, stream=parts.stream, clock=parts.clock)


def _topic(parts: Parts) -> Sink:
    return OrderedTopicSink(
        parts.topic(),
        names=parts.config.topic_names,
        order=TopicOrder(parts.config.ordered_topic_order),
        first_release=parts.first_release,
        require_writer=parts.output.require_writer,
        transactions=transaction_records,
    )


KINDS: Mapping[str, SinkKind] = {
    CHANGELOG: SinkKind(
        "changes",
        _RELEASE,
        "Delta",
        lambda parts: changelog_sink(
            parts.spark, parts.output.root, direct=parts.direct, layout=parts.layout
        ),
    ),
    MIRROR: SinkKind("rows as of a release", _MERGES, "Delta", _mirror),
    HISTORY: SinkKind("versions of rows", _MERGES, "Delta", _history),
    PARQUET: SinkKind(
        "changes",
        _RELEASE,
        "Parquet",
        lambda parts: parquet_sink(parts.spark, parts.output, is_direct=parts.direct is not None),
    ),
    TRANSACTIONS: SinkKind(
        "transactions",
        _RELEASE,
        "Delta",
        lambda parts: transactions_sink(parts.spark, parts.output.root),
    ),
    PARQUET_TRANSACTIONS: SinkKind(
        "transactions",
        _RELEASE,
        "Parquet",
        lambda parts: parquet_transactions_sink(parts.spark, parts.output),
    ),
    DATASTREAM_FILES: SinkKind("changes", _RELEASE, "Datastream's files", _datastream_files),
    CHANGELOG_BY_KEY: SinkKind(
        "changes",
        _BATCH,
        "Delta",
        lambda parts: changelog_by_key_sink(parts.spark, parts.output.root, layout=parts.layout),
    ),
    MIRROR_BY_KEY: SinkKind("rows as of a batch", _BATCH, "Delta", _mirror_by_key),
    PARQUET_BY_KEY: SinkKind(
        "changes", _BATCH, "Parquet", lambda parts: parquet_by_key_sink(parts.spark, parts.output)
    ),
    ICEBERG_CHANGELOG: SinkKind(
        "changes",
        _RELEASE,
        "Iceberg",
        lambda parts: iceberg_changelog_sink(parts.spark, parts.output.root, parts.iceberg),
    ),
    ICEBERG_MIRROR: SinkKind("rows as of a release", _MERGES, "Iceberg", _iceberg_mirror),
    TOPIC: SinkKind("changes or transactions", _RELEASE, "Kafka", _topic),
}
"""The sinks by the names that settings give them."""


def _delta_bounds(columns: tuple[str, ...]) -> dict[str, str]:
    return {"delta.dataSkippingStatsColumns": ",".join(columns)}


def _columns(by_table: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {table: names_in(text) for table, text in by_table.items()}
